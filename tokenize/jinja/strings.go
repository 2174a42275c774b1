package jinja

import (
	"strings"
	"unicode/utf8"
)

// stringMethod returns the method of str with a name, or nil.
func stringMethod(name string) builtinFunc {
	switch name {
	case "strip":
		return stripMethod(true, true)
	case "lstrip":
		return stripMethod(true, false)
	case "rstrip":
		return stripMethod(false, true)
	case "split":
		return strSplit
	case "rsplit":
		return strRSplit
	case "splitlines":
		return strSplitLines
	case "partition":
		return partitionMethod(strings.Index, false)
	case "rpartition":
		return partitionMethod(strings.LastIndex, true)
	case "startswith":
		return affixMethod(name, strings.HasPrefix)
	case "endswith":
		return affixMethod(name, strings.HasSuffix)
	case "removeprefix":
		return removeMethod(name, strings.TrimPrefix)
	case "removesuffix":
		return removeMethod(name, strings.TrimSuffix)
	case "find":
		return findMethod(name, strings.Index, false)
	case "rfind":
		return findMethod(name, strings.LastIndex, false)
	case "index":
		return findMethod(name, strings.Index, true)
	case "rindex":
		return findMethod(name, strings.LastIndex, true)
	case "count":
		return strCount
	case "replace":
		return strReplace
	case "join":
		return strJoin
	case "format":
		return strFormat
	case "upper":
		return mapMethod(name, upper)
	case "lower":
		return mapMethod(name, lower)
	case "casefold":
		return mapMethod(name, casefold)
	case "title":
		return mapMethod(name, title)
	case "capitalize":
		return mapMethod(name, capitalize)
	case "swapcase":
		return mapMethod(name, swapcase)
	case "center", "ljust", "rjust":
		return padMethod(name)
	case "zfill":
		return strZfill
	case "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper":
		return classMethod(name)
	default:
		return nil
	}
}

func stripMethod(left, right bool) builtinFunc {
	return func(in *interp, self Value, a args) (Value, error) {
		s := self.text()
		if err := in.spendText(len(s)); err != nil {
			return Value{}, err
		}
		if len(a.kw) > 0 || len(a.pos) > 1 {
			return Value{}, typeFault("strip() takes at most one argument")
		}
		chars := None()
		if len(a.pos) == 1 {
			chars = a.pos[0]
		}
		s, err := strip(s, chars, left, right)
		return self.sameSafety(s), err
	}
}

