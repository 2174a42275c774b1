package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonWriter writes a value as Python's json.dumps does.
type jsonWriter struct {
	in       *interp
	dst      []byte
	ascii    bool   // \u for everything beyond ASCII
	indented bool   // one element a line
	indent   string // for each level
	itemSep  string
	keySep   string
	sortKeys bool
	level    int
}

// filterToJSON is the tojson filter of transformers: json.dumps without HTML
// escapes, and with ensure_ascii off.
func filterToJSON(in *interp, v Value, a args) (Value, error) {
	w := jsonWriter{in: in, itemSep: ", ", keySep: ": "}
	if len(a.pos)+len(a.kw) > 0 {
		if err := w.options(a); err != nil {
			return Value{}, err
		}
	}
	if err := w.write(v); err != nil {
		return Value{}, err
	}
	if err := in.spendText(len(w.dst)); err != nil {
		return Value{}, err
	}
	return ownedString(w.dst), nil
}

func (w *jsonWriter) options(a args) error {
	b, err := a.bind("tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return err
	}
	w.ascii = b.truth(0)
	w.sortKeys = b.truth(3)
	if indent := b.or(1, None()); !indent.IsNone() {
		w.indented = true
		w.itemSep = ","
		if n, ok := indent.asInt(); ok {
			w.indent = strings.Repeat(" ", int(max(0, min(clampInt(n), 1000))))
		} else if indent.isString() {
			w.indent = indent.text()
		} else {
			return typeFault("tojson: indent must be a number or a string")
		}
	}
	if seps := b.or(2, None()); !seps.IsNone() {
		seq, err := w.in.sequence(seps)
		if err != nil {
			return err
		}
		if seq.len() != 2 || !seq.at(0).isString() || !seq.at(1).isString() {
			return typeFault("tojson: separators must be two strings")
		}
		w.itemSep, w.keySep = seq.at(0).text(), seq.at(1).text()
	}
	return nil
}

func (w *jsonWriter) write(v Value) error {
	if err := w.in.spend(1); err != nil {
		return err
	}
	if len(w.dst) > w.in.maxOutput {
		return fault(CauseLimit, "text too long")
	}
	switch v.kind {
	case KindNone:
		w.dst = append(w.dst, "null"...)
	case KindBool:
		w.dst = strconv.AppendBool(w.dst, v.Bool())
	case KindInt:
		var err error
		w.dst, err = appendInt(w.dst, v)
		return err
	case KindFloat:
		w.dst = appendJSONFloat(w.dst, floatFrom(v.num))
	case KindString:
		w.string(v.text())
	case KindList, KindTuple:
		return w.list(v.List().items)
	case KindDict:
		return w.dict(v.Dict())
	default:
		return typeFault("object of type %s is not JSON serializable", typeName(v))
	}
	return nil
}

func appendJSONFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	return appendFloat(dst, f)
}

// open and end write the brackets with their line breaks.
func (w *jsonWriter) open(c byte) error {
	if err := w.in.deeper(); err != nil {
		return err
	}
	w.dst = append(w.dst, c)
	if w.indented {
		w.level++
		w.newline()
	}
	return nil
}

func (w *jsonWriter) end(c byte) {
	w.in.shallower()
	if w.indented {
		w.level--
		w.newline()
	}
	w.dst = append(w.dst, c)
}

func (w *jsonWriter) separate() {
	w.dst = append(w.dst, w.itemSep...)
	if w.indented {
		w.newline()
	}
}

func (w *jsonWriter) newline() {
	w.dst = append(w.dst, '\n')
	for range w.level {
		w.dst = append(w.dst, w.indent...)
	}
}

func (w *jsonWriter) list(items []Value) error {
	if len(items) == 0 {
		w.dst = append(w.dst, "[]"...)
		return nil
	}
	if err := w.open('['); err != nil {
		return err
	}
	for i, item := range items {
		if i > 0 {
			w.separate()
		}
		if err := w.write(item); err != nil {
			return err
		}
	}
	w.end(']')
	return nil
}

func (w *jsonWriter) dict(d *Dict) error {
	if d.Len() == 0 {
		w.dst = append(w.dst, "{}"...)
		return nil
	}
	entries := d.entries
	if w.sortKeys {
		var err error
		if entries, err = w.sorted(entries); err != nil {
			return err
		}
	}
	if err := w.open('{'); err != nil {
		return err
	}
	for i := range entries {
		if i > 0 {
			w.separate()
		}
		if err := w.key(entries[i].key); err != nil {
			return err
		}
		w.dst = append(w.dst, w.keySep...)
		if err := w.write(entries[i].value); err != nil {
			return err
		}
	}
	w.end('}')
	return nil
}

func (w *jsonWriter) sorted(entries []entry) ([]entry, error) {
	if err := w.in.spend(4 * len(entries)); err != nil {
		return nil, err
	}
	entries = slices.Clone(entries)
	var failed error
	slices.SortStableFunc(entries, func(a, b entry) int {
		order, _, err := w.in.order(opLess, a.key, b.key)
		if err != nil {
			failed = err
		}
		return order
	})
	return entries, failed
}

// key writes a key: JSON has only strings.
func (w *jsonWriter) key(k Value) error {
	switch k.kind {
	case KindString:
		w.string(k.text())
		return nil
	case KindNone, KindBool, KindInt, KindFloat:
		w.dst = append(w.dst, '"')
		if err := w.write(k); err != nil {
			return err
		}
		w.dst = append(w.dst, '"')
		return nil
	default:
		return typeFault("keys must be str, int, float, bool or None, not %s", typeName(k))
	}
}

func (w *jsonWriter) string(s string) {
	dst := append(w.dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && (c < 0x7f || !w.ascii) {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = appendJSONRune(dst, r)
			i += n
			start = i
			continue
		}
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\b':
			dst = append(dst, `\b`...)
		default:
			dst = appendJSONRune(dst, rune(c))
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	w.dst = append(dst, '"')
}

// appendJSONRune appends \u and four digits, twice beyond 16 bits.
func appendJSONRune(dst []byte, r rune) []byte {
	if r > 0xffff {
		high, low := utf16.EncodeRune(r)
		return appendJSONRune(appendJSONRune(dst, high), low)
	}
	return append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// EncodeJSON returns v as Python's json.dumps does: one line, escapes for
// everything beyond ASCII. The error is an *Error: undefined has no JSON.
func EncodeJSON(v Value) (string, error) {
	in := &interp{}
	in.start(&Template{}, nil, NewDict(0), Options{})
	w := jsonWriter{in: in, itemSep: ", ", keySep: ": ", ascii: true}
	if err := w.write(v); err != nil {
		return "", err
	}
	return string(w.dst), nil
}
