package jinja

import "unsafe"

// macro is a macro or the body of a call block, with the variables around it.
type macro struct {
	code   *macroCode
	parent *activation
}

func (s *macroStmt) exec(in *interp) (signal, error) {
	in.set(s.name, macroValue(s.code, in.act))
	return next, nil
}

func macroValue(code *macroCode, parent *activation) Value {
	return Value{kind: kindMacro, ref: unsafe.Pointer(&macro{code, parent})}
}

func (s *callBlockStmt) exec(in *interp) (signal, error) {
	caller := macroValue(s.caller, in.act)
	v, err := s.call.invoke(in, &caller)
	if err != nil {
		return next, err
	}
	return next, in.print(v)
}

// call runs a macro and returns what it printed.
func (m *macro) call(in *interp, a args) (Value, error) {
	if err := in.deeper(); err != nil {
		return Value{}, err
	}
	defer in.shallower()
	code := m.code
	act := in.activate(code.slots, m.parent)
	outer := in.act
	in.act = act
	defer func() {
		in.act = outer
		if !code.captured {
			in.release(act)
		}
	}()
	if err := m.bind(in, a); err != nil {
		return Value{}, err
	}
	text, _, err := in.capture(code.body)
	if err != nil {
		return Value{}, err
	}
	return String(text), nil
}

// bind gives the parameters their values.
func (m *macro) bind(in *interp, a args) error {
	code := m.code
	n := len(code.params)
	slots := in.act.slots
	given := uint64(0) // bit i: parameter i has a value
	for i := range min(len(a.pos), n) {
		slots[code.params[i].slot] = a.pos[i]
		given |= 1 << i
	}
	var extra *Dict
	caller, hasCaller := Value{}, false
	for _, k := range a.kw {
		i := code.param(k.name)
		switch {
		case i >= 0 && i < len(a.pos):
			return typeFault("macro '%s' got two values for '%s'", code.name, k.name)
		case i >= 0:
			slots[code.params[i].slot] = k.value
			given |= 1 << i
		case k.name == "caller" && !hasCaller:
			caller, hasCaller = k.value, true
		default:
			if !code.usesKwargs {
				return typeFault("macro '%s' takes no keyword argument '%s'", code.name, k.name)
			}
			if extra == nil {
				extra = NewDict(len(a.kw))
			}
			extra.Set(k.name, k.value)
		}
	}
	if len(a.pos) > n && !code.usesVarargs {
		return typeFault("macro '%s' takes not more than %d arguments", code.name, n)
	}
	if hasCaller && !code.usesCaller && !code.usesKwargs {
		return typeFault("macro '%s' takes no caller", code.name)
	}
	if code.usesCaller {
		if !hasCaller {
			caller = undefinedBecause("no caller defined")
		}
		slots[code.caller.slot] = caller
	}
	if code.usesVarargs {
		slots[code.varargs.slot] = tuple(append([]Value(nil), a.pos[min(n, len(a.pos)):]...)...)
	}
	if code.usesKwargs {
		slots[code.kwargs.slot] = FromDict(extra)
	}
	return m.bindDefaults(in, given)
}

// bindDefaults gives the parameters without an argument their defaults, and
// the frame's other variables their first values.
func (m *macro) bindDefaults(in *interp, given uint64) error {
	in.enter(&m.code.frame)
	for i := range m.code.params {
		p := &m.code.params[i]
		if given&(1<<i) != 0 {
			continue
		}
		v := undefinedBecause("parameter '" + p.name + "' was not provided")
		if p.fallback != nil {
			var err error
			if v, err = p.fallback.eval(in); err != nil {
				return err
			}
		}
		in.act.slots[p.slot] = v
	}
	return nil
}

// param returns the index of a parameter, or -1.
func (c *macroCode) param(name string) int {
	for i := range c.params {
		if c.params[i].name == name {
			return i
		}
	}
	return -1
}
