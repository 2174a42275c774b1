package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// conversion is one %-conversion, or one format specification of str.format.
type conversion struct {
	fill      string
	align     byte // < > = ^, or 0
	sign      byte // + or blank, or 0
	alternate bool // #
	zero      bool
	group     byte // , or _, or 0
	width     int
	precision int // -1: none
	verb      byte
}

// maxWidth bounds widths and precisions.
const maxWidth = 10_000

// percent is "..." % operand.
func (in *interp) percent(format, operand Value) (Value, error) {
	s := format.text()
	if err := in.spendText(len(s)); err != nil {
		return Value{}, err
	}
	values := []Value{operand}
	if operand.kind == KindTuple {
		values = operand.List().items
	}
	var out []byte
	used := 0
	take := func() (Value, error) {
		if used >= len(values) {
			return Value{}, typeFault("not enough arguments for format string")
		}
		used++
		return values[used-1], nil
	}
	named := false
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			out = append(out, s...)
			break
		}
		out = append(out, s[:i]...)
		s = s[i+1:]
		var key string
		var hasKey bool
		if strings.HasPrefix(s, "(") {
			end := strings.IndexByte(s, ')')
			if end < 0 {
				return Value{}, typeFault("incomplete format key")
			}
			key, hasKey, s = s[1:end], true, s[end+1:]
		}
		c, rest, err := parsePercent(s, take)
		if err != nil {
			return Value{}, err
		}
		s = rest
		if c.verb == '%' {
			out = append(out, '%')
			continue
		}
		var v Value
		if hasKey {
			named = true
			d := operand.Dict()
			if d == nil {
				return Value{}, typeFault("format requires a mapping")
			}
			var ok bool
			if v, ok = d.Get(key); !ok {
				return Value{}, typeFault("key '%s' is missing", key)
			}
		} else if v, err = take(); err != nil {
			return Value{}, err
		}
		before := len(out)
		if out, err = in.appendPercent(out, c, v, format.isSafe()); err != nil {
			return Value{}, err
		}
		if err := in.spendText(len(out) - before); err != nil || len(out) > in.maxOutput {
			return Value{}, fault(CauseLimit, "text too long")
		}
	}
	// Python takes a dict or list for a mapping, which need not be used up.
	mapping := operand.kind == KindDict || operand.kind == KindList
	if used < len(values) && !named && !mapping {
		return Value{}, typeFault("not all arguments converted during string formatting")
	}
	v := ownedString(out)
	v.flag = format.flag & flagSafe
	return v, nil
}

// parsePercent reads flags, width, precision and verb after the %.
func parsePercent(s string, take func() (Value, error)) (conversion, string, error) {
	c := conversion{fill: " ", align: '>', precision: -1}
	for ; s != ""; s = s[1:] {
		switch s[0] {
		case '-':
			c.align = '<'
			continue
		case '+':
			c.sign = '+'
			continue
		case ' ':
			if c.sign == 0 {
				c.sign = ' '
			}
			continue
		case '#':
			c.alternate = true
			continue
		case '0':
			c.zero = true
			continue
		}
		break
	}
	number := func() (int, error) {
		if strings.HasPrefix(s, "*") {
			s = s[1:]
			v, err := take()
			if err != nil {
				return 0, err
			}
			n, ok := v.Int64()
			if !ok || n > maxWidth || n < -maxWidth {
				return 0, typeFault("* wants int")
			}
			return int(n), nil
		}
		n := 0
		for s != "" && s[0] >= '0' && s[0] <= '9' {
			n = min(n*10+int(s[0]-'0'), maxWidth)
			s = s[1:]
		}
		return n, nil
	}
	var err error
	if c.width, err = number(); err != nil {
		return c, s, err
	}
	if c.width < 0 {
		c.align, c.width = '<', -c.width
	}
	if strings.HasPrefix(s, ".") {
		s = s[1:]
		if c.precision, err = number(); err != nil {
			return c, s, err
		}
		c.precision = max(0, c.precision)
	}
	s = strings.TrimLeft(s, "hlL")
	if s == "" {
		return c, s, typeFault("incomplete format")
	}
	c.verb = s[0]
	return c, s[1:], nil
}

func (in *interp) appendPercent(dst []byte, c conversion, v Value, safe bool) ([]byte, error) {
	var text string
	switch c.verb {
	case 's', 'r', 'a':
		var err error
		if text, err = in.converted(v, c.verb); err != nil {
			return dst, err
		}
		if safe && (c.verb != 's' || !v.isSafe()) {
			text = escapeHTML(text)
		}
		text = truncate(text, c.precision)
		c.zero = false
	case 'd', 'i', 'u':
		if v.kind == KindFloat {
			i, ok := toInt(v, 10)
			if !ok {
				return dst, typeFault("cannot convert float to integer")
			}
			v = i
		}
		return appendIntegerSpec(dst, c, v, 'd')
	case 'x', 'X', 'o':
		return appendIntegerSpec(dst, c, v, c.verb)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if !v.isNumber() {
			return dst, typeFault("must be real number, not %s", typeName(v))
		}
		return appendFloatSpec(dst, c, v)
	case 'c':
		switch {
		case v.isString() && utf8.RuneCountInString(v.text()) == 1:
			text = v.text()
		case v.kind == KindInt && v.flag == 0 && utf8.ValidRune(rune(clampInt(v))) && clampInt(v) <= utf8.MaxRune:
			text = string(rune(clampInt(v)))
		default:
			return dst, typeFault("%%c requires int or char")
		}
		c.zero = false
	default:
		return dst, typeFault("unsupported format character '%c'", c.verb)
	}
	return appendPadded(dst, c, "", text), nil
}

