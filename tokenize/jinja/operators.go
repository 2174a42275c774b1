package jinja

import (
	"math"
	"math/big"
	"math/bits"
	"strings"
)

// maxIntBits bounds integers; Python has no bound, but prints none of them
// beyond 4300 digits.
const maxIntBits = 1 << 15

// typeName is Python's name of v's type.
func typeName(v Value) string {
	switch v.kind {
	case KindUndefined:
		return "Undefined"
	case KindNone:
		return "NoneType"
	case KindBool:
		return "bool"
	case KindInt:
		return "int"
	case KindFloat:
		return "float"
	case KindString:
		return "str"
	case KindList:
		return "list"
	case KindTuple:
		return "tuple"
	case KindDict:
		return "dict"
	case kindIterator:
		return "generator"
	case kindRange:
		return "range"
	case kindView:
		return "dict view"
	case kindNamespace:
		return "Namespace"
	case kindMacro:
		return "Macro"
	case kindLoop:
		return "LoopContext"
	case kindCycler:
		return "Cycler"
	case kindJoiner:
		return "Joiner"
	default:
		return "function"
	}
}

// useUndefined is the error of using a value that is not there.
func (in *interp) useUndefined(v Value) error {
	switch {
	case v.flag&flagSecurity != 0:
		return fault(CauseSecurity, "access to attribute '%s' is unsafe", v.text())
	case v.flag&flagMessage != 0:
		return fault(CauseUndefined, "%s", v.text())
	default:
		return fault(CauseUndefined, "'%s' is undefined", v.text())
	}
}

func (in *interp) badOperand(op string, v Value) error {
	if v.kind == KindUndefined {
		return in.useUndefined(v)
	}
	return typeFault("bad operand type for unary %s: '%s'", op, typeName(v))
}

func (in *interp) badOperands(op operator, a, b Value) error {
	for _, v := range [...]Value{a, b} {
		if v.kind == KindUndefined {
			return in.useUndefined(v)
		}
	}
	return typeFault("unsupported operand types for %s: '%s' and '%s'", op, typeName(a), typeName(b))
}

// truth is Python's bool().
func (v Value) truth() bool {
	switch v.kind {
	case KindUndefined, KindNone:
		return false
	case KindBool, KindString:
		return v.num != 0
	case KindInt:
		return v.num != 0 || v.flag&flagBig != 0
	case KindFloat:
		return floatFrom(v.num) != 0
	case KindList, KindTuple:
		return len((*List)(v.ref).items) > 0
	case KindDict:
		return (*Dict)(v.ref).Len() > 0
	case kindRange:
		return (*pyRange)(v.ref).len() > 0
	case kindView:
		return (*view)(v.ref).dict.Len() > 0
	default:
		return true
	}
}

func (in *interp) negate(v Value) (Value, error) {
	if v.kind == KindFloat {
		return Float(-floatFrom(v.num)), nil
	}
	i, ok := v.asInt()
	if !ok {
		return Value{}, in.badOperand("-", v)
	}
	if x, ok := i.Int64(); ok && x != math.MinInt64 {
		return Int(-x), nil
	}
	return BigInt(new(big.Int).Neg(i.bigInt())), nil
}

// arithmetic is + - * / // % **.
func (in *interp) arithmetic(op operator, a, b Value) (Value, error) {
	if a.isNumber() && b.isNumber() {
		return in.numbers(op, a, b)
	}
	switch {
	case op == opAdd && a.isString() && b.isString():
		return in.addStrings(a, b)
	case op == opAdd && a.kind == b.kind && (a.kind == KindList || a.kind == KindTuple):
		x, y := a.List().items, b.List().items
		if err := in.spend(1 + len(x) + len(y)); err != nil {
			return Value{}, err
		}
		sum := make([]Value, 0, len(x)+len(y))
		v := listOf(append(append(sum, x...), y...))
		v.kind = a.kind
		return v, nil
	case op == opMod && a.isString():
		return in.percent(a, b)
	case op == opMul:
		if n, ok := b.asInt(); ok {
			return in.repeat(a, n)
		}
		if n, ok := a.asInt(); ok {
			return in.repeat(b, n)
		}
	}
	return Value{}, in.badOperands(op, a, b)
}

func (in *interp) addStrings(a, b Value) (Value, error) {
	x, y := a.text(), b.text()
	safe := a.isSafe() || b.isSafe()
	if safe {
		// Markup escapes what is added to it.
		if !a.isSafe() {
			x = escapeHTML(x)
		}
		if !b.isSafe() {
			y = escapeHTML(y)
		}
	}
	if err := in.spendText(len(x) + len(y)); err != nil {
		return Value{}, err
	}
	v := String(x + y)
	if safe {
		v = v.safe()
	}
	return v, nil
}

