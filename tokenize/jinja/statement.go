package jinja

func (p *parser) ifBlock(at pos) (stmt, error) {
	saved := p.soft
	p.soft = true
	defer func() { p.soft = saved }()
	s := &ifStmt{pos: at}
	for {
		test, err := p.tuple(tupleRules{})
		if err != nil {
			return nil, err
		}
		if err := p.expectBlockEnd(); err != nil {
			return nil, err
		}
		body, err := p.statements("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.branches = append(s.branches, branch{test, body})
		p.pos++
		switch p.take().text {
		case "elif":
			continue
		case "else":
			if err := p.expectBlockEnd(); err != nil {
				return nil, err
			}
			s.otherwise, err = p.body("endif")
			return s, err
		default:
			return s, p.expectBlockEnd()
		}
	}
}

func (p *parser) forBlock(at pos) (stmt, error) {
	s := &forStmt{pos: at}
	var err error
	if s.target, err = p.assignTarget(true, false); err != nil {
		return nil, err
	}
	if !p.skipName("in") {
		return nil, p.fail("expected 'in', got %s", p.peek().describe())
	}
	if s.iterable, err = p.tuple(tupleRules{end: "recursive"}); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if s.filter, err = p.expression(); err != nil {
			return nil, err
		}
	}
	s.recursive = p.skipName("recursive")
	if err := p.expectBlockEnd(); err != nil {
		return nil, err
	}
	p.loops++
	s.body, err = p.hard(func() ([]stmt, error) { return p.statements("endfor", "else") })
	p.loops--
	if err != nil {
		return nil, err
	}
	p.pos++
	if p.take().text == "else" {
		if err := p.expectBlockEnd(); err != nil {
			return nil, err
		}
		s.otherwise, err = p.hard(func() ([]stmt, error) { return p.body("endfor") })
		return s, err
	}
	return s, p.expectBlockEnd()
}

func (p *parser) set(at pos) (stmt, error) {
	to, err := p.assignTarget(true, true)
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		value, err := p.tuple(tupleRules{condexpr: true})
		if err != nil {
			return nil, err
		}
		return &setStmt{at, to, value}, p.expectBlockEnd()
	}
	s := &setBlockStmt{pos: at, target: to}
	if p.peek().op("|") {
		if s.filter, err = p.filters(nil, false); err != nil {
			return nil, err
		}
	}
	if err := p.expectBlockEnd(); err != nil {
		return nil, err
	}
	s.body, err = p.hard(func() ([]stmt, error) { return p.body("endset") })
	return s, err
}

func (p *parser) filterBlock(at pos) (stmt, error) {
	s := &filterBlockStmt{pos: at}
	var err error
	if s.filter, err = p.filters(nil, true); err != nil {
		return nil, err
	}
	if err := p.expectBlockEnd(); err != nil {
		return nil, err
	}
	s.body, err = p.hard(func() ([]stmt, error) { return p.body("endfilter") })
	return s, err
}

func (p *parser) with(at pos) (stmt, error) {
	s := &withStmt{pos: at}
	for p.peek().kind != tokenBlockEnd {
		if len(s.targets) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		to, err := p.assignTarget(false, false)
		if err != nil {
			return nil, err
		}
		if err := p.expectOp("="); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.targets = append(s.targets, to)
		s.values = append(s.values, value)
	}
	p.pos++
	var err error
	s.body, err = p.hard(func() ([]stmt, error) { return p.body("endwith") })
	return s, err
}

func (p *parser) macro(at pos) (stmt, error) {
	name, err := p.storableName()
	if err != nil {
		return nil, err
	}
	code := &macroCode{line: int(at), name: name}
	if code.params, err = p.signature(); err != nil {
		return nil, err
	}
	if err := p.expectBlockEnd(); err != nil {
		return nil, err
	}
	if code.body, err = p.functionBody("endmacro"); err != nil {
		return nil, err
	}
	return &macroStmt{pos: at, code: code}, nil
}

func (p *parser) callBlock(at pos) (stmt, error) {
	code := &macroCode{line: int(at), name: "caller"}
	var err error
	if p.peek().op("(") {
		if code.params, err = p.signature(); err != nil {
			return nil, err
		}
	}
	called, err := p.expression()
	if err != nil {
		return nil, err
	}
	call, ok := called.(*callExpr)
	if !ok {
		return nil, p.fail("expected a call")
	}
	if err := p.expectBlockEnd(); err != nil {
		return nil, err
	}
	if code.body, err = p.functionBody("endcall"); err != nil {
		return nil, err
	}
	return &callBlockStmt{at, call, code}, nil
}

// functionBody reads the body of a macro, where no outer loop can be left.
func (p *parser) functionBody(end string) ([]stmt, error) {
	saved := p.loops
	p.loops = 0
	defer func() { p.loops = saved }()
	return p.hard(func() ([]stmt, error) { return p.body(end) })
}

func (p *parser) signature() ([]param, error) {
	if err := p.expectOp("("); err != nil {
		return nil, err
	}
	var params []param
	for !p.peek().op(")") {
		if len(params) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.peek().op(")") {
				break
			}
		}
		name, err := p.storableName()
		if err != nil {
			return nil, err
		}
		one := param{name: name}
		switch {
		case p.skipOp("="):
			if one.fallback, err = p.expression(); err != nil {
				return nil, err
			}
		case len(params) > 0 && params[len(params)-1].fallback != nil:
			return nil, p.fail("parameter without a default follows one with a default")
		}
		if len(params) == maxParams {
			return nil, p.fail("more than %d parameters", maxParams)
		}
		params = append(params, one)
	}
	p.pos++
	return params, nil
}

func (p *parser) print(at pos) (stmt, error) {
	var parts []expr
	for p.peek().kind != tokenBlockEnd {
		if len(parts) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		part, err := p.expression()
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return &printStmt{at, &concatExpr{parts}}, p.expectBlockEnd()
}
