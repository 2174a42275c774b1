package jinja

func (s *textStmt) exec(in *interp) (signal, error) { return next, in.emit(s.text) }

func (s *printStmt) exec(in *interp) (signal, error) {
	v, written, err := in.emitText(s.value)
	if err != nil || written {
		return next, err
	}
	return next, in.print(v)
}

// emitText evaluates e. A plain string goes to the output, one that e builds
// piece by piece; any other value it returns.
func (in *interp) emitText(e expr) (v Value, written bool, err error) {
	switch e := e.(type) {
	case *binaryExpr:
		if e.op == opAdd {
			return in.emitSum(e)
		}
	case *concatExpr:
		return Value{}, true, in.emitConcat(e)
	}
	if v, err = e.eval(in); err != nil || !v.isString() || v.isSafe() {
		return v, false, err
	}
	return Value{}, true, in.emit(v.text())
}

func (in *interp) emitSum(e *binaryExpr) (v Value, written bool, err error) {
	start := len(in.out)
	v, written, err = in.emitText(e.left)
	if err != nil {
		return Value{}, false, err
	}
	var right Value
	if written {
		right, written, err = in.emitText(e.right)
		if err != nil || written {
			return Value{}, written, err
		}
		// Not a sum of plain strings after all.
		v = String(string(in.out[start:]))
		in.out = in.out[:start]
	} else if right, err = e.right.eval(in); err != nil {
		return Value{}, false, err
	}
	v, err = in.arithmetic(opAdd, v, right)
	return v, false, err
}

func (in *interp) emitConcat(e *concatExpr) error {
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
