package jinja

import (
	"strings"
	"unicode/utf8"
)

// filterFunc is a filter: what stands after |.
type filterFunc func(in *interp, v Value, a args) (Value, error)

// filterNamed returns the filter with a name, or nil.
func filterNamed(name string) filterFunc {
	switch name {
	case "tojson":
		return filterToJSON
	case "string":
		return filterString
	case "trim":
		return filterTrim
	case "length", "count":
		return filterLength
	case "default", "d":
		return filterDefault
	case "safe":
		return filterSafe
	case "e", "escape", "forceescape":
		return escapeFilter(name == "forceescape")
	case "upper":
		return caseFilter(upper)
	case "lower":
		return caseFilter(lower)
	case "capitalize":
		return caseFilter(capitalize)
	case "title":
		return caseFilter(titleWords)
	case "replace":
		return filterReplace
	case "indent":
		return filterIndent
	case "center":
		return filterCenter
	case "format":
		return filterFormat
	case "wordcount":
		return filterWordCount
	case "int":
		return filterInt
	case "float":
		return filterFloat
	case "abs":
		return filterAbs
	case "round":
		return filterRound
	case "attr":
		return filterAttr
	case "striptags", "truncate", "wordwrap", "urlencode", "urlize", "xmlattr", "filesizeformat", "pprint", "random":
		return func(*interp, Value, args) (Value, error) {
			return Value{}, fault(CauseUnsupported, "filter '%s' is not supported", name)
		}
	default:
		return listFilter(name)
	}
}

func filterString(in *interp, v Value, a args) (Value, error) {
	if v.isString() {
		return v, a.none("string")
	}
	s, err := in.str(v)
	if err != nil {
		return Value{}, err
	}
	return String(s), a.none("string")
}

// soft is Jinja2's soft_str: a string stays what it is, Markup or not.
func (in *interp) soft(v Value) (Value, error) {
	if v.isString() {
		return v, in.spendText(len(v.text()))
	}
	s, err := in.str(v)
	return String(s), err
}

func filterTrim(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("trim", 0, "chars")
	if err != nil {
		return Value{}, err
	}
	if v, err = in.soft(v); err != nil {
		return Value{}, err
	}
	s, err := strip(v.text(), b.or(0, None()), true, true)
	return v.sameSafety(s), err
}

func filterLength(in *interp, v Value, a args) (Value, error) {
	n := 0
	switch v.kind {
	case KindString:
		n = utf8.RuneCountInString(v.text())
		if err := in.spendText(n); err != nil {
			return Value{}, err
		}
	case KindList, KindTuple:
		n = v.List().Len()
	case KindDict:
		n = v.Dict().Len()
	case kindView:
		n = (*view)(v.ref).dict.Len()
	case kindRange:
		n = (*pyRange)(v.ref).len()
	case kindLoop:
		n = (*loopState)(v.ref).seq.len()
	case KindUndefined:
	default:
		return Value{}, typeFault("object of type '%s' has no len()", typeName(v))
	}
	return Int(int64(n)), a.none("length")
}

func filterDefault(_ *interp, v Value, a args) (Value, error) {
	b, err := a.bind("default", 0, "default_value", "boolean")
	if err != nil {
		return Value{}, err
	}
	if v.IsUndefined() || b.truth(1) && !v.truth() {
		return b.or(0, String("")), nil
	}
	return v, nil
}

func filterSafe(in *interp, v Value, a args) (Value, error) {
	s, err := in.str(v)
	if err != nil {
		return Value{}, err
	}
	return String(s).safe(), a.none("safe")
}

func escapeFilter(force bool) filterFunc {
	return func(in *interp, v Value, a args) (Value, error) {
		if v.isSafe() && !force {
			return v, a.none("escape")
		}
		s, err := in.str(v)
		if err != nil {
			return Value{}, err
		}
		s = escapeHTML(s)
		return String(s).safe(), in.spendText(len(s))
	}
}

func caseFilter(f func(string) string) filterFunc {
	return func(in *interp, v Value, a args) (Value, error) {
		v, err := in.soft(v)
		if err != nil {
			return Value{}, err
		}
		if err := in.spendText(3 * len(v.text())); err != nil {
			return Value{}, err
		}
		return v.sameSafety(f(v.text())), a.none("filter")
	}
}

