package jinja

// postfix reads subscripts and calls after a primary.
func (p *parser) postfix(e expr) (expr, error) {
	for {
		var err error
		switch {
		case p.skipOp("."):
			t := p.take()
			switch t.kind {
			case tokenName:
				e = &attrExpr{e, t.text, methodsNamed(t.text)}
			case tokenInt:
				e = &itemExpr{e, &constExpr{parseInt(t.text, 10)}}
			default:
				p.pos--
				return nil, p.fail("expected a name or number, got %s", t.describe())
			}
		case p.skipOp("["):
			e, err = p.subscript(e)
		case p.peek().op("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
		if err == nil {
			err = p.link()
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) subscript(object expr) (expr, error) {
	var indexes []expr
	for !p.skipOp("]") {
		if len(indexes) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		index, err := p.sliceOrIndex()
		if err != nil {
			return nil, err
		}
		indexes = append(indexes, index)
	}
	if len(indexes) == 1 {
		return &itemExpr{object, indexes[0]}, nil
	}
	return &itemExpr{object, &tupleExpr{indexes}}, nil
}

func (p *parser) sliceOrIndex() (expr, error) {
	var bounds [3]expr
	colons := 0
	for {
		t := p.peek()
		switch {
		case t.op(":") && colons < 2:
			p.pos++
			colons++
			continue
		case t.op("]"), t.op(","):
			if colons == 0 {
				if bounds[0] == nil {
					return nil, p.fail("unexpected %s", t.describe())
				}
				return bounds[0], nil
			}
			return &sliceExpr{bounds[0], bounds[1], bounds[2]}, nil
		case bounds[colons] != nil:
			return nil, p.fail("unexpected %s", t.describe())
		}
		var err error
		if bounds[colons], err = p.expression(); err != nil {
			return nil, err
		}
	}
}

func (p *parser) call(callee expr) (expr, error) {
	args, err := p.arguments()
	if err != nil {
		return nil, err
	}
	return &callExpr{callee, args}, nil
}

func (p *parser) arguments() (argList, error) {
	var args argList
	if err := p.expectOp("("); err != nil {
		return args, err
	}
	for first := true; !p.skipOp(")"); first = false {
		if !first {
			if err := p.expectOp(","); err != nil {
				return args, err
			}
			if p.skipOp(")") {
				break
			}
		}
		if err := p.argument(&args); err != nil {
			return args, err
		}
	}
	return args, nil
}

func (p *parser) argument(args *argList) (err error) {
	switch {
	case p.skipOp("*"):
		if args.star != nil || args.starStar != nil {
			return p.fail("invalid syntax for function call expression")
		}
		args.star, err = p.expression()
	case p.skipOp("**"):
		if args.starStar != nil {
			return p.fail("invalid syntax for function call expression")
		}
		args.starStar, err = p.expression()
	case p.peek().kind == tokenName && p.peekAt(1).op("="):
		if args.starStar != nil {
			return p.fail("invalid syntax for function call expression")
		}
		name := p.take().text
		p.pos++
		for _, n := range args.named {
			if n.name == name {
				return p.fail("keyword argument '%s' repeated", name)
			}
		}
		var value expr
		value, err = p.expression()
		args.named = append(args.named, namedArg{name, value})
	default:
		if args.star != nil || args.starStar != nil || len(args.named) > 0 {
			return p.fail("invalid syntax for function call expression")
		}
		var value expr
		value, err = p.expression()
		args.positional = append(args.positional, value)
	}
	return err
}
