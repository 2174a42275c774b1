package jinja

import (
	"strings"
	"unicode/utf8"
)

// splitArgs reads (sep=None, maxsplit=-1).
func splitArgs(in *interp, self Value, function string, a args) (sep Value, limit int, err error) {
	b, err := a.bind(function, 0, "sep", "maxsplit")
	if err != nil {
		return Value{}, 0, err
	}
	sep = b.or(0, None())
	if !sep.IsNone() && !sep.isString() {
		return Value{}, 0, typeFault("must be str or None, not %s", typeName(sep))
	}
	if sep.isString() && sep.text() == "" {
		return Value{}, 0, typeFault("empty separator")
	}
	n, ok := b.or(1, Int(-1)).asInt()
	if !ok {
		return Value{}, 0, typeFault("%s() maxsplit must be an integer", function)
	}
	limit = int(clampInt(n))
	if limit < 0 {
		limit = len(self.text()) + 1
	}
	return sep, limit, in.spendText(len(self.text()))
}

func (in *interp) stringList(self Value, parts []string) (Value, error) {
	if err := in.spend(len(parts)); err != nil {
		return Value{}, err
	}
	items := make([]Value, len(parts))
	for i, s := range parts {
		items[i] = self.sameSafety(s)
	}
	return listOf(items), nil
}

func strSplit(in *interp, self Value, a args) (Value, error) {
	sep, limit, err := splitArgs(in, self, "split", a)
	if err != nil {
		return Value{}, err
	}
	if sep.isString() {
		return in.stringList(self, strings.SplitN(self.text(), sep.text(), limit+1))
	}
	var parts []string
	s := trimLeftSpace(self.text())
	for s != "" {
		end := strings.IndexFunc(s, isSpace)
		switch {
		case len(parts) == limit:
			return in.stringList(self, append(parts, s))
		case end < 0:
			end = len(s)
		}
		parts = append(parts, s[:end])
		s = trimLeftSpace(s[end:])
	}
	return in.stringList(self, parts)
}

func strRSplit(in *interp, self Value, a args) (Value, error) {
	sep, limit, err := splitArgs(in, self, "rsplit", a)
	if err != nil {
		return Value{}, err
	}
	s := self.text()
	var parts []string // from the right
	if sep.isString() {
		for len(parts) < limit {
			at := strings.LastIndex(s, sep.text())
			if at < 0 {
				break
			}
			parts = append(parts, s[at+len(sep.text()):])
			s = s[:at]
		}
		parts = append(parts, s)
	} else {
		for s = trimRightSpace(s); s != ""; s = trimRightSpace(s) {
			at := strings.LastIndexFunc(s, isSpace)
			if at < 0 || len(parts) == limit {
				parts = append(parts, s)
				break
			}
			_, n := utf8.DecodeRuneInString(s[at:])
			parts = append(parts, s[at+n:])
			s = s[:at]
		}
	}
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return in.stringList(self, parts)
}

func strSplitLines(in *interp, self Value, a args) (Value, error) {
	b, err := a.bind("splitlines", 0, "keepends")
	if err != nil {
		return Value{}, err
	}
	if err := in.spendText(len(self.text())); err != nil {
		return Value{}, err
	}
	return in.stringList(self, splitLines(self.text(), b.truth(0)))
}

// splitLines cuts at every line border Python knows.
func splitLines(s string, keep bool) []string {
	var lines []string
	for s != "" {
		end := strings.IndexFunc(s, isLineBorder)
		if end < 0 {
			return append(lines, s)
		}
		_, n := utf8.DecodeRuneInString(s[end:])
		if strings.HasPrefix(s[end:], "\r\n") {
			n = 2
		}
		if keep {
			lines = append(lines, s[:end+n])
		} else {
			lines = append(lines, s[:end])
		}
		s = s[end+n:]
	}
	return lines
}

func isLineBorder(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

func partitionMethod(index func(s, sep string) int, fromRight bool) builtinFunc {
	return func(in *interp, self Value, a args) (Value, error) {
		b, err := a.bind("partition", 1, "sep")
		if err != nil {
			return Value{}, err
		}
		s, sep := self.text(), b.value[0]
		if !sep.isString() || sep.text() == "" {
			return Value{}, typeFault("partition() needs a separator")
		}
		if err := in.spendText(len(s)); err != nil {
			return Value{}, err
		}
		at := index(s, sep.text())
		switch {
		case at >= 0:
			return tuple(self.sameSafety(s[:at]), self.sameSafety(sep.text()), self.sameSafety(s[at+len(sep.text()):])), nil
		case fromRight:
			return tuple(self.sameSafety(""), self.sameSafety(""), self), nil
		default:
			return tuple(self, self.sameSafety(""), self.sameSafety("")), nil
		}
	}
}
