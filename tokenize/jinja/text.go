package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
	"unsafe"
)

// ownedString makes a string of bytes nobody changes any more.
func ownedString(b []byte) Value {
	return String(unsafe.String(unsafe.SliceData(b), len(b)))
}

// str is Python's str(v).
func (in *interp) str(v Value) (string, error) {
	switch v.kind {
	case KindString:
		return v.text(), nil
	case KindUndefined:
		return "", nil
	case KindNone:
		return "None", nil
	case KindBool:
		if v.Bool() {
			return "True", nil
		}
		return "False", nil
	case KindInt:
		if i, ok := v.Int64(); ok {
			return strconv.FormatInt(i, 10), nil
		}
	}
	b, err := in.appendText(nil, v)
	return string(b), err
}

// appendText appends Python's str(v).
func (in *interp) appendText(dst []byte, v Value) ([]byte, error) {
	switch v.kind {
	case KindString:
		return append(dst, v.text()...), nil
	case KindUndefined:
		return dst, nil
	default:
		return in.appendRepr(dst, v)
	}
}

// appendRepr appends Python's repr(v).
func (in *interp) appendRepr(dst []byte, v Value) ([]byte, error) {
	if len(dst) > in.base+in.maxOutput {
		return dst, fault(CauseLimit, "text too long")
	}
	switch v.kind {
	case KindUndefined:
		return append(dst, "Undefined"...), nil
	case KindNone:
		return append(dst, "None"...), nil
	case KindBool:
		if v.Bool() {
			return append(dst, "True"...), nil
		}
		return append(dst, "False"...), nil
	case KindInt:
		return appendInt(dst, v)
	case KindFloat:
		return appendFloat(dst, floatFrom(v.num)), nil
	case KindString:
		if err := in.spendText(len(v.text())); err != nil {
			return dst, err
		}
		if v.isSafe() {
			dst = append(dst, "Markup("...)
			return append(appendReprString(dst, v.text()), ')'), nil
		}
		return appendReprString(dst, v.text()), nil
	case KindList, KindTuple, KindDict:
		return in.appendContainer(dst, v)
	case kindView:
		return in.appendView(dst, (*view)(v.ref))
	case kindRange:
		return (*pyRange)(v.ref).appendRepr(dst), nil
	case kindNamespace:
		dst = append(dst, "<Namespace "...)
		dst, err := in.appendContainer(dst, FromDict((*Dict)(v.ref)))
		return append(dst, '>'), err
	default:
		// Python prints an address here, which no prompt can mean.
		return dst, fault(CauseUnsupported, "text of a %s", typeName(v))
	}
}

func (in *interp) appendContainer(dst []byte, v Value) ([]byte, error) {
	if err := in.deeper(); err != nil {
		return dst, err
	}
	defer in.shallower()
	var err error
	if v.kind == KindDict {
		dst = append(dst, '{')
		for i := range v.Dict().entries {
			e := &v.Dict().entries[i]
			if i > 0 {
				dst = append(dst, ", "...)
			}
			if err = in.spend(1); err != nil {
				return dst, err
			}
			if dst, err = in.appendRepr(dst, e.key); err != nil {
				return dst, err
			}
			dst = append(dst, ": "...)
			if dst, err = in.appendRepr(dst, e.value); err != nil {
				return dst, err
			}
		}
		return append(dst, '}'), nil
	}
	open, end := byte('['), byte(']')
	if v.kind == KindTuple {
		open, end = '(', ')'
	}
	dst = append(dst, open)
	items := v.List().items
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if err = in.spend(1); err != nil {
			return dst, err
		}
		if dst, err = in.appendRepr(dst, item); err != nil {
			return dst, err
		}
	}
	if v.kind == KindTuple && len(items) == 1 {
		dst = append(dst, ',')
	}
	return append(dst, end), nil
}

func (in *interp) appendView(dst []byte, w *view) ([]byte, error) {
	name := [...]string{"dict_keys(", "dict_values(", "dict_items("}[w.what]
	seq, err := in.viewSequence(w)
	if err != nil {
		return dst, err
	}
	dst, err = in.appendContainer(append(dst, name...), listOf(seq.all()))
	return append(dst, ')'), err
}

func appendInt(dst []byte, v Value) ([]byte, error) {
	if i, ok := v.Int64(); ok {
		return strconv.AppendInt(dst, i, 10), nil
	}
	before := len(dst)
	dst = v.bigInt().Append(dst, 10)
	if len(dst)-before > maxDigits+1 {
		return dst, typeFault("exceeds the limit (%d digits) for integer string conversion", maxDigits)
	}
	return dst, nil
}

// appendFloat appends Python's repr of a float: the shortest digits that give
// the same float, with an exponent below 1e-4 and from 1e16.
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	before := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if slices.Contains(dst[before:], '.') {
		return dst
	}
	return append(dst, ".0"...)
}

func reprString(s string) string { return string(appendReprString(nil, s)) }

// appendReprString appends Python's repr of a str.
func appendReprString(dst []byte, s string) []byte {
	quote := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		quote = '"'
	}
	dst = append(dst, quote)
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case c == quote || c == '\\':
				dst = append(dst, '\\', c)
			case c == '\n':
				dst = append(dst, `\n`...)
			case c == '\r':
				dst = append(dst, `\r`...)
			case c == '\t':
				dst = append(dst, `\t`...)
			case c < ' ' || c == 0x7f:
				dst = append(dst, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
			default:
				dst = append(dst, c)
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if unicode.IsPrint(r) {
			dst = append(dst, s[i:i+n]...)
		} else {
			dst = appendRuneEscape(dst, r)
		}
		i += n
	}
	return append(dst, quote)
}

const hexDigits = "0123456789abcdef"

// appendRuneEscape appends \x, \u or \U with as many digits as r needs.
func appendRuneEscape(dst []byte, r rune) []byte {
	kind, digits := byte('x'), 2
	switch {
	case r > 0xffff:
		kind, digits = 'U', 8
	case r > 0xff:
		kind, digits = 'u', 4
	}
	dst = append(dst, '\\', kind)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[r>>shift&15])
	}
	return dst
}

// escapeHTML is markupsafe.escape.
func escapeHTML(s string) string {
	if !strings.ContainsAny(s, `&<>"'`) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		switch s[i] {
		case '&':
			b.WriteString("&amp;")
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '"':
			b.WriteString("&#34;")
		case '\'':
			b.WriteString("&#39;")
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
