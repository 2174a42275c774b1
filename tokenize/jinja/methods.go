package jinja

// methodSet is the methods that share a name, by the type they belong to.
type methodSet struct {
	str, list, dict, float, cycler builtinFunc
	// changesList and changesDict are methods that the sandbox refuses.
	changesList, changesDict bool
}

// of returns object's method, or whether the sandbox refuses it.
func (m *methodSet) of(object Value) (call builtinFunc, refused bool) {
	if m == nil {
		return nil, false
	}
	switch object.kind {
	case KindString:
		return m.str, false
	case KindDict:
		return m.dict, m.changesDict
	case KindList:
		return m.list, m.changesList
	case KindTuple:
		return m.list, false
	case KindFloat:
		return m.float, false
	case kindCycler:
		return m.cycler, false
	default:
		return nil, false
	}
}

// methodsNamed returns the methods with a name, or nil.
func methodsNamed(name string) *methodSet {
	m := &methodSet{str: stringMethod(name)}
	switch name {
	case "append", "extend", "insert", "remove", "reverse", "sort":
		m.changesList = true
	case "pop", "clear":
		m.changesList, m.changesDict = true, true
	case "popitem", "setdefault", "update":
		m.changesDict = true
	case "count":
		m.list = listCount
	case "index":
		m.list = listIndex
	case "copy":
		m.list, m.dict = copySelf, copySelf
	case "items":
		m.dict = dictItems
	case "keys":
		m.dict = dictKeys
	case "values":
		m.dict = dictValues
	case "get":
		m.dict = dictGet
	case "next":
		m.cycler = cyclerNext
	case "reset":
		m.cycler = cyclerReset
	case "is_integer":
		m.float = floatIsInteger
	default:
		if m.str == nil {
			return nil
		}
	}
	return m
}

func dictGet(in *interp, self Value, a args) (Value, error) {
	if len(a.kw) > 0 || len(a.pos) < 1 || len(a.pos) > 2 {
		return Value{}, typeFault("get() takes one or two arguments")
	}
	if err := in.hashable(a.pos[0]); err != nil {
		return Value{}, err
	}
	d := self.Dict()
	if i := d.findValue(a.pos[0]); i >= 0 {
		return d.entries[i].value, nil
	}
	if len(a.pos) == 2 {
		return a.pos[1], nil
	}
	return None(), nil
}

func dictItems(_ *interp, self Value, a args) (Value, error) {
	return viewOf(self.Dict(), viewItems), a.none("items")
}

func dictKeys(_ *interp, self Value, a args) (Value, error) {
	return viewOf(self.Dict(), viewKeys), a.none("keys")
}

func dictValues(_ *interp, self Value, a args) (Value, error) {
	return viewOf(self.Dict(), viewValues), a.none("values")
}

// copySelf copies a list or dict: nothing can change either, so it is its own
// copy.
func copySelf(_ *interp, self Value, a args) (Value, error) { return self, a.none("copy") }

func floatIsInteger(_ *interp, self Value, a args) (Value, error) {
	f := floatFrom(self.num)
	return Bool(f == float64(int64(f)) || f >= 1<<53 || f <= -1<<53), a.none("is_integer")
}

func listCount(in *interp, self Value, a args) (Value, error) {
	b, err := a.bind("count", 1, "value")
	if err != nil {
		return Value{}, err
	}
	n := int64(0)
	for _, item := range self.List().items {
		if err := in.spend(1); err != nil {
			return Value{}, err
		}
		same, err := in.equal(item, b.value[0])
		if err != nil {
			return Value{}, err
		}
		if same {
			n++
		}
	}
	return Int(n), nil
}

func listIndex(in *interp, self Value, a args) (Value, error) {
	b, err := a.bind("index", 1, "value")
	if err != nil {
		return Value{}, err
	}
	for i, item := range self.List().items {
		if err := in.spend(1); err != nil {
			return Value{}, err
		}
		same, err := in.equal(item, b.value[0])
		if err != nil {
			return Value{}, err
		}
		if same {
			return Int(int64(i)), nil
		}
	}
	return Value{}, typeFault("value is not in the list")
}
