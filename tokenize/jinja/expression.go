package jinja

import (
	"strconv"
	"strings"
)

// expression reads one expression, inline if included.
func (p *parser) expression() (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	unknown := len(p.unknown)
	e, err := p.or()
	if err != nil {
		return nil, err
	}
	for p.skipName("if") {
		test, err := p.or()
		if err != nil {
			return nil, err
		}
		var otherwise expr
		if p.skipName("else") {
			if otherwise, err = p.expression(); err != nil {
				return nil, err
			}
		}
		if err := p.link(); err != nil {
			return nil, err
		}
		e = &condExpr{test, e, otherwise}
		p.unknown = p.unknown[:unknown] // they may not run
	}
	return e, nil
}

func (p *parser) or() (expr, error) {
	left, err := p.and()
	for err == nil && p.skipName("or") {
		var right expr
		if right, err = p.and(); err == nil {
			err = p.link()
		}
		left = &orExpr{left, right}
	}
	return left, err
}

func (p *parser) and() (expr, error) {
	left, err := p.not()
	for err == nil && p.skipName("and") {
		var right expr
		if right, err = p.not(); err == nil {
			err = p.link()
		}
		left = &andExpr{left, right}
	}
	return left, err
}

func (p *parser) not() (expr, error) {
	if !p.peek().name("not") {
		return p.compare()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	p.pos++
	operand, err := p.not()
	return &notExpr{operand}, err
}

func (p *parser) compare() (expr, error) {
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	var rest []comparison
	for {
		op, ok := p.comparisonOperator()
		if !ok {
			break
		}
		right, err := p.sum()
		if err != nil {
			return nil, err
		}
		rest = append(rest, comparison{op, right})
	}
	if rest == nil {
		return first, nil
	}
	return &compareExpr{first, rest}, nil
}

func (p *parser) comparisonOperator() (operator, bool) {
	t := p.peek()
	if t.kind == tokenOperator {
		for op := opEqual; op <= opGreaterEqual; op++ {
			if t.text == operatorText[op] {
				p.pos++
				return op, true
			}
		}
	}
	if p.skipName("in") {
		return opIn, true
	}
	if t.name("not") && p.peekAt(1).name("in") {
		p.pos += 2
		return opNotIn, true
	}
	return 0, false
}

// binary reads operands of one precedence, from left to right.
func (p *parser) binary(operand func() (expr, error), ops ...operator) (expr, error) {
	left, err := operand()
	if err != nil {
		return nil, err
	}
	for {
		found := false
		for _, op := range ops {
			if !p.skipOp(operatorText[op]) {
				continue
			}
			right, err := operand()
			if err != nil {
				return nil, err
			}
			if err := p.link(); err != nil {
				return nil, err
			}
			left, found = &binaryExpr{op, left, right}, true
			break
		}
		if !found {
			return left, nil
		}
	}
}

func (p *parser) sum() (expr, error) { return p.binary(p.concat, opAdd, opSub) }

func (p *parser) concat() (expr, error) {
	first, err := p.product()
	if err != nil || !p.peek().op("~") {
		return first, err
	}
	parts := []expr{first}
	for p.skipOp("~") {
		part, err := p.product()
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return &concatExpr{parts}, nil
}

func (p *parser) product() (expr, error) {
	return p.binary(p.power, opMul, opDiv, opFloorDiv, opMod)
}

func (p *parser) power() (expr, error) {
	return p.binary(func() (expr, error) { return p.unary(true) }, opPow)
}

func (p *parser) unary(filters bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var e expr
	var err error
	switch {
	case p.skipOp("-"):
		e, err = p.unary(false)
		e = &negateExpr{e}
	case p.skipOp("+"):
		e, err = p.unary(false)
		e = &plusExpr{e}
	default:
		e, err = p.primary()
	}
	if err != nil {
		return nil, err
	}
	if e, err = p.postfix(e); err != nil || !filters {
		return e, err
	}
	return p.filtersAndTests(e)
}

func (p *parser) primary() (expr, error) {
	t := p.take()
	switch t.kind {
	case tokenName:
		switch t.text {
		case "true", "True":
			return &constExpr{Bool(true)}, nil
		case "false", "False":
			return &constExpr{Bool(false)}, nil
		case "none", "None":
			return &constExpr{None()}, nil
		}
		return &nameExpr{name: t.text}, nil
	case tokenString:
		parts := []string{t.text}
		for p.peek().kind == tokenString {
			parts = append(parts, p.take().text)
		}
		return &constExpr{String(strings.Join(parts, ""))}, nil
	case tokenInt:
		return &constExpr{parseInt(t.text, 10)}, nil
	case tokenFloat:
		f, _ := strconv.ParseFloat(t.text, 64) // out of range is infinity
		return &constExpr{Float(f)}, nil
	case tokenOperator:
		switch t.text {
		case "(":
			e, err := p.tuple(tupleRules{condexpr: true, parenthesized: true})
			if err != nil {
				return nil, err
			}
			return e, p.expectOp(")")
		case "[":
			return p.listLiteral()
		case "{":
			return p.dictLiteral()
		}
	}
	p.pos--
	return nil, p.fail("unexpected %s", t.describe())
}

func (p *parser) listLiteral() (expr, error) {
	var items []expr
	for !p.skipOp("]") {
		if len(items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.skipOp("]") {
				break
			}
		}
		item, err := p.expression()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return &listExpr{items}, nil
}

func (p *parser) dictLiteral() (expr, error) {
	var items []dictItem
	for !p.skipOp("}") {
		if len(items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.skipOp("}") {
				break
			}
		}
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expectOp(":"); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		items = append(items, dictItem{key, value})
	}
	return &dictExpr{items}, nil
}

// tupleRules says how a tuple may look where it stands.
type tupleRules struct {
	condexpr      bool   // its elements may be inline ifs
	parenthesized bool   // () is an empty tuple
	end           string // a word that ends it
}

// tuple reads one expression, or several with commas between them.
func (p *parser) tuple(rules tupleRules) (expr, error) {
	var items []expr
	isTuple := false
	for {
		if len(items) > 0 && !isTuple {
			if !p.skipOp(",") {
				break
			}
			isTuple = true
		} else if isTuple && !p.skipOp(",") {
			break
		}
		if p.tupleEnds(rules) {
			break
		}
		item, err := p.tupleItem(rules)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if !isTuple {
		if len(items) == 1 {
			return items[0], nil
		}
		if !rules.parenthesized {
			return nil, p.fail("expected an expression, got %s", p.peek().describe())
		}
	}
	return &tupleExpr{items}, nil
}

func (p *parser) tupleItem(rules tupleRules) (expr, error) {
	if rules.condexpr {
		return p.expression()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	return p.or()
}

func (p *parser) tupleEnds(rules tupleRules) bool {
	t := p.peek()
	switch t.kind {
	case tokenBlockEnd, tokenPrintEnd:
		return true
	case tokenOperator:
		return t.text == ")"
	case tokenName:
		return rules.end != "" && t.text == rules.end
	default:
		return false
	}
}

// filtersAndTests reads what may follow a complete operand.
func (p *parser) filtersAndTests(e expr) (expr, error) {
	for {
		var err error
		switch {
		case p.peek().op("|"):
			e, err = p.filters(e, false)
		case p.peek().name("is"):
			e, err = p.test(e)
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

// dottedName reads a name with dots, as filters and tests have.
func (p *parser) dottedName() (string, error) {
	name, err := p.expectName()
	parts := []string{name}
	for err == nil && p.skipOp(".") {
		name, err = p.expectName()
		parts = append(parts, name)
	}
	return strings.Join(parts, "."), err
}

// filters reads a chain of filters. When bare, the first has no | before it.
func (p *parser) filters(e expr, bare bool) (expr, error) {
	for bare || p.skipOp("|") {
		bare = false
		line := p.peek().line
		name, err := p.dottedName()
		if err != nil {
			return nil, err
		}
		f := &filterExpr{subject: e, name: name, filter: filterNamed(name)}
		if p.peek().op("(") {
			if f.args, err = p.arguments(); err != nil {
				return nil, err
			}
		}
		if f.filter == nil && !p.soft {
			p.unknown = append(p.unknown, p.failAt(line, "no filter named '%s'", name))
		}
		if err := p.link(); err != nil {
			return nil, err
		}
		e = f
	}
	return e, nil
}

func (p *parser) test(e expr) (expr, error) {
	p.pos++ // is
	t := &testExpr{subject: e, negated: p.skipName("not")}
	line := p.peek().line
	var err error
	if t.name, err = p.dottedName(); err != nil {
		return nil, err
	}
	t.test = testNamed(t.name)
	if t.test == nil && !p.soft {
		p.unknown = append(p.unknown, p.failAt(line, "no test named '%s'", t.name))
	}
	next := p.peek()
	switch {
	case next.op("("):
		t.args, err = p.arguments()
	case next.name("else"), next.name("or"), next.name("and"):
	case next.name("is"):
		return nil, p.fail("tests cannot be chained with is")
	case next.kind == tokenName, next.kind == tokenString, next.kind == tokenInt, next.kind == tokenFloat,
		next.op("["), next.op("{"):
		var arg expr
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg)
		}
		t.args.positional = []expr{arg}
	}
	return t, err
}
