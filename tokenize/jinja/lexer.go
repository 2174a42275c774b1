package jinja

import (
	"strings"
	"unicode/utf8"
)

// lexer cuts the source into tokens, and applies the white space rules of
// Jinja2's lexer with trim_blocks and lstrip_blocks:
//
//   - a newline right after a block or comment tag goes (unless +%});
//   - white space between the start of a line and a block or comment tag goes
//     (unless {%+);
//   - - takes all white space on its side.
type lexer struct {
	src    string
	pos    int
	line   int
	tokens []token
	// lineStart is true when the last token ended with a newline it swallowed:
	// what follows then starts a line though no newline is seen.
	lineStart bool
}

// lex returns the tokens of source, without the one tokenEOF at the end.
func lex(source string) ([]token, error) {
	lx := lexer{src: normalizeNewlines(source), line: 1, lineStart: true}
	lx.src = strings.TrimSuffix(lx.src, "\n") // keep_trailing_newline is off
	if err := lx.run(); err != nil {
		return nil, err
	}
	return lx.tokens, nil
}

func normalizeNewlines(s string) string {
	if strings.IndexByte(s, '\r') < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

func (lx *lexer) fail(reason string) error {
	return &Error{Line: lx.line, Cause: CauseSyntax, Reason: reason}
}

func (lx *lexer) add(kind tokenKind, text string) {
	lx.tokens = append(lx.tokens, token{kind, text, lx.line})
}

// advance moves past n bytes and counts their lines.
func (lx *lexer) advance(n int) {
	s := lx.src[lx.pos : lx.pos+n]
	lx.line += strings.Count(s, "\n")
	lx.pos += n
	if n > 0 {
		lx.lineStart = s[n-1] == '\n'
	}
}

// nextTag returns the offset of the next {{, {% or {# at or after pos, or -1.
func nextTag(s string, pos int) int {
	for {
		i := strings.IndexByte(s[pos:], '{')
		if i < 0 || pos+i+1 >= len(s) {
			return -1
		}
		pos += i
		switch s[pos+1] {
		case '{', '%', '#':
			return pos
		}
		pos++
	}
}

func (lx *lexer) run() error {
	for lx.pos < len(lx.src) {
		at := nextTag(lx.src, lx.pos)
		if at < 0 {
			lx.add(tokenData, lx.src[lx.pos:])
			lx.pos = len(lx.src)
			return nil
		}
		data := lx.src[lx.pos:at]
		sign := byte(0)
		if at+2 < len(lx.src) && (lx.src[at+2] == '-' || lx.src[at+2] == '+') {
			sign = lx.src[at+2]
		}
		kept := lx.strip(data, sign, lx.src[at+1] != '{')
		if kept != "" {
			lx.add(tokenData, kept)
		}
		lx.advance(len(data))
		if err := lx.tag(sign); err != nil {
			return err
		}
	}
	return nil
}

// strip returns what is kept of the data before a tag.
func (lx *lexer) strip(data string, sign byte, lstrip bool) string {
	switch {
	case sign == '-':
		return trimRightSpace(data)
	case sign == '+' || !lstrip:
		return data
	}
	start := strings.LastIndexByte(data, '\n') + 1
	if start == 0 && !lx.lineStart {
		return data
	}
	if trimRightSpace(data[start:]) == "" {
		return data[:start]
	}
	return data
}

// tag reads the tag at pos with everything in it.
func (lx *lexer) tag(sign byte) error {
	opener := lx.src[lx.pos+1]
	width := 2
	if sign != 0 {
		width = 3
	}
	if opener == '%' {
		if end := rawBegin(lx.src[lx.pos+width:]); end > 0 {
			lx.advance(width + end)
			return lx.raw()
		}
	}
	switch opener {
	case '#':
		end := strings.Index(lx.src[lx.pos+width:], "#}")
		if end < 0 {
			return lx.fail("comment without end")
		}
		closing := byte(0)
		if end > 0 { // in {#-#} the sign opens and does not close
			closing = lx.src[lx.pos+width+end-1]
		}
		lx.advance(width + end)
		lx.close("#}", closing, true)
		return nil
	case '{':
		lx.add(tokenPrintBegin, "")
		lx.advance(width)
		return lx.expression("}}", tokenPrintEnd)
	default:
		lx.add(tokenBlockBegin, "")
		lx.advance(width)
		return lx.expression("%}", tokenBlockEnd)
	}
}

// close moves past the end of a tag at pos, whose sign is already passed.
func (lx *lexer) close(end string, sign byte, trim bool) {
	n := len(end)
	rest := lx.src[lx.pos+n:]
	switch {
	case sign == '-':
		n += len(rest) - len(trimLeftSpace(rest))
	case trim && sign != '+' && strings.HasPrefix(rest, "\n"):
		n++
	}
	lx.advance(n)
}

// rawBegin returns the length of " raw %}" with its signs at the start of s,
// or 0.
func rawBegin(s string) int {
	t := trimLeftSpace(s)
	if !strings.HasPrefix(t, "raw") {
		return 0
	}
	t = trimLeftSpace(t[3:])
	switch {
	case strings.HasPrefix(t, "-%}"):
		t = trimLeftSpace(t[3:])
	case strings.HasPrefix(t, "%}"):
		t = t[2:]
	default:
		return 0
	}
	return len(s) - len(t)
}

// raw reads up to and past {% endraw %}.
func (lx *lexer) raw() error {
	for at := lx.pos; ; at += 2 {
		i := strings.Index(lx.src[at:], "{%")
		if i < 0 {
			return lx.fail("missing end of raw directive")
		}
		at += i
		t := lx.src[at+2:]
		sign := byte(0)
		if t != "" && (t[0] == '-' || t[0] == '+') {
			sign, t = t[0], t[1:]
		}
		t = trimLeftSpace(t)
		if !strings.HasPrefix(t, "endraw") {
			continue
		}
		t = trimLeftSpace(t[6:])
		closing := byte(0)
		if t != "" && (t[0] == '-' || t[0] == '+') {
			closing, t = t[0], t[1:]
		}
		if !strings.HasPrefix(t, "%}") {
			continue
		}
		data := lx.src[lx.pos:at]
		if kept := lx.strip(data, sign, true); kept != "" {
			lx.add(tokenData, kept)
		}
		lx.advance(len(lx.src) - len(t) - lx.pos)
		lx.close("%}", closing, true)
		return nil
	}
}

// operators, longest first.
var operators = [...]string{
	"//", "**", "==", "!=", ">=", "<=",
	"+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";",
}

// expression reads tokens up to and past the end of the tag.
func (lx *lexer) expression(end string, endKind tokenKind) error {
	var open []byte
	for {
		rest := lx.src[lx.pos:]
		if trimmed := trimLeftSpace(rest); len(trimmed) < len(rest) {
			lx.advance(len(rest) - len(trimmed))
			rest = trimmed
		}
		if rest == "" {
			return lx.fail("tag without end: expected " + end)
		}
		if len(open) == 0 {
			sign := byte(0)
			closing := rest
			if closing[0] == '-' || closing[0] == '+' && end == "%}" {
				sign, closing = closing[0], closing[1:]
			}
			if strings.HasPrefix(closing, end) {
				lx.add(endKind, "")
				lx.advance(len(rest) - len(closing))
				lx.close(end, sign, end == "%}")
				return nil
			}
		}
		c := rest[0]
		switch {
		case c == '\'' || c == '"':
			if err := lx.quoted(c); err != nil {
				return err
			}
			continue
		case c >= '0' && c <= '9':
			if err := lx.number(); err != nil {
				return err
			}
			continue
		case isNameByte(c):
			n := 1
			for n < len(rest) && isNameByte(rest[n]) {
				n++
			}
			lx.add(tokenName, rest[:n])
			lx.advance(n)
			continue
		}
		op := operatorAt(rest)
		if op == "" {
			r, _ := utf8.DecodeRuneInString(rest)
			return lx.fail("unexpected character " + quoteRune(r))
		}
		switch op {
		case "(", "[", "{":
			open = append(open, op[0])
		case ")", "]", "}":
			if len(open) == 0 || !pairs(open[len(open)-1], op[0]) {
				return lx.fail("unexpected '" + op + "'")
			}
			open = open[:len(open)-1]
		}
		lx.add(tokenOperator, op)
		lx.advance(len(op))
	}
}

func operatorAt(s string) string {
	for _, op := range operators {
		if strings.HasPrefix(s, op) {
			return op
		}
	}
	return ""
}

func pairs(open, closing byte) bool {
	return open == '(' && closing == ')' || open == '[' && closing == ']' || open == '{' && closing == '}'
}

// isNameByte reports whether c can be part of a name. Bytes of non-ASCII
// letters are taken as they are.
func isNameByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= utf8.RuneSelf
}

func quoteRune(r rune) string { return reprString(string(r)) }
