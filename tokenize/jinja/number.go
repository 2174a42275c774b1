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