// titleWords is the title filter, which is not str.title: a word starts after
// white space, a hyphen or an opening bracket.
func titleWords(s string) string {
	var b strings.Builder
	border := func(r rune) bool { return isSpace(r) || strings.ContainsRune("-({[<", r) }
	for s != "" {
		end := strings.IndexFunc(s, border)
		start := end != 0
		if !start {
			end = strings.IndexFunc(s, func(r rune) bool { return !border(r) })
		}
		if end < 0 {
			end = len(s)
		}
		word := s[:end]
		if start {
			_, n := utf8.DecodeRuneInString(word)
			b.WriteString(upper(word[:n]))
			b.WriteString(lower(word[n:]))
		} else {
			b.WriteString(word)
		}
		s = s[end:]
	}
	return b.String()
}

func filterReplace(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("replace", 2, "old", "new", "count")
	if err != nil {
		return Value{}, err
	}
	var text [3]string
	for i, x := range [...]Value{v, b.value[0], b.value[1]} {
		if text[i], err = in.str(x); err != nil {
			return Value{}, err
		}
	}
	limit := -1
	if c := b.or(2, None()); !c.IsNone() {
		n, ok := c.asInt()
		if !ok {
			return Value{}, typeFault("replace: count must be an integer")
		}
		limit = int(clampInt(n))
	}
	s, err := in.replace(text[0], text[1], text[2], limit)
	return String(s), err
}

func filterIndent(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("indent", 0, "width", "first", "blank")
	if err != nil {
		return Value{}, err
	}
	width := b.or(0, Int(4))
	indent := ""
	if width.isString() {
		indent = width.text()
	} else if n, ok := width.asInt(); ok {
		indent = strings.Repeat(" ", int(max(0, min(clampInt(n), 10_000))))
	} else {
		return Value{}, typeFault("indent: width must be a number or a string")
	}
	if !v.isString() {
		return Value{}, in.badOperands(opAdd, v, String(""))
	}
	lines := splitLines(v.text()+"\n", false)
	if err := in.spendText(len(v.text()) + len(lines)*(len(indent)+1)); err != nil {
		return Value{}, err
	}
	blank := b.truth(2)
	var out strings.Builder
	for i, line := range lines {
		switch {
		case i == 0 && b.truth(1), i > 0 && (blank || line != ""):
			if i > 0 {
				out.WriteByte('\n')
			}
			out.WriteString(indent)
		case i > 0:
			out.WriteByte('\n')
		}
		out.WriteString(line)
	}
	return v.sameSafety(out.String()), nil
}

func filterCenter(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("center", 0, "width")
	if err != nil {
		return Value{}, err
	}
	if v, err = in.soft(v); err != nil {
		return Value{}, err
	}
	n, ok := b.or(0, Int(80)).asInt()
	if !ok {
		return Value{}, typeFault("center: width must be an integer")
	}
	s, err := in.pad(v.text(), int(clampInt(n)), " ", "center")
	return v.sameSafety(s), err
}

func filterFormat(in *interp, v Value, a args) (Value, error) {
	if len(a.pos) > 0 && len(a.kw) > 0 {
		return Value{}, typeFault("format: can't handle positional and keyword arguments at the same time")
	}
	v, err := in.soft(v)
	if err != nil {
		return Value{}, err
	}
	if len(a.kw) == 0 {
		return in.percent(v, tuple(append([]Value(nil), a.pos...)...))
	}
	d := NewDict(len(a.kw))
	for _, k := range a.kw {
		d.Set(k.name, k.value)
	}
	return in.percent(v, FromDict(d))
}

func filterWordCount(in *interp, v Value, a args) (Value, error) {
	v, err := in.soft(v)
	if err != nil {
		return Value{}, err
	}
	words := strings.FieldsFunc(v.text(), func(r rune) bool {
		return r != '_' && !isClass("isalnum", string(r))
	})
	return Int(int64(len(words))), a.none("wordcount")
}

func filterAttr(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("attr", 1, "name")
	if err != nil {
		return Value{}, err
	}
	name, err := in.str(b.value[0])
	if err != nil {
		return Value{}, err
	}
	// Attributes only: keys are not looked at.
	if r, ok := attribute(v, name, methodsNamed(name)); ok {
		return r, nil
	}
	return undefinedName(name), nil
}
