package jinja

// The resolver gives every name a slot, with Jinja2's scoping: a frame (the
// template, a loop body, a macro, a block set) that assigns a name anywhere has
// a variable of its own, which starts as the outer one when the frame is
// entered; a name nobody assigns is a render variable or a global and gets its
// slot in the outermost activation.
type resolver struct {
	root    *activationLayout
	globals map[string]int // slots of names that come from outside
	names   []string       // by slot order of globals
	slots   []int
}

// activationLayout is one slot array: of the template, or of a macro.
type activationLayout struct {
	parent   *activationLayout
	size     int
	captured bool
}

func (a *activationLayout) slot() int {
	a.size++
	return a.size - 1
}

// capture marks a and those around it as kept beyond the call.
func (a *activationLayout) capture() {
	for ; a != nil; a = a.parent {
		a.captured = true
	}
}

// scope is one frame while its names are being resolved.
type scope struct {
	r      *resolver
	parent *scope
	act    *activationLayout
	vars   map[string]int
}

func (s *scope) find(name string) (variable, bool) {
	up := 0
	for at := s; at != nil; at = at.parent {
		if slot, ok := at.vars[name]; ok {
			return variable{up, slot}, true
		}
		if at.parent != nil && at.parent.act != at.act {
			up++
		}
	}
	return variable{}, false
}

// lookup is find, or else the variable that comes from outside.
func (s *scope) lookup(name string) variable {
	if v, ok := s.find(name); ok {
		return v
	}
	slot, ok := s.r.globals[name]
	if !ok {
		slot = s.r.root.slot()
		s.r.globals[name] = slot
		s.r.names = append(s.r.names, name)
		s.r.slots = append(s.r.slots, slot)
	}
	up := 0
	for a := s.act; a != s.r.root; a = a.parent {
		up++
	}
	return variable{up, slot}
}

// resolve fills in the variables of a template.
func resolve(body []stmt) (root frame, size int, names []string, slots []int) {
	r := &resolver{root: &activationLayout{}, globals: map[string]int{}}
	s := &scope{r: r, act: r.root, vars: map[string]int{}}
	f := s.open(nil, func(e *events) { e.stmts(body) })
	s.stmts(body)
	return f, r.root.size, r.names, r.slots
}

// child is a scope inside s in the same activation.
func (s *scope) child() *scope {
	return &scope{r: s.r, parent: s, act: s.act, vars: map[string]int{}}
}

// open declares the parameters of the frame and the names it assigns, and
// returns what they start as.
func (s *scope) open(params []string, scan func(*events)) frame {
	f := frame{low: s.act.size}
	for _, name := range params {
		if _, ok := s.vars[name]; !ok {
			s.vars[name] = s.act.slot()
		}
	}
	e := &events{first: map[string]event{}}
	scan(e)
	for _, name := range e.order {
		ev := e.first[name]
		if _, isParam := s.vars[name]; isParam || !ev.stored {
			continue
		}
		init := slotInit{}
		var outer variable
		found := false
		if s.parent != nil {
			outer, found = s.parent.find(name)
			// An outer variable of another activation is one hop further.
			if found && s.parent.act != s.act {
				outer.up++
			}
		}
		switch {
		case found:
			init.from, init.known = outer, true
		case !ev.storedFirst:
			init.from, init.known = s.lookup(name), true
		}
		init.slot = s.act.slot()
		s.vars[name] = init.slot
		f.inits = append(f.inits, init)
	}
	return f
}

// events records how a frame uses each name, in order.
type events struct {
	first map[string]event
	order []string
	maybe int // > 0 inside a branch
}

type event struct {
	stored      bool
	storedFirst bool // an assignment that always runs comes before any use
}

func (e *events) load(name string) {
	if _, ok := e.first[name]; !ok {
		e.first[name] = event{}
		e.order = append(e.order, name)
	}
}

func (e *events) store(name string) {
	ev, ok := e.first[name]
	if !ok {
		e.order = append(e.order, name)
		ev.storedFirst = e.maybe == 0
	}
	ev.stored = true
	e.first[name] = ev
}

func (e *events) target(t target) {
	switch t := t.(type) {
	case *nameTarget:
		e.store(t.name)
	case *attrTarget:
		e.load(t.object.name)
	case *tupleTarget:
		for _, item := range t.items {
			e.target(item)
		}
	}
}

// stmts visits what belongs to the frame itself, not to the frames inside it.
func (e *events) stmts(body []stmt) {
	for _, s := range body {
		switch s := s.(type) {
		case *printStmt:
			e.expr(s.value)
		case *ifStmt:
			e.ifStmt(s)
		case *forStmt:
			e.expr(s.iterable)
		case *setStmt:
			e.expr(s.value)
			e.target(s.target)
		case *setBlockStmt:
			e.target(s.target)
		case *filterBlockStmt:
			e.expr(s.filter)
		case *withStmt:
			for _, v := range s.values {
				e.expr(v)
			}
		case *macroStmt:
			e.store(s.code.name)
		case *callBlockStmt:
			e.expr(s.call)
		case *textStmt, *scopeStmt, *breakStmt, *continueStmt:
		}
	}
}

func (e *events) ifStmt(s *ifStmt) {
	e.expr(s.branches[0].test)
	e.maybe++
	for i, b := range s.branches {
		if i > 0 {
			e.expr(b.test)
		}
		e.stmts(b.body)
	}
	e.stmts(s.otherwise)
	e.maybe--
}

func (e *events) expr(x expr) {
	walkNames(x, func(n *nameExpr) { e.load(n.name) })
}

// walkNames calls f for every name in x.
func walkNames(x expr, f func(*nameExpr)) {
	each := func(xs ...expr) {
		for _, x := range xs {
			if x != nil {
				walkNames(x, f)
			}
		}
	}
	args := func(a *argList) {
		each(a.positional...)
		for _, n := range a.named {
			each(n.value)
		}
		each(a.star, a.starStar)
	}
	switch x := x.(type) {
	case *nameExpr:
		f(x)
	case *attrExpr:
		each(x.object)
	case *itemExpr:
		each(x.object, x.index)
	case *sliceExpr:
		each(x.start, x.stop, x.step)
	case *callExpr:
		each(x.callee)
		args(&x.args)
	case *filterExpr:
		each(x.subject)
		args(&x.args)
	case *testExpr:
		each(x.subject)
		args(&x.args)
	case *notExpr:
		each(x.operand)
	case *negateExpr:
		each(x.operand)
	case *plusExpr:
		each(x.operand)
	case *andExpr:
		each(x.left, x.right)
	case *orExpr:
		each(x.left, x.right)
	case *binaryExpr:
		each(x.left, x.right)
	case *concatExpr:
		each(x.parts...)
	case *compareExpr:
		each(x.first)
		for _, c := range x.rest {
			each(c.right)
		}
	case *condExpr:
		each(x.test, x.then, x.otherwise)
	case *listExpr:
		each(x.items...)
	case *tupleExpr:
		each(x.items...)
	case *dictExpr:
		for _, item := range x.items {
			each(item.key, item.value)
		}
	case *constExpr, nil:
	}
}
