package jinja

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// quoted reads a string literal at pos.
func (lx *lexer) quoted(quote byte) error {
	rest := lx.src[lx.pos:]
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case quote:
			text, err := unescape(rest[1:i])
			if err != nil {
				return lx.fail(err.Error())
			}
			lx.add(tokenString, text)
			lx.advance(i + 1)
			return nil
		}
	}
	return lx.fail("string without end")
}

// unescape decodes the escapes of a Python string literal. An unknown escape
// stays as it is.
func unescape(s string) (string, error) {
	i := strings.IndexByte(s, '\\')
	if i < 0 {
		return s, nil
	}
	var b strings.Builder
	for {
		b.WriteString(s[:i])
		s = s[i+1:]
		n, err := unescapeOne(&b, s)
		if err != nil {
			return "", err
		}
		s = s[n:]
		if i = strings.IndexByte(s, '\\'); i < 0 {
			b.WriteString(s)
			return b.String(), nil
		}
	}
}

// unescapeOne writes the character whose escape s starts with, after the
// backslash, and returns how many bytes of s it used.
func unescapeOne(b *strings.Builder, s string) (int, error) {
	if s == "" {
		b.WriteByte('\\')
		return 0, nil
	}
	simple := strings.IndexByte("abfnrtv\\'\"", s[0])
	switch {
	case simple >= 0:
		b.WriteByte("\a\b\f\n\r\t\v\\'\""[simple])
		return 1, nil
	case s[0] == '\n':
		return 1, nil
	case s[0] >= '0' && s[0] <= '7':
		r, n := rune(0), 0
		for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
			r = r<<3 | rune(s[n]-'0')
			n++
		}
		b.WriteRune(r)
		return n, nil
	case s[0] == 'x':
		return unescapeHex(b, s, 2)
	case s[0] == 'u':
		return unescapeHex(b, s, 4)
	case s[0] == 'U':
		return unescapeHex(b, s, 8)
	case s[0] == 'N':
		return 0, typeFault("character names in string literals are not supported")
	case s[0] >= utf8.RuneSelf:
		// Jinja2 turns the character into an escape of its own first, and the
		// backslash before it then escapes that escape's backslash.
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r < 0x100:
			fmt.Fprintf(b, "\\x%02x", r)
		case r < 0x10000:
			fmt.Fprintf(b, "\\u%04x", r)
		default:
			fmt.Fprintf(b, "\\U%08x", r)
		}
		return n, nil
	default:
		b.WriteByte('\\')
		b.WriteByte(s[0])
		return 1, nil
	}
}

func unescapeHex(b *strings.Builder, s string, digits int) (int, error) {
	if len(s) < 1+digits {
		return 0, typeFault("truncated escape in a string")
	}
	var r rune
	for _, c := range []byte(s[1 : 1+digits]) {
		x := unhex(c)
		if x < 0 || r > utf8.MaxRune {
			return 0, typeFault("bad escape in a string")
		}
		r = r<<4 | rune(x)
	}
	if !utf8.ValidRune(r) {
		return 0, typeFault("escape is not a character")
	}
	b.WriteRune(r)
	return 1 + digits, nil
}

// number reads an int or float literal at pos.
func (lx *lexer) number() error {
	rest := lx.src[lx.pos:]
	if n, text := prefixedInt(rest); n > 0 {
		lx.add(tokenInt, text)
		lx.advance(n)
		return nil
	}
	n := digitRun(rest)
	kind := tokenInt
	// 1.5 is a float, but a.0.1 is two subscripts.
	afterDot := lx.pos > 0 && lx.src[lx.pos-1] == '.'
	if !afterDot {
		if n+1 < len(rest) && rest[n] == '.' && digitRun(rest[n+1:]) > 0 {
			n += 1 + digitRun(rest[n+1:])
			kind = tokenFloat
		}
		if n < len(rest) && (rest[n] == 'e' || rest[n] == 'E') {
			e := n + 1
			if e < len(rest) && (rest[e] == '+' || rest[e] == '-') {
				e++
			}
			if d := digitRun(rest[e:]); d > 0 {
				n = e + d
				kind = tokenFloat
			}
		}
	}
	text := strings.ReplaceAll(rest[:n], "_", "")
	if kind == tokenInt {
		if len(text) > 1 && text[0] == '0' && strings.Trim(text, "0") != "" {
			return lx.fail("integer with a leading zero")
		}
		if len(text) > maxDigits {
			return lx.fail("integer too long")
		}
	}
	lx.add(kind, text)
	lx.advance(n)
	return nil
}

// digitRun returns the length of the digits, with single underscores between
// them, at the start of s.
func digitRun(s string) int {
	n := 0
	for n < len(s) {
		switch {
		case s[n] >= '0' && s[n] <= '9':
			n++
		case s[n] == '_' && n > 0 && n+1 < len(s) && s[n+1] >= '0' && s[n+1] <= '9':
			n++
		default:
			return n
		}
	}
	return n
}

// prefixedInt reads 0x, 0o and 0b literals and returns them in decimal.
func prefixedInt(s string) (int, string) {
	if len(s) < 3 || s[0] != '0' {
		return 0, ""
	}
	base := 0
	switch s[1] | 0x20 {
	case 'x':
		base = 16
	case 'o':
		base = 8
	case 'b':
		base = 2
	default:
		return 0, ""
	}
	n := 2
	for n < len(s) {
		if x := unhex(s[n]); s[n] != '_' && (x < 0 || x >= base) {
			break
		}
		n++
	}
	digits := strings.ReplaceAll(s[2:n], "_", "")
	if digits == "" || len(digits) > maxDigits {
		return 0, ""
	}
	return n, parseInt(digits, base).bigInt().String()
}
