package jinja

// storableName reads a name that can be assigned to.
func (p *parser) storableName() (string, error) {
	t := p.peek()
	name, err := p.expectName()
	if err != nil {
		return "", err
	}
	switch name {
	case "true", "false", "none", "True", "False", "None":
		return "", p.failAt(t.line, "can't assign to '%s'", name)
	}
	return name, nil
}

// assignTarget reads what is assigned to: with tuples, and with attributes of
// namespaces, where they are allowed.
func (p *parser) assignTarget(tuples, attributes bool) (target, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var items []target
	isTuple := false
	for {
		var item target
		var err error
		switch {
		case tuples && p.skipOp("("):
			if item, err = p.assignTarget(true, attributes); err == nil {
				err = p.expectOp(")")
			}
		case attributes && p.peekAt(1).op("."):
			a := &attrTarget{}
			if a.object, err = p.targetObject(); err == nil {
				a.name, err = p.expectName()
			}
			item = a
		default:
			n := &nameTarget{}
			n.name, err = p.storableName()
			item = n
		}
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		if !tuples || !p.skipOp(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		return items[0], nil
	}
	return &tupleTarget{items}, nil
}

func (p *parser) targetObject() (*nameExpr, error) {
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	p.pos++ // the dot
	return &nameExpr{name: name}, nil
}
