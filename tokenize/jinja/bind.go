package jinja

import "slices"

// expr binds the names of an expression.
func (s *scope) expr(x expr) {
	walkNames(x, func(n *nameExpr) { n.variable = s.lookup(n.name) })
}

func (s *scope) target(t target) {
	switch t := t.(type) {
	case *nameTarget:
		t.variable = s.lookup(t.name)
	case *attrTarget:
		t.object.variable = s.lookup(t.object.name)
	case *tupleTarget:
		for _, item := range t.items {
			s.target(item)
		}
	}
}

// stmts binds the names of statements and opens the frames inside them.
func (s *scope) stmts(body []stmt) {
	for _, st := range body {
		switch st := st.(type) {
		case *printStmt:
			s.expr(st.value)
		case *ifStmt:
			for _, b := range st.branches {
				s.expr(b.test)
				s.stmts(b.body)
			}
			s.stmts(st.otherwise)
		case *forStmt:
			s.forStmt(st)
		case *setStmt:
			s.expr(st.value)
			s.target(st.target)
		case *setBlockStmt:
			s.target(st.target)
			if st.filter != nil {
				s.expr(st.filter)
			}
			st.frame = s.inner(st.body)
		case *filterBlockStmt:
			s.expr(st.filter)
			st.frame = s.inner(st.body)
		case *withStmt:
			s.with(st)
		case *scopeStmt:
			st.frame = s.inner(st.body)
		case *macroStmt:
			st.name = s.lookup(st.code.name)
			s.macro(st.code)
		case *callBlockStmt:
			s.expr(st.call)
			s.macro(st.caller)
		case *textStmt, *breakStmt, *continueStmt:
		}
	}
}

// inner binds a body that is a frame of its own.
func (s *scope) inner(body []stmt) frame {
	c := s.child()
	f := c.open(nil, func(e *events) { e.stmts(body) })
	c.stmts(body)
	f.high = s.act.size
	return f
}

func (s *scope) forStmt(st *forStmt) {
	s.expr(st.iterable)
	names := targetNames(st.target, nil)

	c := s.child()
	st.frame = c.open(append([]string{"loop"}, names...), func(e *events) { e.stmts(st.body) })
	if st.recursive {
		s.act.capture() // the loop variable can be called later
	}
	st.usesLoop = st.recursive || usesName(st.body, "loop")
	st.loop = c.lookup("loop")
	c.target(st.target)
	c.stmts(st.body)
	st.frame.high = s.act.size

	if st.filter != nil {
		// The filter sees the loop's targets, but the loop outside.
		c = s.child()
		st.filterFrame = c.open(names, func(*events) {})
		st.filterVars = cloneTarget(st.target)
		c.target(st.filterVars)
		c.expr(st.filter)
		st.filterFrame.high = s.act.size
	}
	st.elseFrame = s.inner(st.otherwise)
}

func (s *scope) with(st *withStmt) {
	for _, v := range st.values {
		s.expr(v)
	}
	var names []string
	for _, t := range st.targets {
		names = targetNames(t, names)
	}
	c := s.child()
	st.frame = c.open(names, func(e *events) { e.stmts(st.body) })
	for _, t := range st.targets {
		c.target(t)
	}
	c.stmts(st.body)
	st.frame.high = s.act.size
}

// macro binds a function body: a frame in an activation of its own.
func (s *scope) macro(code *macroCode) {
	s.act.capture()
	act := &activationLayout{parent: s.act}
	c := &scope{r: s.r, parent: s, act: act, vars: map[string]int{}}
	var params []string
	for _, p := range code.params {
		params = append(params, p.name)
	}
	implicit := func(name string, used *bool, at *variable) {
		if slices.Contains(params, name) || !usesName(code.body, name) {
			return
		}
		*used = true
		c.vars[name] = act.slot()
		at.slot = c.vars[name]
	}
	implicit("caller", &code.usesCaller, &code.caller)
	implicit("varargs", &code.usesVarargs, &code.varargs)
	implicit("kwargs", &code.usesKwargs, &code.kwargs)
	code.frame = c.open(params, func(e *events) {
		for _, p := range code.params {
			if p.fallback != nil {
				e.expr(p.fallback)
			}
		}
		e.stmts(code.body)
	})
	for i := range code.params {
		p := &code.params[i]
		p.slot = c.vars[p.name]
		if p.fallback != nil {
			c.expr(p.fallback)
		}
	}
	c.stmts(code.body)
	code.slots = act.size
	code.captured = act.captured
}

func targetNames(t target, names []string) []string {
	switch t := t.(type) {
	case *nameTarget:
		names = append(names, t.name)
	case *tupleTarget:
		for _, item := range t.items {
			names = targetNames(item, names)
		}
	}
	return names
}

func cloneTarget(t target) target {
	switch t := t.(type) {
	case *nameTarget:
		return &nameTarget{name: t.name}
	case *tupleTarget:
		c := &tupleTarget{}
		for _, item := range t.items {
			c.items = append(c.items, cloneTarget(item))
		}
		return c
	default:
		return t
	}
}

// usesName reports whether a body, or a macro inside it, mentions name.
func usesName(body []stmt, name string) bool {
	found := false
	check := func(n *nameExpr) { found = found || n.name == name }
	var visit func([]stmt)
	visit = func(body []stmt) {
		for _, s := range body {
			switch s := s.(type) {
			case *printStmt:
				walkNames(s.value, check)
			case *ifStmt:
				for _, b := range s.branches {
					walkNames(b.test, check)
					visit(b.body)
				}
				visit(s.otherwise)
			case *forStmt:
				walkNames(s.iterable, check)
				if s.filter != nil {
					walkNames(s.filter, check)
				}
				visit(s.body)
				visit(s.otherwise)
			case *setStmt:
				walkNames(s.value, check)
			case *setBlockStmt:
				if s.filter != nil {
					walkNames(s.filter, check)
				}
				visit(s.body)
			case *filterBlockStmt:
				walkNames(s.filter, check)
				visit(s.body)
			case *withStmt:
				for _, v := range s.values {
					walkNames(v, check)
				}
				visit(s.body)
			case *scopeStmt:
				visit(s.body)
			case *macroStmt:
				visitMacro(s.code, check)
				visit(s.code.body)
			case *callBlockStmt:
				walkNames(s.call, check)
				visitMacro(s.caller, check)
				visit(s.caller.body)
			}
		}
	}
	visit(body)
	return found
}

func visitMacro(code *macroCode, check func(*nameExpr)) {
	for _, p := range code.params {
		if p.fallback != nil {
			walkNames(p.fallback, check)
		}
	}
}
