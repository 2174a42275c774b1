package jinja

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxNesting bounds arrays and objects within each other. Python's decoder
	// gives up at about a thousand.
	maxNesting = 900
	// maxDigits is the longest integer Python converts to or from text.
	maxDigits = 4300
)

// DecodeJSON reads one JSON document as Python's json.loads does: objects keep
// their order, a repeated key keeps its first place and its last value,
// integers are exact at any size, and 1 and 1.0 stay different. NaN, Infinity
// and -Infinity are numbers. Text that is not valid UTF-8 and lone surrogates
// are errors. The result does not refer to data.
func DecodeJSON(data []byte) (Value, error) {
	if !utf8.Valid(data) {
		return Value{}, errors.New("jinja: json: not valid UTF-8")
	}
	d := decoder{src: string(data)}
	d.space()
	v, err := d.value(0)
	if err == nil {
		if d.space(); d.pos < len(d.src) {
			err = d.fail("text after the document")
		}
	}
	if err != nil {
		return Value{}, err
	}
	return v, nil
}

// decoder walks src once. Elements gather on stacks, so that each list and
// dict is allocated once at its final size.
type decoder struct {
	src     string
	pos     int
	values  []Value
	entries []entry
	dicts   []Dict // allocated by the chunk
	lists   []List
}

func (d *decoder) fail(reason string) error {
	return fmt.Errorf("jinja: json: offset %d: %s", d.pos, reason)
}

