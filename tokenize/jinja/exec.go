package jinja

func (s *textStmt) exec(in *interp) (signal, error) { return next, in.emit(s.text) }

func (s *printStmt) exec(in *interp) (signal, error) {
	switch e := s.value.(type) {
	case *binaryExpr:
		if e.op == opAdd {
			return next, in.printSum(e)
		}
	case *concatExpr:
		return next, in.printConcat(e)
	}
	v, err := s.value.eval(in)
	if err != nil {
		return next, err
	}
	return next, in.print(v)
}

// printSum prints a sum. One of strings goes to the output piece by piece,
// without the strings in between.
func (in *interp) printSum(e *binaryExpr) error {
	v, written, err := in.appendSum(e)
	if err != nil || written {
		return err
	}
	return in.print(v)
}

// appendSum appends a sum of plain strings to the output; any other sum it
// returns.
func (in *interp) appendSum(e *binaryExpr) (v Value, written bool, err error) {
	start := len(in.out)
	if left, ok := e.left.(*binaryExpr); ok && left.op == opAdd {
		v, written, err = in.appendSum(left)
	} else {
		v, err = e.left.eval(in)
	}
	if err == nil && !written && v.isString() && !v.isSafe() {
		err = in.emit(v.text())
		written = true
	}
	if err != nil {
		return Value{}, false, err
	}
	right, err := e.right.eval(in)
	if err != nil {
		return Value{}, false, err
	}
	if written {
		if right.isString() && !right.isSafe() {
			return Value{}, true, in.emit(right.text())
		}
		v = String(string(in.out[start:]))
		in.out = in.out[:start]
	}
	v, err = in.arithmetic(opAdd, v, right)
	return v, false, err
}

func (in *interp) printConcat(e *concatExpr) error {
	for _, part := range e.parts {
		v, err := part.eval(in)
		if err != nil {
			return err
		}
		if err := in.print(v); err != nil {
			return err
		}
	}
	return nil
}

func (s *ifStmt) exec(in *interp) (signal, error) {
	for i := range s.branches {
		b := &s.branches[i]
		v, err := b.test.eval(in)
		if err != nil {
			return next, err
		}
		if v.truth() {
			return in.run(b.body)
		}
	}
	return in.run(s.otherwise)
}

func (s *setStmt) exec(in *interp) (signal, error) {
	v, err := s.value.eval(in)
	if err != nil {
		return next, err
	}
	return next, s.target.assign(in, v)
}

func (s *setBlockStmt) exec(in *interp) (signal, error) {
	in.enter(&s.frame)
	text, sig, err := in.capture(s.body)
	if err != nil || sig != next {
		return sig, err
	}
	v := String(text)
	if s.filter != nil {
		if v, err = applyFilters(in, s.filter, v); err != nil {
			return next, err
		}
	}
	return next, s.target.assign(in, v)
}

func (s *filterBlockStmt) exec(in *interp) (signal, error) {
	in.enter(&s.frame)
	text, sig, err := in.capture(s.body)
	if err != nil || sig != next {
		return sig, err
	}
	v, err := applyFilters(in, s.filter, String(text))
	if err != nil {
		return next, err
	}
	return next, in.print(v)
}

// applyFilters runs a chain of filters whose innermost subject is v.
func applyFilters(in *interp, e expr, v Value) (Value, error) {
	f, ok := e.(*filterExpr)
	if !ok {
		return v, nil
	}
	if f.subject != nil {
		var err error
		if v, err = applyFilters(in, f.subject, v); err != nil {
			return Value{}, err
		}
	}
	return f.apply(in, v)
}

func (s *withStmt) exec(in *interp) (signal, error) {
	base := len(in.stack)
	defer func() { in.stack = in.stack[:base] }()
	for _, e := range s.values {
		v, err := e.eval(in)
		if err != nil {
			return next, err
		}
		in.stack = append(in.stack, v)
	}
	in.enter(&s.frame)
	for i, t := range s.targets {
		if err := t.assign(in, in.stack[base+i]); err != nil {
			return next, err
		}
	}
	return in.run(s.body)
}

func (s *scopeStmt) exec(in *interp) (signal, error) {
	in.enter(&s.frame)
	return in.run(s.body)
}

func (s *breakStmt) exec(*interp) (signal, error) { return breakLoop, nil }

func (s *continueStmt) exec(*interp) (signal, error) { return continueLoop, nil }

func (t *nameTarget) assign(in *interp, v Value) error {
	in.set(t.variable, v)
	return nil
}

func (t *attrTarget) assign(in *interp, v Value) error {
	object := in.get(t.object.variable)
	if object.kind != kindNamespace {
		return typeFault("cannot assign attribute '%s' on a non-namespace object", t.name)
	}
	(*Dict)(object.ref).Set(t.name, v)
	return nil
}

func (t *tupleTarget) assign(in *interp, v Value) error {
	seq, err := in.sequence(v)
	if err != nil {
		return err
	}
	if seq.len() != len(t.items) {
		return typeFault("expected %d values to unpack, got %d", len(t.items), seq.len())
	}
	for i, item := range t.items {
		if err := item.assign(in, seq.at(i)); err != nil {
			return err
		}
	}
	return nil
}