// strip removes white space, or the characters of a string, from the ends.
func strip(s string, chars Value, left, right bool) (string, error) {
	cut := isSpace
	switch {
	case chars.isString():
		set := chars.text()
		cut = func(r rune) bool { return strings.ContainsRune(set, r) }
	case !chars.IsNone():
		return "", typeFault("strip arg must be None or str")
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s, nil
}

func affixMethod(function string, has func(s, affix string) bool) builtinFunc {
	return func(in *interp, self Value, a args) (Value, error) {
		b, err := a.bind(function, 1, "affix", "start", "end")
		if err != nil {
			return Value{}, err
		}
		s, ok, err := in.window(self.text(), b.or(1, None()), b.or(2, None()))
		if err != nil {
			return Value{}, err
		}
		affixes := []Value{b.value[0]}
		if b.value[0].kind == KindTuple {
			affixes = b.value[0].List().items
		}
		for _, affix := range affixes {
			if !affix.isString() {
				return Value{}, typeFault("%s first arg must be str or a tuple of str, not %s", function, typeName(affix))
			}
			if ok && has(s, affix.text()) {
				return Bool(true), nil
			}
		}
		return Bool(false), nil
	}
}

// window is the part of s that start and end select; ok is false when start
// lies past the end.
func (in *interp) window(s string, start, end Value) (part string, ok bool, err error) {
	if start.IsNone() && end.IsNone() {
		return s, true, nil
	}
	if err := in.spendText(len(s)); err != nil {
		return "", false, err
	}
	n := int64(utf8.RuneCountInString(s))
	bounds := [2]int64{0, n}
	for i, v := range [...]Value{start, end} {
		if v.IsNone() {
			continue
		}
		x, isInt := v.asInt()
		if !isInt {
			return "", false, typeFault("slice indices must be integers or None")
		}
		bounds[i] = clampInt(x)
		if bounds[i] < 0 {
			bounds[i] = max(0, bounds[i]+n)
		}
	}
	lo, hi := bounds[0], min(bounds[1], n)
	if lo > n || lo > hi {
		return "", false, nil
	}
	from := runeOffset(s, int(lo))
	return s[from : from+runeOffset(s[from:], int(hi-lo))], true, nil
}

func removeMethod(function string, trim func(s, affix string) string) builtinFunc {
	return func(_ *interp, self Value, a args) (Value, error) {
		b, err := a.bind(function, 1, "affix")
		if err != nil {
			return Value{}, err
		}
		if !b.value[0].isString() {
			return Value{}, typeFault("%s() argument must be str, not %s", function, typeName(b.value[0]))
		}
		return self.sameSafety(trim(self.text(), b.value[0].text())), nil
	}
}

func findMethod(function string, index func(s, sub string) int, must bool) builtinFunc {
	return func(in *interp, self Value, a args) (Value, error) {
		b, err := a.bind(function, 1, "sub", "start", "end")
		if err != nil {
			return Value{}, err
		}
		if !b.value[0].isString() {
			return Value{}, typeFault("%s() needs a str, not %s", function, typeName(b.value[0]))
		}
		s := self.text()
		if err := in.spendText(len(s)); err != nil {
			return Value{}, err
		}
		part, ok, err := in.window(s, b.or(1, None()), b.or(2, None()))
		if err != nil {
			return Value{}, err
		}
		at := -1
		if ok {
			at = index(part, b.value[0].text())
		}
		if at < 0 {
			if must {
				return Value{}, typeFault("substring not found")
			}
			return Int(-1), nil
		}
		skipped := 0
		if b.given[1] && !b.value[1].IsNone() {
			n, _ := b.value[1].asInt()
			skipped = int(clampInt(n))
			if skipped < 0 {
				skipped = max(0, skipped+utf8.RuneCountInString(s))
			}
		}
		return Int(int64(skipped + utf8.RuneCountInString(part[:at]))), nil
	}
}

func strCount(in *interp, self Value, a args) (Value, error) {
	b, err := a.bind("count", 1, "sub", "start", "end")
	if err != nil {
		return Value{}, err
	}
	if !b.value[0].isString() {
		return Value{}, typeFault("count() needs a str, not %s", typeName(b.value[0]))
	}
	if err := in.spendText(len(self.text())); err != nil {
		return Value{}, err
	}
	part, ok, err := in.window(self.text(), b.or(1, None()), b.or(2, None()))
	if err != nil || !ok {
		return Int(0), err
	}
	return Int(int64(strings.Count(part, b.value[0].text()))), nil
}

func strReplace(in *interp, self Value, a args) (Value, error) {
	b, err := a.bind("replace", 2, "old", "new", "count")
	if err != nil {
		return Value{}, err
	}
	from, to := b.value[0], b.value[1]
	if !from.isString() || !to.isString() {
		return Value{}, typeFault("replace() arguments must be str")
	}
	limit, ok := b.or(2, Int(-1)).asInt()
	if !ok {
		return Value{}, typeFault("replace() count must be an integer")
	}
	text := to.text()
	if self.isSafe() && !to.isSafe() {
		text = escapeHTML(text)
	}
	s, err := in.replace(self.text(), from.text(), text, int(clampInt(limit)))
	return self.sameSafety(s), err
}

// replace is str.replace within the limits.
func (in *interp) replace(s, from, to string, limit int) (string, error) {
	if err := in.spendText(len(s)); err != nil {
		return "", err
	}
	n := strings.Count(s, from)
	if limit >= 0 {
		n = min(n, limit)
	}
	if n == 0 {
		return s, nil
	}
	if grow := len(to) - len(from); grow > 0 && n > in.maxOutput/grow {
		return "", fault(CauseLimit, "text too long")
	}
	if err := in.spendText(len(s) + n*(len(to)-len(from))); err != nil {
		return "", err
	}
	return strings.Replace(s, from, to, n), nil
}

func strJoin(in *interp, self Value, a args) (Value, error) {
	b, err := a.bind("join", 1, "iterable")
	if err != nil {
		return Value{}, err
	}
	seq, err := in.sequence(b.value[0])
	if err != nil {
		return Value{}, err
	}
	base := len(in.parts)
	defer func() { in.parts = in.parts[:base] }()
	total := 0
	for i := range seq.len() {
		v := seq.at(i)
		if !v.isString() {
			return Value{}, typeFault("sequence item %d: expected str instance, %s found", i, typeName(v))
		}
		s := v.text()
		if self.isSafe() && !v.isSafe() {
			s = escapeHTML(s)
		}
		if i > 0 {
			in.parts = append(in.parts, self.text())
			total += len(self.text())
		}
		in.parts = append(in.parts, s)
		if total += len(s); total > in.maxOutput {
			return Value{}, fault(CauseLimit, "text too long")
		}
	}
	v, err := in.joined(in.parts[base:], total)
	v.flag = self.flag & flagSafe
	return v, err
}
