package jinja

import (
	"math"
	"math/big"
	"slices"
	"strconv"
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
	if v.IsUndefined() || b.truth(1, false) && !v.truth() {
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
	start := true
	border := func(r rune) bool { return isSpace(r) || strings.ContainsRune("-({[<", r) }
	for s != "" {
		end := strings.IndexFunc(s, border)
		if start = end != 0; !start {
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
	blank := b.truth(2, false)
	var out strings.Builder
	for i, line := range lines {
		switch {
		case i == 0 && b.truth(1, false), i > 0 && (blank || line != ""):
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

// attrPath is what attribute= names: keys and indexes, one inside the other.
type attrPath []Value

func newAttrPath(v Value) (attrPath, error) {
	switch {
	case v.IsNone():
		return nil, nil
	case v.isString():
		var path attrPath
		for _, part := range strings.Split(v.text(), ".") {
			if i, err := strconv.Atoi(part); err == nil && part[0] != '-' && part[0] != '+' {
				path = append(path, Int(int64(i)))
			} else {
				path = append(path, String(part))
			}
		}
		return path, nil
	case v.kind == KindInt:
		return attrPath{v}, nil
	default:
		return nil, typeFault("attribute must be a string or a number")
	}
}

// get follows the path. otherwise, if given, stands for what is not there.
func (p attrPath) get(in *interp, v Value, otherwise *Value) (Value, error) {
	for _, part := range p {
		var err error
		if v, err = in.item(v, part); err != nil {
			return Value{}, err
		}
		if v.IsUndefined() && otherwise != nil {
			v = *otherwise
		}
	}
	return v, nil
}

// foldCase is how filters compare strings without case.
func foldCase(v Value) Value {
	if v.isString() {
		return String(lower(v.text()))
	}
	return v
}

// sortBy sorts items stably by keys.
func (in *interp) sortBy(items, keys []Value, reverse bool) ([]Value, error) {
	if err := in.spend(4 * len(items)); err != nil {
		return nil, err
	}
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	var failed error
	slices.SortStableFunc(order, func(i, j int) int {
		if failed != nil {
			return 0
		}
		if reverse { // stable, as Python's reverse is
			i, j = j, i
		}
		if failed = in.spend(1); failed != nil {
			return 0
		}
		c, _, err := in.order(opLess, keys[i], keys[j])
		if err != nil {
			failed = err
		}
		return c
	})
	if failed != nil {
		return nil, failed
	}
	sorted := make([]Value, len(items))
	for i, at := range order {
		sorted[i] = items[at]
	}
	return sorted, nil
}
