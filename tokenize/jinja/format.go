package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// strFormat is str.format.
func strFormat(in *interp, self Value, a args) (Value, error) {
	f := formatter{in: in, args: a, safe: self.isSafe()}
	if err := in.spendText(len(self.text())); err != nil {
		return Value{}, err
	}
	if err := f.run(self.text(), 2); err != nil {
		return Value{}, err
	}
	if err := in.spendText(len(f.out)); err != nil {
		return Value{}, err
	}
	v := ownedString(f.out)
	v.flag = self.flag & flagSafe
	return v, nil
}

type formatter struct {
	in     *interp
	args   args
	safe   bool
	out    []byte
	next   int  // of {} fields
	manual bool // {0} was seen
}

// run appends s with its fields replaced. Fields nest depth levels deep: a
// specification may hold fields.
func (f *formatter) run(s string, depth int) error {
	if depth == 0 {
		return typeFault("max string recursion exceeded")
	}
	for {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			f.out = append(f.out, s...)
			return nil
		}
		f.out = append(f.out, s[:i]...)
		c := s[i]
		s = s[i+1:]
		if strings.HasPrefix(s, string(c)) {
			f.out = append(f.out, c)
			s = s[1:]
			continue
		}
		if c == '}' {
			return typeFault("single '}' encountered in format string")
		}
		end := fieldEnd(s)
		if end < 0 {
			return typeFault("expected '}' before end of string")
		}
		if err := f.field(s[:end], depth); err != nil {
			return err
		}
		if len(f.out) > f.in.maxOutput {
			return fault(CauseLimit, "text too long")
		}
		s = s[end+1:]
	}
}

// fieldEnd is the offset of the } that closes a field.
func fieldEnd(s string) int {
	open := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			open++
		case '}':
			if open == 0 {
				return i
			}
			open--
		}
	}
	return -1
}

// field appends one replacement: name!conversion:specification.
func (f *formatter) field(s string, depth int) error {
	name, spec, _ := strings.Cut(s, ":")
	how := byte(0)
	if i := strings.IndexByte(name, '!'); i >= 0 {
		if len(name) != i+2 || strings.IndexByte("sra", name[i+1]) < 0 {
			return typeFault("unknown conversion specifier in format string")
		}
		name, how = name[:i], name[i+1]
	}
	v, err := f.value(name)
	if err != nil {
		return err
	}
	if strings.ContainsAny(spec, "{}") {
		inner := formatter{in: f.in, args: f.args, next: f.next, manual: f.manual}
		if err := inner.run(spec, depth-1); err != nil {
			return err
		}
		f.next = inner.next
		spec = string(inner.out)
	}
	if how != 0 {
		text, err := f.in.converted(v, how)
		if err != nil {
			return err
		}
		v = String(text)
	}
	if f.safe && !v.isSafe() {
		formatted, err := f.in.appendFormatted(nil, v, spec)
		if err != nil {
			return err
		}
		f.out = append(f.out, escapeHTML(string(formatted))...)
		return nil
	}
	f.out, err = f.in.appendFormatted(f.out, v, spec)
	return err
}

// value finds the argument a field names, and follows its .attributes and
// [indexes].
func (f *formatter) value(name string) (Value, error) {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first, path := name[:end], name[end:]
	v, err := f.argument(first)
	if err != nil {
		return Value{}, err
	}
	for path != "" {
		if path[0] == '[' {
			end := strings.IndexByte(path, ']')
			if end < 0 {
				return Value{}, typeFault("missing ']' in format string")
			}
			index := String(path[1:end])
			if i, err := strconv.Atoi(path[1:end]); err == nil {
				index = Int(int64(i))
			}
			v, err = f.in.item(v, index)
			path = path[end+1:]
		} else {
			path = path[1:]
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			v, err = f.in.attr(v, path[:end], methodsNamed(path[:end]))
			path = path[end:]
		}
		if err != nil {
			return Value{}, err
		}
	}
	return v, nil
}

func (f *formatter) argument(name string) (Value, error) {
	index, err := strconv.Atoi(name)
	switch {
	case name == "":
		if f.manual {
			return Value{}, typeFault("cannot switch from manual field specification to automatic field numbering")
		}
		index = f.next
		f.next++
	case err == nil:
		if f.next > 0 {
			return Value{}, typeFault("cannot switch from automatic field numbering to manual field specification")
		}
		f.manual = true
	default:
		for _, k := range f.args.kw {
			if k.name == name {
				return k.value, nil
			}
		}
		return Value{}, typeFault("format: no argument '%s'", name)
	}
	if index < 0 || index >= len(f.args.pos) {
		return Value{}, typeFault("replacement index %d out of range", index)
	}
	return f.args.pos[index], nil
}