// repeat is a sequence times a number.
func (in *interp) repeat(v, times Value) (Value, error) {
	var size int
	switch v.kind {
	case KindString:
		size = len(v.text())
	case KindList, KindTuple:
		size = len(v.List().items)
	default:
		return Value{}, in.badOperands(opMul, v, times)
	}
	n, fits := times.Int64()
	if !fits { // too long, unless negative or nothing to repeat
		n = math.MaxInt64
		if times.bigInt().Sign() < 0 {
			n = 0
		}
	}
	if n <= 0 || size == 0 {
		n = 0
	}
	hi, total := bits.Mul64(uint64(n), uint64(size))
	if hi != 0 || total > uint64(in.maxOutput) {
		return Value{}, fault(CauseLimit, "text too long")
	}
	if v.kind == KindString {
		if err := in.spendText(int(total)); err != nil {
			return Value{}, err
		}
		return v.sameSafety(strings.Repeat(v.text(), int(n))), nil
	}
	if err := in.spend(1 + int(total)); err != nil {
		return Value{}, err
	}
	items := make([]Value, 0, int(total))
	for range n {
		items = append(items, v.List().items...)
	}
	r := listOf(items)
	r.kind = v.kind
	return r, nil
}

func (in *interp) numbers(op operator, a, b Value) (Value, error) {
	if a.kind == KindFloat || b.kind == KindFloat || op == opDiv {
		return floats(op, a, b)
	}
	a, _ = a.asInt()
	b, _ = b.asInt()
	if (a.flag|b.flag)&flagBig == 0 {
		if v, ok := smallInts(op, int64(a.num), int64(b.num)); ok {
			return v, nil
		}
	}
	return in.bigInts(op, a.bigInt(), b.bigInt())
}

// smallInts is arithmetic that stays within 64 bits.
func smallInts(op operator, x, y int64) (Value, bool) {
	switch op {
	case opAdd:
		z := x + y
		return Int(z), (x >= 0) != (y >= 0) || (z >= 0) == (x >= 0)
	case opSub:
		z := x - y
		return Int(z), (x >= 0) == (y >= 0) || (z >= 0) == (x >= 0)
	case opMul:
		const half = 1 << 31
		return Int(x * y), x > -half && x < half && y > -half && y < half
	case opFloorDiv, opMod:
		if y == 0 || y == -1 {
			return Value{}, false
		}
		q, r := x/y, x%y
		if r != 0 && (r < 0) != (y < 0) {
			q, r = q-1, r+y
		}
		if op == opMod {
			return Int(r), true
		}
		return Int(q), true
	default:
		return Value{}, false
	}
}

func (in *interp) bigInts(op operator, x, y *big.Int) (Value, error) {
	if err := in.spend(1 + (x.BitLen()+y.BitLen())/64); err != nil {
		return Value{}, err
	}
	z := new(big.Int)
	switch op {
	case opAdd:
		z.Add(x, y)
	case opSub:
		z.Sub(x, y)
	case opMul:
		z.Mul(x, y)
	case opFloorDiv, opMod:
		if y.Sign() == 0 {
			return Value{}, typeFault("division by zero")
		}
		r := new(big.Int)
		z.QuoRem(x, y, r)
		if r.Sign() != 0 && r.Sign() != y.Sign() {
			z.Sub(z, big.NewInt(1))
			r.Add(r, y)
		}
		if op == opMod {
			z = r
		}
	case opPow:
		return intPower(x, y)
	}
	if z.BitLen() > maxIntBits {
		return Value{}, fault(CauseLimit, "integer too long")
	}
	return BigInt(z), nil
}

func intPower(x, y *big.Int) (Value, error) {
	if y.Sign() < 0 {
		return floats(opPow, BigInt(x), BigInt(y))
	}
	if x.BitLen() > 1 {
		if !y.IsInt64() || y.Int64() > maxIntBits || y.Int64()*int64(x.BitLen()-1) > maxIntBits {
			return Value{}, fault(CauseLimit, "integer too long")
		}
	} else if !y.IsInt64() { // 0, 1 and -1 to any power
		y = new(big.Int).And(y, big.NewInt(1))
		if x.Sign() == 0 {
			return Int(0), nil
		}
	}
	return BigInt(new(big.Int).Exp(x, y, nil)), nil
}
