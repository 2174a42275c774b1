package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// toInt is Python's int(v); ok is false where it raises.
func toInt(v Value, base int) (Value, bool) {
	switch v.kind {
	case KindInt, KindBool:
		return v.asInt()
	case KindFloat:
		f := floatFrom(v.num)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return Value{}, false
		}
		i, _ := big.NewFloat(f).Int(nil)
		return BigInt(i), true
	case KindString:
		s := trimSpace(v.text())
		if len(s) > maxDigits || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
			return Value{}, false
		}
		s = withoutBasePrefix(strings.ReplaceAll(s, "_", ""), base)
		i, ok := new(big.Int).SetString(s, base)
		if !ok {
			return Value{}, false
		}
		return BigInt(i), true
	default:
		return Value{}, false
	}
}

// withoutBasePrefix takes the 0x, 0o or 0b off a number in that base.
func withoutBasePrefix(s string, base int) string {
	digits := strings.TrimLeft(s, "+-")
	sign := s[:len(s)-len(digits)]
	if len(digits) < 3 || len(sign) > 1 || digits[0] != '0' {
		return s
	}
	switch prefix := digits[1] | 0x20; {
	case base == 16 && prefix == 'x', base == 8 && prefix == 'o', base == 2 && prefix == 'b':
		return sign + digits[2:]
	default:
		return s
	}
}

// toFloat is Python's float(v); ok is false where it raises.
func toFloat(v Value) (float64, bool) {
	if v.isString() {
		s := trimSpace(v.text())
		if strings.ContainsAny(s, "xXpP") {
			return 0, false
		}
		f, err := strconv.ParseFloat(s, 64)
		return f, err == nil || math.IsInf(f, 0)
	}
	if !v.isNumber() {
		return 0, false
	}
	f, err := v.float()
	return f, err == nil
}

func filterInt(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("int", 0, "default", "base")
	if err != nil {
		return Value{}, err
	}
	if v.IsUndefined() {
		return Value{}, in.useUndefined(v)
	}
	base := 10
	if n, ok := b.or(1, Int(10)).asInt(); ok {
		base = int(clampInt(n))
	}
	if base < 2 || base > 36 {
		return Value{}, typeFault("int: base must be between 2 and 36")
	}
	if i, ok := toInt(v, base); ok {
		return i, nil
	}
	if f, ok := toFloat(v); ok {
		if i, ok := toInt(Float(f), 10); ok {
			return i, nil
		}
	}
	return b.or(0, Int(0)), nil
}

func filterFloat(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("float", 0, "default")
	if err != nil {
		return Value{}, err
	}
	if v.IsUndefined() {
		return Value{}, in.useUndefined(v)
	}
	if f, ok := toFloat(v); ok {
		return Float(f), nil
	}
	return b.or(0, Float(0)), nil
}

func filterAbs(in *interp, v Value, a args) (Value, error) {
	if !v.isNumber() {
		return Value{}, in.badOperand("abs()", v)
	}
	if v.kind == KindFloat {
		return Float(math.Abs(floatFrom(v.num))), a.none("abs")
	}
	if order, _ := compareNumbers(v, Int(0)); order < 0 {
		return in.negate(v)
	}
	i, _ := v.asInt()
	return i, a.none("abs")
}

func filterRound(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("round", 0, "precision", "method")
	if err != nil {
		return Value{}, err
	}
	p, ok := b.or(0, Int(0)).asInt()
	if !ok || !v.isNumber() {
		return Value{}, in.badOperand("round()", v)
	}
	precision := int(max(-400, min(400, clampInt(p))))
	switch method := b.or(1, String("common")).Str(); method {
	case "common":
		if i, ok := v.asInt(); ok {
			if precision >= 0 {
				return i, nil
			}
			return Value{}, fault(CauseUnsupported, "round of an integer to tens")
		}
		return Float(roundTo(floatFrom(v.num), precision)), nil
	case "ceil", "floor":
		f, err := v.float()
		if err != nil {
			return Value{}, err
		}
		scale := math.Pow(10, float64(precision))
		if method == "ceil" {
			return Float(math.Ceil(f*scale) / scale), nil
		}
		return Float(math.Floor(f*scale) / scale), nil
	default:
		return Value{}, typeFault("round: method must be common, ceil or floor")
	}
}

// roundTo is Python's round: to the nearest decimal, ties to even, decided on
// the exact binary value.
func roundTo(f float64, precision int) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return f
	}
	if precision >= 0 {
		r, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64)
		if err != nil {
			return f
		}
		return r
	}
	scale := math.Pow(10, float64(-precision))
	return math.RoundToEven(f/scale) * scale
}
