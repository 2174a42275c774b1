package jinja

import "unsafe"

// args are the evaluated arguments of one call. They are only valid during the
// call: whoever keeps them copies.
type args struct {
	pos []Value
	kw  []keyword
}

type keyword struct {
	name  string
	value Value
}

// builtinFunc is a function of the environment, or a method bound to self.
type builtinFunc func(in *interp, self Value, a args) (Value, error)

// boundMethod is a method taken from its object without being called.
type boundMethod struct {
	self Value
	name string
	call builtinFunc
}

type builtin struct {
	name string
	call builtinFunc
}

// eval evaluates the arguments onto the interpreter's stack, which the caller
// cuts back after the call. caller, if not nil, is an extra keyword argument.
func (l *argList) eval(in *interp, caller *Value) (args, error) {
	var a args
	base := len(in.stack)
	for _, e := range l.positional {
		v, err := e.eval(in)
		if err != nil {
			return a, err
		}
		in.stack = append(in.stack, v)
	}
	if l.star != nil {
		v, err := l.star.eval(in)
		if err != nil {
			return a, err
		}
		seq, err := in.sequence(v)
		if err != nil {
			return a, err
		}
		// Twice: whoever keeps the arguments copies them.
		if err := in.spend(2 * seq.len()); err != nil {
			return a, err
		}
		in.stack = append(in.stack, seq.all()...)
	}
	for i := range l.named {
		v, err := l.named[i].value.eval(in)
		if err != nil {
			return a, err
		}
		if a.kw == nil {
			a.kw = make([]keyword, 0, len(l.named)+1)
		}
		a.kw = append(a.kw, keyword{l.named[i].name, v})
	}
	if caller != nil {
		a.kw = append(a.kw, keyword{"caller", *caller})
	}
	if l.starStar != nil {
		v, err := l.starStar.eval(in)
		if err != nil {
			return a, err
		}
		if a.kw, err = in.spread(v, a.kw); err != nil {
			return a, err
		}
	}
	a.pos = in.stack[base:len(in.stack):len(in.stack)]
	return a, nil
}

// spread adds the keys of a **mapping to keywords.
func (in *interp) spread(v Value, kw []keyword) ([]keyword, error) {
	d := v.Dict()
	if d == nil {
		return nil, typeFault("argument after ** must be a mapping, not '%s'", typeName(v))
	}
	if err := in.spend(2 * d.Len()); err != nil {
		return nil, err
	}
	for i := range d.entries {
		k := d.entries[i].key
		if !k.isString() {
			return nil, typeFault("keywords must be strings")
		}
		for _, have := range kw {
			if have.name == k.text() {
				return nil, typeFault("multiple values for keyword argument '%s'", have.name)
			}
		}
		kw = append(kw, keyword{k.text(), d.entries[i].value})
	}
	return kw, nil
}

func (e *callExpr) eval(in *interp) (Value, error) { return e.invoke(in, nil) }

// invoke evaluates callee and arguments and calls.
func (e *callExpr) invoke(in *interp, caller *Value) (Value, error) {
	if err := in.spend(1); err != nil {
		return Value{}, err
	}
	attr, ok := e.callee.(*attrExpr)
	if !ok {
		callee, err := e.callee.eval(in)
		if err != nil {
			return Value{}, err
		}
		return e.finish(in, callee, caller)
	}
	object, err := attr.object.eval(in)
	if err != nil {
		return Value{}, err
	}
	call, _ := attr.methods.of(object)
	if call == nil && object.kind != kindLoop {
		callee, err := in.attr(object, attr.name, attr.methods)
		if err != nil {
			return Value{}, err
		}
		return e.finish(in, callee, caller)
	}
	// A method needs no value of its own.
	base := len(in.stack)
	a, err := e.args.eval(in, caller)
	if err != nil {
		return Value{}, err
	}
	var v Value
	if call != nil {
		v, err = call(in, object, a)
	} else {
		v, err = (*loopState)(object.ref).method(in, attr, a)
	}
	in.stack = in.stack[:base]
	return v, err
}

func (e *callExpr) finish(in *interp, callee Value, caller *Value) (Value, error) {
	base := len(in.stack)
	a, err := e.args.eval(in, caller)
	if err != nil {
		return Value{}, err
	}
	v, err := in.call(callee, a)
	in.stack = in.stack[:base]
	return v, err
}

// call calls a value.
func (in *interp) call(callee Value, a args) (Value, error) {
	switch callee.kind {
	case kindMacro:
		return (*macro)(callee.ref).call(in, a)
	case kindBuiltin:
		return (*builtin)(callee.ref).call(in, callee, a)
	case kindMethod:
		m := (*boundMethod)(callee.ref)
		return m.call(in, m.self, a)
	case kindLoop:
		return (*loopState)(callee.ref).call(in, a)
	case kindCycler:
		return Value{}, typeFault("'Cycler' object is not callable")
	case kindJoiner:
		return (*joiner)(callee.ref).call(), nil
	case KindUndefined:
		return Value{}, in.useUndefined(callee)
	default:
		return Value{}, typeFault("'%s' object is not callable", typeName(callee))
	}
}

func builtinValue(name string, call builtinFunc) Value {
	return Value{kind: kindBuiltin, ref: unsafe.Pointer(&builtin{name, call})}
}

// maxBound is the most parameters a built-in function has.
const maxBound = 6

// bound are the arguments of a built-in function by parameter.
type bound struct {
	value [maxBound]Value
	given [maxBound]bool
}

// bind gives each parameter its argument, the first required of which must be
// there.
func (a args) bind(function string, required int, params ...string) (bound, error) {
	var b bound
	if len(a.pos) > len(params) {
		return b, typeFault("%s() takes at most %d arguments, got %d", function, len(params), len(a.pos))
	}
	for i, v := range a.pos {
		b.value[i], b.given[i] = v, true
	}
keywords:
	for _, k := range a.kw {
		for i, name := range params {
			if name != k.name {
				continue
			}
			if b.given[i] {
				return b, typeFault("%s() got multiple values for argument '%s'", function, name)
			}
			b.value[i], b.given[i] = k.value, true
			continue keywords
		}
		return b, typeFault("%s() got an unexpected keyword argument '%s'", function, k.name)
	}
	for i := range required {
		if !b.given[i] {
			return b, typeFault("%s() is missing the argument '%s'", function, params[i])
		}
	}
	return b, nil
}

// none reports an error when there are arguments.
func (a args) none(function string) error {
	if len(a.pos)+len(a.kw) > 0 {
		return typeFault("%s() takes no arguments", function)
	}
	return nil
}

// or returns argument i, or a default.
func (b *bound) or(i int, otherwise Value) Value {
	if b.given[i] {
		return b.value[i]
	}
	return otherwise
}

// truth returns the truth of argument i, and false without one.
func (b *bound) truth(i int) bool { return b.given[i] && b.value[i].truth() }
