package jinja

import (
	"math"
	"math/big"
)

func floatBits(f float64) uint64 { return math.Float64bits(f) }

func floatFrom(bits uint64) float64 { return math.Float64frombits(bits) }

// isNumber reports whether v takes part in arithmetic: Python's bool is an int.
func (v Value) isNumber() bool {
	return v.kind == KindInt || v.kind == KindFloat || v.kind == KindBool
}

// asInt returns a bool or int as an int.
func (v Value) asInt() (Value, bool) {
	switch v.kind {
	case KindInt:
		return v, true
	case KindBool:
		return Int(int64(v.num)), true
	default:
		return Value{}, false
	}
}

// compareNumbers orders two numbers exactly; ok is false when one is NaN.
func compareNumbers(a, b Value) (order int, ok bool) {
	if a.kind != KindFloat && b.kind != KindFloat {
		if (a.flag|b.flag)&flagBig == 0 {
			x, y := int64(a.num), int64(b.num)
			switch {
			case x < y:
				return -1, true
			case x > y:
				return 1, true
			}
			return 0, true
		}
		return a.bigInt().Cmp(b.bigInt()), true
	}
	if a.kind == KindFloat && b.kind == KindFloat {
		x, y := floatFrom(a.num), floatFrom(b.num)
		switch {
		case x < y:
			return -1, true
		case x > y:
			return 1, true
		case x == y:
			return 0, true
		}
		return 0, false
	}
	if a.kind != KindFloat {
		order, ok = compareNumbers(b, a)
		return -order, ok
	}
	x := floatFrom(a.num)
	switch {
	case math.IsNaN(x):
		return 0, false
	case math.IsInf(x, 1):
		return 1, true
	case math.IsInf(x, -1):
		return -1, true
	}
	// 1100 bits hold any float exactly, so that large integers compare exactly.
	return new(big.Float).SetPrec(1100).SetFloat64(x).Cmp(new(big.Float).SetInt(b.bigInt())), true
}

// equalScalars is == for values that can be dict keys.
func equalScalars(a, b Value) bool {
	switch {
	case a.isNumber() && b.isNumber():
		order, ok := compareNumbers(a, b)
		return ok && order == 0
	case a.kind != b.kind:
		return false
	case a.kind == KindString:
		return a.text() == b.text()
	case a.kind == KindNone || a.kind == KindUndefined:
		return true
	case a.kind == KindTuple:
		x, y := a.List().items, b.List().items
		if len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equalScalars(x[i], y[i]) {
				return false
			}
		}
		return true
	default:
		return a.ref == b.ref
	}
}

// float converts a number; an integer beyond a float is Python's
// OverflowError.
func (v Value) float() (float64, error) {
	switch {
	case v.kind == KindFloat:
		return floatFrom(v.num), nil
	case v.flag&flagBig == 0:
		return float64(int64(v.num)), nil
	}
	f, _ := new(big.Float).SetInt(v.bigInt()).Float64()
	if math.IsInf(f, 0) {
		return 0, typeFault("int too large to convert to float")
	}
	return f, nil
}

func floats(op operator, a, b Value) (Value, error) {
	x, err := a.float()
	if err != nil {
		return Value{}, err
	}
	y, err := b.float()
	if err != nil {
		return Value{}, err
	}
	switch op {
	case opAdd:
		return Float(x + y), nil
	case opSub:
		return Float(x - y), nil
	case opMul:
		return Float(x * y), nil
	case opPow:
		return floatPower(x, y)
	}
	if y == 0 {
		return Value{}, typeFault("division by zero")
	}
	if op == opDiv {
		if a.flag|b.flag != 0 || x > 1<<53 || x < -1<<53 || y > 1<<53 || y < -1<<53 {
			return divide(a, b, x, y)
		}
		return Float(x / y), nil
	}
	// As CPython does: the remainder takes the divisor's sign, and the
	// quotient follows from it.
	mod := math.Mod(x, y)
	div := (x - mod) / y
	if mod != 0 {
		if (y < 0) != (mod < 0) {
			mod += y
			div--
		}
	} else {
		mod = math.Copysign(0, y)
	}
	if op == opMod {
		return Float(mod), nil
	}
	if div == 0 {
		return Float(math.Copysign(0, x/y)), nil
	}
	floor := math.Floor(div)
	if div-floor > 0.5 {
		floor++
	}
	return Float(floor), nil
}

// divide is / where converting the integers first would round twice.
func divide(a, b Value, x, y float64) (Value, error) {
	if a.kind == KindFloat || b.kind == KindFloat {
		return Float(x / y), nil
	}
	f, _ := new(big.Rat).SetFrac(a.bigInt(), b.bigInt()).Float64()
	return Float(f), nil
}

func floatPower(x, y float64) (Value, error) {
	if x == 0 && y < 0 {
		return Value{}, typeFault("0.0 cannot be raised to a negative power")
	}
	if x < 0 && y != math.Trunc(y) && !math.IsInf(y, 0) && !math.IsInf(x, 0) {
		return Value{}, fault(CauseUnsupported, "complex numbers")
	}
	z := math.Pow(x, y)
	if math.IsInf(z, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		return Value{}, typeFault("numerical result out of range")
	}
	return Float(z), nil
}