// appendFormatted is format(v, spec).
func (in *interp) appendFormatted(dst []byte, v Value, spec string) ([]byte, error) {
	if spec == "" {
		return in.appendText(dst, v)
	}
	c, err := parseSpec(spec)
	if err != nil {
		return dst, err
	}
	switch v.kind {
	case KindString:
		return appendStringSpec(dst, c, v.text())
	case KindInt, KindBool:
		switch c.verb {
		case 0, 'd', 'n':
			if v.kind == KindBool && c.verb == 0 {
				text, err := in.str(v)
				if err != nil {
					return dst, err
				}
				return appendStringSpec(dst, c, text)
			}
			return appendIntegerSpec(dst, c.right(), v, 'd')
		case 'b', 'o', 'x', 'X':
			return appendIntegerSpec(dst, c.right(), v, c.verb)
		case 'e', 'E', 'f', 'F', 'g', 'G', '%':
			return appendFloatSpec(dst, c.right(), v)
		}
	case KindFloat:
		switch c.verb {
		case 0:
			return appendPlainFloat(dst, c.right(), v)
		case 'e', 'E', 'f', 'F', 'g', 'G', 'n', '%':
			if c.verb == 'n' {
				c.verb = 'g'
			}
			return appendFloatSpec(dst, c.right(), v)
		}
	case KindUndefined:
		return appendStringSpec(dst, c, "")
	default:
		return dst, typeFault("unsupported format string passed to %s.__format__", typeName(v))
	}
	return dst, typeFault("unknown format code '%c' for object of type '%s'", c.verb, typeName(v))
}

// right is the default alignment of numbers.
func (c conversion) right() conversion {
	if c.align == 0 {
		c.align = '>'
	} else {
		c.zero = false
	}
	return c
}

// appendPlainFloat is a float without a verb: repr, or g with a digit after
// the point.
func appendPlainFloat(dst []byte, c conversion, v Value) ([]byte, error) {
	if c.precision >= 0 {
		c.verb = 'g'
		return appendFloatSpec(dst, c, v)
	}
	text := string(appendFloat(nil, floatFrom(v.num)))
	negative := strings.HasPrefix(text, "-")
	text = groupDigits(strings.TrimPrefix(text, "-"), c.group, 3)
	return appendPadded(dst, c, c.signOf(negative), text), nil
}

func appendStringSpec(dst []byte, c conversion, s string) ([]byte, error) {
	if c.verb != 0 && c.verb != 's' || c.sign != 0 || c.group != 0 || c.align == '=' {
		return dst, typeFault("format specification does not fit a string")
	}
	if c.align == 0 {
		c.align = '<'
		if c.zero {
			c.fill = "0"
		}
	}
	c.zero = false
	return appendPadded(dst, c, "", truncate(s, c.precision)), nil
}

// parseSpec reads [[fill]align][sign][#][0][width][,][.precision][verb].
func parseSpec(s string) (conversion, error) {
	c := conversion{fill: " ", precision: -1}
	const aligns = "<>=^"
	if _, n := utf8.DecodeRuneInString(s); n < len(s) && strings.IndexByte(aligns, s[n]) >= 0 {
		c.fill, c.align, s = s[:n], s[n], s[n+1:]
	} else if s != "" && strings.IndexByte(aligns, s[0]) >= 0 {
		c.align, s = s[0], s[1:]
	}
	if s != "" && strings.IndexByte("+- ", s[0]) >= 0 {
		c.sign, s = s[0], s[1:]
	}
	if strings.HasPrefix(s, "#") {
		c.alternate, s = true, s[1:]
	}
	if strings.HasPrefix(s, "0") {
		c.zero, s = true, s[1:]
	}
	number := func() (n int, found bool) {
		for s != "" && s[0] >= '0' && s[0] <= '9' {
			n = min(n*10+int(s[0]-'0'), maxWidth)
			s, found = s[1:], true
		}
		return n, found
	}
	c.width, _ = number()
	if s != "" && (s[0] == ',' || s[0] == '_') {
		c.group, s = s[0], s[1:]
	}
	if strings.HasPrefix(s, ".") {
		s = s[1:]
		n, found := number()
		if !found {
			return c, typeFault("format specifier missing precision")
		}
		c.precision = n
	}
	if len(s) > 1 {
		return c, typeFault("invalid format specifier")
	}
	if s != "" {
		c.verb = s[0]
	}
	return c, nil
}