// converted is the text of v by the conversion s, r or a.
func (in *interp) converted(v Value, how byte) (string, error) {
	if how == 's' {
		return in.str(v)
	}
	b, err := in.appendRepr(nil, v)
	if err != nil {
		return "", err
	}
	if how == 'r' || isASCII(string(b)) {
		return string(b), nil
	}
	var out []byte
	for _, r := range string(b) {
		if r < utf8.RuneSelf {
			out = append(out, byte(r))
		} else {
			out = appendRuneEscape(out, r)
		}
	}
	return string(out), nil
}

// truncate keeps the first n characters, all if n is negative.
func truncate(s string, n int) string {
	if n < 0 {
		return s
	}
	return s[:runeOffset(s, n)]
}

// appendPadded appends sign or prefix and text, filled up to the width.
func appendPadded(dst []byte, c conversion, prefix, text string) []byte {
	missing := c.width - utf8.RuneCountInString(prefix) - utf8.RuneCountInString(text)
	fill, align := c.fill, c.align
	if c.zero && align != '<' {
		fill, align = "0", '='
	}
	left, middle, right := 0, 0, 0
	if missing > 0 {
		switch align {
		case '<':
			right = missing
		case '=':
			middle = missing
		case '^':
			left = missing / 2
			right = missing - left
		default:
			left = missing
		}
	}
	dst = append(dst, strings.Repeat(fill, left)...)
	dst = append(dst, prefix...)
	dst = append(dst, strings.Repeat(fill, middle)...)
	dst = append(dst, text...)
	return append(dst, strings.Repeat(fill, right)...)
}

func (c *conversion) signOf(negative bool) string {
	switch {
	case negative:
		return "-"
	case c.sign != 0 && c.sign != '-':
		return string(c.sign)
	default:
		return ""
	}
}

func appendIntegerSpec(dst []byte, c conversion, v Value, verb byte) ([]byte, error) {
	i, ok := v.asInt()
	if !ok {
		return dst, typeFault("%%%c format: an integer is required, not %s", verb, typeName(v))
	}
	x := i.bigInt()
	base, prefix := 10, ""
	switch verb {
	case 'x', 'X':
		base, prefix = 16, "0"+string(verb)
	case 'o':
		base, prefix = 8, "0o"
	case 'b':
		base, prefix = 2, "0b"
	}
	digits := new(big.Int).Abs(x).Text(base)
	if base == 10 && len(digits) > maxDigits {
		return dst, typeFault("exceeds the limit (%d digits) for integer string conversion", maxDigits)
	}
	if verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	if c.precision > len(digits) {
		digits = strings.Repeat("0", c.precision-len(digits)) + digits
	}
	every := 3
	if base != 10 {
		every = 4
	}
	digits = groupDigits(digits, c.group, every)
	if !c.alternate {
		prefix = ""
	}
	return appendPadded(dst, c, c.signOf(x.Sign() < 0)+prefix, digits), nil
}

// groupDigits puts a separator between every so many digits before the point.
func groupDigits(s string, sep byte, every int) string {
	if sep == 0 {
		return s
	}
	whole := len(s)
	if i := strings.IndexAny(s, ".e%"); i >= 0 {
		whole = i
	}
	var b []byte
	for i := range whole {
		if i > 0 && (whole-i)%every == 0 {
			b = append(b, sep)
		}
		b = append(b, s[i])
	}
	return string(b) + s[whole:]
}

// appendFloatSpec formats with e, f, g or % and the sign and width of c.
func appendFloatSpec(dst []byte, c conversion, v Value) ([]byte, error) {
	f, err := v.float()
	if err != nil {
		return dst, err
	}
	precision := c.precision
	if precision < 0 {
		precision = 6
	}
	negative := math.Signbit(f) && !math.IsNaN(f)
	abs := math.Abs(f)
	lowered := c.verb | 0x20
	suffix := ""
	if c.verb == '%' {
		lowered, abs, suffix = 'f', abs*100, "%"
	}
	var text string
	switch {
	case math.IsNaN(abs):
		text = "nan"
	case math.IsInf(abs, 0):
		text = "inf"
	case lowered == 'g':
		text = formatG(abs, max(1, precision), c.alternate)
	default:
		text = strconv.FormatFloat(abs, lowered, precision, 64)
		if c.alternate && precision == 0 && lowered == 'f' {
			text += "."
		}
	}
	if c.verb >= 'A' && c.verb <= 'Z' {
		text = strings.ToUpper(text)
	}
	return appendPadded(dst, c, c.signOf(negative), groupDigits(text, c.group, 3)+suffix), nil
}

// formatG is C's %g: an exponent below 1e-4 and from 10^precision, and no
// zeros at the end.
func formatG(f float64, precision int, keepZeros bool) string {
	e := strconv.FormatFloat(f, 'e', precision-1, 64)
	mark := strings.IndexByte(e, 'e')
	exponent, _ := strconv.Atoi(e[mark+1:])
	mantissa, tail := e[:mark], e[mark:]
	if exponent >= -4 && exponent < precision {
		mantissa, tail = strconv.FormatFloat(f, 'f', precision-1-exponent, 64), ""
	}
	if !keepZeros && strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	return mantissa + tail
}
