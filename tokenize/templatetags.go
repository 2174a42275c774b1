package tokenize

import "strings"

// tag is the inside of {% %} or {{ }}.
type tag struct {
	statement bool
	tokens    []token
}

// word returns the keyword of a statement.
func (t tag) word() string {
	if !t.statement || len(t.tokens) == 0 {
		return ""
	}
	return t.tokens[0].text
}

// assignment splits {% set target = value %}.
func (t tag) assignment() (target, value []token, ok bool) {
	if t.word() != "set" {
		return nil, nil, false
	}
	for i, tok := range t.tokens {
		if tok.is("=") {
			return t.tokens[1:i], t.tokens[i+1:], true
		}
	}
	return nil, nil, false
}

// loop splits {% for target in over %}, without filter and recursive.
func (t tag) loop() (target, over []token, ok bool) {
	if t.word() != "for" {
		return nil, nil, false
	}
	in := 0
	depth := 0
	for i, tok := range t.tokens {
		switch {
		case tok.is("("), tok.is("["), tok.is("{"):
			depth++
		case tok.is(")"), tok.is("]"), tok.is("}"):
			depth--
		case tok.kind != wordToken || depth > 0:
		case in == 0 && tok.text == "in":
			in = i
		case in > 0 && (tok.text == "if" || tok.text == "recursive"):
			return t.tokens[1:in], t.tokens[in+1 : i], true
		}
	}
	return t.tokens[1:max(in, 1)], t.tokens[in+1:], in > 0
}

type tokenKind uint8

const (
	signToken tokenKind = iota
	wordToken
	stringToken
	numberToken
)

type token struct {
	kind tokenKind
	text string
}

func (t token) is(sign string) bool { return t.kind == signToken && t.text == sign }

// keyword reports whether a word cannot be the name of a variable.
func (t token) keyword() bool {
	switch t.text {
	case "not", "and", "or", "in", "is", "if", "else", "true", "false", "none", "True", "False", "None":
		return t.kind == wordToken
	default:
		return false
	}
}

// scanTags returns the tags of a template in order. Comments and raw blocks are
// left out.
func scanTags(source string) []tag {
	var tags []tag
	raw := false
	for {
		at := strings.IndexByte(source, '{')
		if at < 0 || at+1 >= len(source) {
			return tags
		}
		source = source[at+1:]
		switch source[0] {
		case '#':
			if raw {
				continue
			}
			end := strings.Index(source, "#}")
			if end < 0 {
				return tags
			}
			source = source[end+2:]
		case '%', '{':
			tokens, rest := scanTokens(source[1:], source[0])
			word := ""
			if source[0] == '%' && len(tokens) > 0 {
				word = tokens[0].text
			}
			switch {
			case raw && word != "endraw":
				continue
			case word == "raw", word == "endraw":
				raw = word == "raw"
			default:
				tags = append(tags, tag{source[0] == '%', tokens})
			}
			source = rest
		}
	}
}

// scanTokens reads the tokens of a tag that begins behind {% or {{.
func scanTokens(s string, open byte) (tokens []token, rest string) {
	s = strings.TrimLeft(s, "-+")
	end := "%}"
	if open == '{' {
		end = "}}"
	}
	depth := 0
	for len(s) > 0 {
		c := s[0]
		switch {
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			s = s[1:]
			continue
		case depth == 0 && strings.HasPrefix(s, end):
			return tokens, s[2:]
		case depth == 0 && (c == '-' || c == '+') && strings.HasPrefix(s[1:], end):
			return tokens, s[3:]
		}
		n := 1
		kind := signToken
		text := s[:1]
		switch {
		case c == '"' || c == '\'':
			kind = stringToken
			for n < len(s) && s[n] != c {
				if s[n] == '\\' {
					n++
				}
				n++
			}
			text = s[1:min(n, len(s))]
			n = min(n+1, len(s))
		case wordByte(c):
			kind = wordToken
			if c >= '0' && c <= '9' {
				kind = numberToken
			}
			for n < len(s) && wordByte(s[n]) {
				n++
			}
			text = s[:n]
		case strings.ContainsRune("=!<>*/", rune(c)) && n < len(s) && (s[1] == '=' || s[1] == c):
			n = 2
			text = s[:2]
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
		}
		s = s[n:]
		if last := len(tokens) - 1; kind == stringToken && last >= 0 && tokens[last].kind == stringToken {
			tokens[last].text += text // adjacent literals are one
			continue
		}
		tokens = append(tokens, token{kind, text})
	}
	return tokens, ""
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80
}
