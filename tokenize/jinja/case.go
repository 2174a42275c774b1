package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// mapMethod is a method without arguments that maps the text.
func mapMethod(function string, f func(string) string) builtinFunc {
	return func(in *interp, self Value, a args) (Value, error) {
		if err := a.none(function); err != nil {
			return Value{}, err
		}
		if err := in.spendText(3 * len(self.text())); err != nil {
			return Value{}, err
		}
		return self.sameSafety(f(self.text())), nil
	}
}

// upper is Python's str.upper: Unicode's full case mapping.
func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	var b strings.Builder
	for _, r := range s {
		if full := specialUpper(r); full != "" {
			b.WriteString(full)
		} else {
			b.WriteRune(unicode.ToUpper(r))
		}
	}
	return b.String()
}

// lower is Python's str.lower, with the final sigma rule.
func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == 'İ':
			b.WriteString("i̇")
		case r == 'Σ' && finalSigma(s, i):
			b.WriteRune('ς')
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// finalSigma reports whether the sigma at byte i ends a word: a letter before
// it, none after it, case-ignorable characters between.
func finalSigma(s string, i int) bool {
	cased := func(r rune) bool {
		return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r)
	}
	ignorable := func(r rune) bool {
		return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
			strings.ContainsRune("'.:·’‘․", r)
	}
	before := strings.TrimRightFunc(s[:i], ignorable)
	r, _ := utf8.DecodeLastRuneInString(before)
	if before == "" || !cased(r) {
		return false
	}
	after := strings.TrimLeftFunc(s[i+len("Σ"):], ignorable)
	r, _ = utf8.DecodeRuneInString(after)
	return after == "" || !cased(r)
}

func casefold(s string) string {
	s = lower(s)
	if isASCII(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch r {
		case 'ß':
			b.WriteString("ss")
		case 'ς':
			b.WriteRune('σ')
		default:
			if full := specialUpper(r); full != "" {
				b.WriteString(lower(full))
			} else {
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}

// title gives each run of letters one capital.
func title(s string) string {
	var b strings.Builder
	inWord := false
	for i, r := range s {
		cased := unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r)
		switch {
		case !cased:
			b.WriteRune(r)
		case inWord:
			writeLower(&b, s, i, r)
		default:
			writeTitle(&b, r)
		}
		inWord = cased
	}
	return b.String()
}

func capitalize(s string) string {
	var b strings.Builder
	for i, r := range s {
		if i == 0 {
			writeTitle(&b, r)
		} else {
			writeLower(&b, s, i, r)
		}
	}
	return b.String()
}

func swapcase(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case unicode.IsUpper(r):
			writeLower(&b, s, i, r)
		case unicode.IsLower(r):
			b.WriteString(upper(string(r)))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func writeLower(b *strings.Builder, s string, i int, r rune) {
	if r == 'Σ' && finalSigma(s, i) {
		b.WriteRune('ς')
		return
	}
	b.WriteString(lower(string(r)))
}

func writeTitle(b *strings.Builder, r rune) {
	full := specialUpper(r)
	if full == "" {
		b.WriteRune(unicode.ToTitle(r))
		return
	}
	// The first character of an expansion is the capital.
	_, n := utf8.DecodeRuneInString(full)
	b.WriteString(full[:n])
	b.WriteString(lower(full[n:]))
}

// specialUpper is the upper case of a character that becomes several
// (Unicode's SpecialCasing, the entries without conditions that occur in
// text), or "".
func specialUpper(r rune) string {
	switch r {
	case 'ß':
		return "SS"
	case 'ŉ':
		return "ʼN"
	case 'ǰ':
		return "J̌"
	case 'ΐ':
		return "Ϊ́"
	case 'ΰ':
		return "Ϋ́"
	case 'և':
		return "ԵՒ"
	case 'ẖ':
		return "H̱"
	case 'ẗ':
		return "T̈"
	case 'ẘ':
		return "W̊"
	case 'ẙ':
		return "Y̊"
	case 'ẚ':
		return "Aʾ"
	case 'ﬀ':
		return "FF"
	case 'ﬁ':
		return "FI"
	case 'ﬂ':
		return "FL"
	case 'ﬃ':
		return "FFI"
	case 'ﬄ':
		return "FFL"
	case 'ﬅ', 'ﬆ':
		return "ST"
	default:
		return ""
	}
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// padMethod is center, ljust and rjust.
func padMethod(name string) builtinFunc {
	return func(in *interp, self Value, a args) (Value, error) {
		b, err := a.bind(name, 1, "width", "fillchar")
		if err != nil {
			return Value{}, err
		}
		width, ok := b.value[0].asInt()
		fill := b.or(1, String(" "))
		if !ok || !fill.isString() || utf8.RuneCountInString(fill.text()) != 1 {
			return Value{}, typeFault("%s() needs a width and one fill character", name)
		}
		s, err := in.pad(self.text(), int(clampInt(width)), fill.text(), name)
		return self.sameSafety(s), err
	}
}

// pad fills s up to width.
func (in *interp) pad(s string, width int, fill, how string) (string, error) {
	missing := width - utf8.RuneCountInString(s)
	if missing <= 0 {
		return s, nil
	}
	if missing > in.maxOutput {
		return "", fault(CauseLimit, "text too long")
	}
	if err := in.spendText(len(s) + missing*len(fill)); err != nil {
		return "", err
	}
	left := 0
	switch how {
	case "rjust":
		left = missing
	case "center": // an odd blank goes left when the width is odd
		left = missing/2 + missing&width&1
	}
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, missing-left), nil
}

func strZfill(in *interp, self Value, a args) (Value, error) {
	b, err := a.bind("zfill", 1, "width")
	if err != nil {
		return Value{}, err
	}
	width, ok := b.value[0].asInt()
	if !ok {
		return Value{}, typeFault("zfill() needs a width")
	}
	s, sign := self.text(), ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	s, err = in.pad(s, int(clampInt(width))-len(sign), "0", "rjust")
	return self.sameSafety(sign + s), err
}

// classMethod is isalpha and the like: every character, and at least one.
func classMethod(name string) builtinFunc {
	return func(in *interp, self Value, a args) (Value, error) {
		s := self.text()
		if err := in.spendText(len(s)); err != nil {
			return Value{}, err
		}
		return Bool(isClass(name, s)), a.none(name)
	}
}

func isClass(name, s string) bool {
	switch name {
	case "isascii":
		return isASCII(s)
	case "isupper":
		return s != lower(s) && s == upper(s)
	case "islower":
		return s != upper(s) && s == lower(s)
	case "istitle":
		return s != lower(s) && s == title(s)
	}
	for _, r := range s {
		ok := false
		switch name {
		case "isspace":
			ok = isSpace(r)
		case "isalpha":
			ok = unicode.IsLetter(r)
		case "isalnum":
			ok = unicode.IsLetter(r) || unicode.IsNumber(r)
		case "isdecimal":
			ok = unicode.IsDigit(r)
		case "isdigit":
			ok = unicode.IsDigit(r) || strings.ContainsRune("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", r)
		case "isnumeric":
			ok = unicode.IsNumber(r)
		}
		if !ok {
			return false
		}
	}
	return s != ""
}