func (d *decoder) space() {
	for d.pos < len(d.src) {
		switch d.src[d.pos] {
		case ' ', '\t', '\n', '\r':
			d.pos++
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end.
func (d *decoder) peek() byte {
	if d.pos < len(d.src) {
		return d.src[d.pos]
	}
	return 0
}

func (d *decoder) value(depth int) (Value, error) {
	if depth > maxNesting {
		return Value{}, d.fail("nested too deep")
	}
	switch c := d.peek(); c {
	case '{':
		return d.object(depth)
	case '[':
		return d.array(depth)
	case '"':
		s, err := d.string()
		return String(s), err
	case 't':
		return d.word("true", Bool(true))
	case 'f':
		return d.word("false", Bool(false))
	case 'n':
		return d.word("null", None())
	case 'N':
		return d.word("NaN", Float(math.NaN()))
	case 'I':
		return d.word("Infinity", Float(math.Inf(1)))
	default:
		if c == '-' || c >= '0' && c <= '9' {
			return d.number()
		}
		return Value{}, d.fail("not a value")
	}
}

func (d *decoder) word(w string, v Value) (Value, error) {
	if !strings.HasPrefix(d.src[d.pos:], w) {
		return Value{}, d.fail("not a value")
	}
	d.pos += len(w)
	return v, nil
}

func (d *decoder) array(depth int) (Value, error) {
	base := len(d.values)
	d.pos++
	d.space()
	if d.peek() == ']' {
		d.pos++
		return d.list(nil), nil
	}
	for {
		v, err := d.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		d.values = append(d.values, v)
		d.space()
		switch d.peek() {
		case ',':
			d.pos++
			d.space()
		case ']':
			d.pos++
			items := append(make([]Value, 0, len(d.values)-base), d.values[base:]...)
			d.values = d.values[:base]
			return d.list(items), nil
		default:
			return Value{}, d.fail("expected , or ]")
		}
	}
}

func (d *decoder) object(depth int) (Value, error) {
	base := len(d.entries)
	d.pos++
	d.space()
	if d.peek() == '}' {
		d.pos++
		return d.dict(nil), nil
	}
	for {
		if d.peek() != '"' {
			return Value{}, d.fail("expected a key")
		}
		key, err := d.string()
		if err != nil {
			return Value{}, err
		}
		d.space()
		if d.peek() != ':' {
			return Value{}, d.fail("expected :")
		}
		d.pos++
		d.space()
		v, err := d.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		d.entries = append(d.entries, entry{String(key), v})
		d.space()
		switch d.peek() {
		case ',':
			d.pos++
			d.space()
		case '}':
			d.pos++
			v := d.dict(d.entries[base:])
			d.entries = d.entries[:base]
			return v, nil
		default:
			return Value{}, d.fail("expected , or }")
		}
	}
}

func (d *decoder) list(items []Value) Value {
	if len(d.lists) == 0 {
		d.lists = make([]List, 16)
	}
	l := &d.lists[0]
	d.lists = d.lists[1:]
	l.items = items
	return FromList(l)
}

func (d *decoder) dict(entries []entry) Value {
	if len(d.dicts) == 0 {
		d.dicts = make([]Dict, 16)
	}
	m := &d.dicts[0]
	d.dicts = d.dicts[1:]
	m.entries = make([]entry, 0, len(entries))
	for _, e := range entries {
		m.Set(e.key.text(), e.value)
	}
	return FromDict(m)
}

func (d *decoder) number() (Value, error) {
	start := d.pos
	if d.peek() == '-' {
		d.pos++
		if d.peek() == 'I' {
			return d.word("Infinity", Float(math.Inf(-1)))
		}
	}
	digits := d.digits()
	if digits == 0 || digits > 1 && d.src[d.pos-digits] == '0' {
		return Value{}, d.fail("not a number")
	}
	integer := true
	if d.peek() == '.' {
		integer = false
		d.pos++
		if d.digits() == 0 {
			return Value{}, d.fail("not a number")
		}
	}
	if c := d.peek(); c == 'e' || c == 'E' {
		integer = false
		d.pos++
		if c := d.peek(); c == '+' || c == '-' {
			d.pos++
		}
		if d.digits() == 0 {
			return Value{}, d.fail("not a number")
		}
	}
	text := d.src[start:d.pos]
	if !integer {
		// Out of range is infinity, as in Python.
		f, err := strconv.ParseFloat(text, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return Value{}, d.fail("not a number")
		}
		return Float(f), nil
	}
	if digits > maxDigits {
		return Value{}, d.fail("integer too long")
	}
	return parseInt(text, 10), nil
}

func (d *decoder) digits() int {
	start := d.pos
	for d.pos < len(d.src) && d.src[d.pos] >= '0' && d.src[d.pos] <= '9' {
		d.pos++
	}
	return d.pos - start
}

// parseInt reads a well formed integer of any size.
func parseInt(text string, base int) Value {
	if i, err := strconv.ParseInt(text, base, 64); err == nil {
		return Int(i)
	}
	b, ok := new(big.Int).SetString(text, base)
	if !ok {
		return Value{}
	}
	return BigInt(b)
}

// string reads a JSON string; one without escapes is a slice of src.
func (d *decoder) string() (string, error) {
	d.pos++
	start := d.pos
	d.pos += plainText(d.src[start:])
	switch d.peek() {
	case '"':
		s := d.src[start:d.pos]
		d.pos++
		return s, nil
	case '\\':
		return d.escaped(start)
	default:
		return "", d.fail("string without end, or a control character in it")
	}
}

// plainText returns how many bytes at the start of s are neither a quote, nor
// a backslash, nor a control character. It looks at eight bytes at a time.
func plainText(s string) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x80 * ones
	)
	i := 0
	for ; i+8 <= len(s); i += 8 {
		x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		quote, slash := x^'"'*ones, x^'\\'*ones
		// The high bit of the first byte that is below the subtrahend is set;
		// bits above it may be wrong.
		found := ((quote-ones)&^quote | (slash-ones)&^slash | (x-' '*ones)&^x) & highs
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c == '"' || c == '\\' || c < ' ' {
			break
		}
	}
	return i
}

// escaped reads the rest of a string whose first escape is at pos.
func (d *decoder) escaped(start int) (string, error) {
	var b strings.Builder
	for {
		b.WriteString(d.src[start:d.pos])
		switch d.peek() {
		case '"':
			d.pos++
			return b.String(), nil
		case '\\':
			r, err := d.escape()
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
			start = d.pos
			d.pos += plainText(d.src[start:])
		default:
			return "", d.fail("string without end, or a control character in it")
		}
	}
}

func (d *decoder) escape() (rune, error) {
	if d.pos+1 >= len(d.src) {
		return 0, d.fail("string without end")
	}
	c := d.src[d.pos+1]
	d.pos += 2
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		r, ok := d.hex4()
		if !ok {
			return 0, d.fail("bad \\u escape")
		}
		if !utf16.IsSurrogate(r) {
			return r, nil
		}
		if strings.HasPrefix(d.src[d.pos:], `\u`) {
			d.pos += 2
			if low, ok := d.hex4(); ok {
				if p := utf16.DecodeRune(r, low); p != utf8.RuneError {
					return p, nil
				}
			}
		}
		return 0, d.fail("lone surrogate")
	default:
		return 0, d.fail("unknown escape")
	}
}

func (d *decoder) hex4() (rune, bool) {
	if d.pos+4 > len(d.src) {
		return 0, false
	}
	var r rune
	for _, c := range []byte(d.src[d.pos : d.pos+4]) {
		x := unhex(c)
		if x < 0 {
			return 0, false
		}
		r = r<<4 | rune(x)
	}
	d.pos += 4
	return r, true
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	default:
		return -1
	}
}
