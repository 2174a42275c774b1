package jinja

func (e *constExpr) eval(*interp) (Value, error) { return e.value, nil }

func (e *nameExpr) eval(in *interp) (Value, error) {
	v := in.get(e.variable)
	if v.kind == KindUndefined && v.ref == nil {
		return undefinedName(e.name), nil
	}
	return v, nil
}

func (e *attrExpr) eval(in *interp) (Value, error) {
	object, err := e.object.eval(in)
	if err != nil {
		return Value{}, err
	}
	return in.attr(object, e.name, e.methods)
}

func (e *itemExpr) eval(in *interp) (Value, error) {
	object, err := e.object.eval(in)
	if err != nil {
		return Value{}, err
	}
	if s, ok := e.index.(*sliceExpr); ok {
		return s.apply(in, object)
	}
	index, err := e.index.eval(in)
	if err != nil {
		return Value{}, err
	}
	return in.item(object, index)
}

func (e *sliceExpr) eval(*interp) (Value, error) {
	return Value{}, fault(CauseUnsupported, "a slice among several subscripts")
}

func (e *filterExpr) eval(in *interp) (Value, error) {
	v, err := e.subject.eval(in)
	if err != nil {
		return Value{}, err
	}
	return e.apply(in, v)
}

// apply runs the filter on a value.
func (e *filterExpr) apply(in *interp, v Value) (Value, error) {
	if e.filter == nil {
		return Value{}, fault(CauseSyntax, "no filter named '%s'", e.name)
	}
	if err := in.spend(1); err != nil {
		return Value{}, err
	}
	base := len(in.stack)
	a, err := e.args.eval(in, nil)
	if err != nil {
		return Value{}, err
	}
	v, err = e.filter(in, v, a)
	in.stack = in.stack[:base]
	return v, err
}

func (e *testExpr) eval(in *interp) (Value, error) {
	v, err := e.subject.eval(in)
	if err != nil {
		return Value{}, err
	}
	if e.test == nil {
		return Value{}, fault(CauseSyntax, "no test named '%s'", e.name)
	}
	base := len(in.stack)
	a, err := e.args.eval(in, nil)
	if err != nil {
		return Value{}, err
	}
	ok, err := e.test(in, v, a)
	in.stack = in.stack[:base]
	return Bool(ok != e.negated), err
}

func (e *notExpr) eval(in *interp) (Value, error) {
	v, err := e.operand.eval(in)
	return Bool(!v.truth()), err
}

func (e *negateExpr) eval(in *interp) (Value, error) {
	v, err := e.operand.eval(in)
	if err != nil {
		return Value{}, err
	}
	return in.negate(v)
}

func (e *plusExpr) eval(in *interp) (Value, error) {
	v, err := e.operand.eval(in)
	if err != nil {
		return Value{}, err
	}
	if i, ok := v.asInt(); ok {
		return i, nil
	}
	if v.kind == KindFloat {
		return v, nil
	}
	return Value{}, in.badOperand("+", v)
}

func (e *andExpr) eval(in *interp) (Value, error) {
	v, err := e.left.eval(in)
	if err != nil || !v.truth() {
		return v, err
	}
	return e.right.eval(in)
}

func (e *orExpr) eval(in *interp) (Value, error) {
	v, err := e.left.eval(in)
	if err != nil || v.truth() {
		return v, err
	}
	return e.right.eval(in)
}

func (e *binaryExpr) eval(in *interp) (Value, error) {
	left, err := e.left.eval(in)
	if err != nil {
		return Value{}, err
	}
	right, err := e.right.eval(in)
	if err != nil {
		return Value{}, err
	}
	return in.arithmetic(e.op, left, right)
}

func (e *concatExpr) eval(in *interp) (Value, error) {
	base := len(in.parts)
	defer func() { in.parts = in.parts[:base] }()
	total := 0
	for _, part := range e.parts {
		v, err := part.eval(in)
		if err != nil {
			return Value{}, err
		}
		s, err := in.str(v)
		if err != nil {
			return Value{}, err
		}
		total += len(s)
		in.parts = append(in.parts, s)
	}
	return in.joined(in.parts[base:], total)
}

// joined concatenates parts of total bytes.
func (in *interp) joined(parts []string, total int) (Value, error) {
	if err := in.spendText(total); err != nil {
		return Value{}, err
	}
	b := make([]byte, 0, total)
	for _, s := range parts {
		b = append(b, s...)
	}
	return ownedString(b), nil
}

func (e *compareExpr) eval(in *interp) (Value, error) {
	left, err := e.first.eval(in)
	if err != nil {
		return Value{}, err
	}
	for i := range e.rest {
		c := &e.rest[i]
		right, err := c.right.eval(in)
		if err != nil {
			return Value{}, err
		}
		ok, err := in.compare(c.op, left, right)
		if err != nil || !ok {
			return Bool(false), err
		}
		left = right
	}
	return Bool(true), nil
}

func (e *condExpr) eval(in *interp) (Value, error) {
	v, err := e.test.eval(in)
	if err != nil {
		return Value{}, err
	}
	switch {
	case v.truth():
		return e.then.eval(in)
	case e.otherwise != nil:
		return e.otherwise.eval(in)
	default:
		return undefinedBecause("the inline if-expression evaluated to false and no else section was defined"), nil
	}
}

func (e *listExpr) eval(in *interp) (Value, error) {
	items, err := in.all(e.items)
	return listOf(items), err
}

func (e *tupleExpr) eval(in *interp) (Value, error) {
	items, err := in.all(e.items)
	return tuple(items...), err
}

func (in *interp) all(exprs []expr) ([]Value, error) {
	if err := in.spend(1 + len(exprs)); err != nil {
		return nil, err
	}
	items := make([]Value, len(exprs))
	for i, e := range exprs {
		var err error
		if items[i], err = e.eval(in); err != nil {
			return nil, err
		}
	}
	return items, nil
}

func (e *dictExpr) eval(in *interp) (Value, error) {
	if err := in.spend(1 + 4*len(e.items)); err != nil {
		return Value{}, err
	}
	d := NewDict(len(e.items))
	for i := range e.items {
		key, err := e.items[i].key.eval(in)
		if err != nil {
			return Value{}, err
		}
		if err := in.hashable(key); err != nil {
			return Value{}, err
		}
		v, err := e.items[i].value.eval(in)
		if err != nil {
			return Value{}, err
		}
		d.setValue(key, v)
	}
	return FromDict(d), nil
}
