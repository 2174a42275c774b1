package jinja

import "slices"

// maxParseDepth bounds expressions and blocks within each other, so that
// neither the parser nor the interpreter outgrows its stack.
const maxParseDepth = 120

// maxLinks bounds the operators of one tag that make its tree deeper: a + b + c
// has two.
const maxLinks = 1000

// maxParams is the most parameters a macro can have.
const maxParams = 64

// parser builds the tree by recursive descent, with Jinja2's grammar.
type parser struct {
	tokens []token
	pos    int
	depth  int
	links  int
	// soft is true inside an if or an inline if, where an unknown filter or
	// test is an error only if it runs.
	soft bool
	// unknown holds the errors of unknown filters and tests that certainly run.
	unknown []*Error
	// loops counts the loops around the statement, for break and continue.
	loops int
}

func parse(source string) ([]stmt, error) {
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	body, err := p.statements()
	if err != nil {
		return nil, err
	}
	if p.pos < len(p.tokens) { // a block tag that ends nothing
		t := p.tokens[p.pos+1]
		return nil, p.failAt(t.line, "unexpected %s", t.describe())
	}
	if len(p.unknown) > 0 {
		return nil, p.unknown[0]
	}
	return body, nil
}

func (p *parser) peek() token { return p.peekAt(0) }

func (p *parser) peekAt(n int) token {
	if p.pos+n < len(p.tokens) {
		return p.tokens[p.pos+n]
	}
	line := 1
	if len(p.tokens) > 0 {
		line = p.tokens[len(p.tokens)-1].line
	}
	return token{line: line}
}

func (p *parser) take() token {
	t := p.peek()
	p.pos++
	return t
}

// skipOp moves past an operator if it is next.
func (p *parser) skipOp(op string) bool {
	if p.peek().op(op) {
		p.pos++
		return true
	}
	return false
}

// skipName moves past a word if it is next.
func (p *parser) skipName(word string) bool {
	if p.peek().name(word) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) failAt(line int, format string, args ...any) *Error {
	e := fault(CauseSyntax, format, args...)
	e.Line = line
	return e
}

func (p *parser) fail(format string, args ...any) *Error {
	return p.failAt(p.peek().line, format, args...)
}

func (p *parser) expectOp(op string) error {
	if !p.skipOp(op) {
		return p.fail("expected '%s', got %s", op, p.peek().describe())
	}
	return nil
}

func (p *parser) expectName() (string, error) {
	t := p.peek()
	if t.kind != tokenName {
		return "", p.fail("expected a name, got %s", t.describe())
	}
	p.pos++
	return t.text, nil
}

func (p *parser) expectBlockEnd() error {
	if p.peek().kind != tokenBlockEnd {
		return p.fail("expected end of block, got %s", p.peek().describe())
	}
	p.pos++
	return nil
}

// enter counts one level of nesting; the caller calls leave.
func (p *parser) enter() error {
	p.depth++
	if p.depth > maxParseDepth {
		e := p.fail("nested too deep")
		e.Cause = CauseLimit
		return e
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// link counts one operator of a tag.
func (p *parser) link() error {
	p.links++
	if p.links > maxLinks {
		e := p.fail("expression too long")
		e.Cause = CauseLimit
		return e
	}
	return nil
}

// statements reads up to the end or to a block tag whose name is in ends; the
// position is then at that tag's start.
func (p *parser) statements(ends ...string) ([]stmt, error) {
	var body []stmt
	for p.pos < len(p.tokens) {
		t := p.peek()
		p.links = 0
		switch t.kind {
		case tokenData:
			p.pos++
			body = append(body, &textStmt{pos(t.line), t.text})
		case tokenPrintBegin:
			p.pos++
			value, err := p.tuple(tupleRules{condexpr: true})
			if err != nil {
				return nil, err
			}
			if p.peek().kind != tokenPrintEnd {
				return nil, p.fail("expected end of print, got %s", p.peek().describe())
			}
			p.pos++
			body = append(body, &printStmt{pos(t.line), value})
		default:
			word := p.peekAt(1)
			if slices.ContainsFunc(ends, word.name) {
				return body, nil
			}
			if len(ends) == 0 && isBlockEnd(word) {
				return body, nil
			}
			s, err := p.block()
			if err != nil {
				return nil, err
			}
			body = append(body, s)
		}
	}
	if len(ends) > 0 {
		return nil, p.fail("unexpected end of template: expected '%s'", ends[len(ends)-1])
	}
	return body, nil
}

// isBlockEnd reports whether a tag ends a block, which at the top level is an
// error.
func isBlockEnd(t token) bool {
	switch t.text {
	case "else", "elif", "endif", "endfor", "endset", "endmacro", "endcall", "endfilter", "endwith", "endgeneration":
		return t.kind == tokenName
	}
	return false
}

// body reads statements up to {% end %} and moves past it.
func (p *parser) body(end string) ([]stmt, error) {
	body, err := p.statements(end)
	if err != nil {
		return nil, err
	}
	p.pos += 2
	return body, p.expectBlockEnd()
}

// block reads one {% %} statement with everything it holds.
func (p *parser) block() (stmt, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	p.pos++ // the tag's start
	t := p.peek()
	word, err := p.expectName()
	if err != nil {
		return nil, p.failAt(t.line, "tag name expected")
	}
	at := pos(t.line)
	switch word {
	case "if":
		return p.ifBlock(at)
	case "for":
		return p.forBlock(at)
	case "set":
		return p.set(at)
	case "macro":
		return p.macro(at)
	case "call":
		return p.callBlock(at)
	case "filter":
		return p.filterBlock(at)
	case "with":
		return p.with(at)
	case "generation":
		if err := p.expectBlockEnd(); err != nil {
			return nil, err
		}
		s := &scopeStmt{pos: at}
		s.body, err = p.hard(func() ([]stmt, error) { return p.body("endgeneration") })
		return s, err
	case "print":
		return p.print(at)
	case "break", "continue":
		if p.loops == 0 {
			return nil, p.failAt(t.line, "'%s' outside a loop", word)
		}
		if word == "break" {
			return &breakStmt{at}, p.expectBlockEnd()
		}
		return &continueStmt{at}, p.expectBlockEnd()
	case "block", "extends", "include", "import", "from", "autoescape", "do", "trans":
		e := p.failAt(t.line, "tag '%s' is not supported", word)
		e.Cause = CauseUnsupported
		return nil, e
	default:
		return nil, p.failAt(t.line, "unknown tag '%s'", word)
	}
}

// hard reads with soft off: a frame of its own is not conditional.
func (p *parser) hard(read func() ([]stmt, error)) ([]stmt, error) {
	saved := p.soft
	p.soft = false
	defer func() { p.soft = saved }()
	return read()
}
