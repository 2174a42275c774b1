package jinja

// listFilter returns the filter on sequences with a name, or nil.
func listFilter(name string) filterFunc {
	switch name {
	case "list":
		return filterList
	case "first":
		return filterFirst
	case "last":
		return filterLast
	case "join":
		return filterJoin
	case "reverse":
		return filterReverse
	case "map":
		return filterMap
	case "select":
		return chooseFilter(name, true, false)
	case "reject":
		return chooseFilter(name, false, false)
	case "selectattr":
		return chooseFilter(name, true, true)
	case "rejectattr":
		return chooseFilter(name, false, true)
	case "sort":
		return filterSort
	case "dictsort":
		return filterDictSort
	case "items":
		return filterItems
	case "unique":
		return filterUnique
	case "min":
		return extremeFilter(name, -1)
	case "max":
		return extremeFilter(name, 1)
	case "sum":
		return filterSum
	case "groupby":
		return filterGroupBy
	case "batch":
		return filterBatch
	case "slice":
		return filterSlice
	default:
		return nil
	}
}

func filterList(in *interp, v Value, a args) (Value, error) {
	seq, err := in.sequence(v)
	if err != nil {
		return Value{}, err
	}
	return listOf(seq.all()), a.none("list")
}

func filterFirst(in *interp, v Value, a args) (Value, error) {
	seq, err := in.sequence(v)
	if err != nil {
		return Value{}, err
	}
	if seq.len() == 0 {
		return undefinedBecause("no first item, sequence was empty"), a.none("first")
	}
	return seq.at(0), a.none("first")
}

func filterLast(in *interp, v Value, a args) (Value, error) {
	if v.kind == kindIterator {
		return Value{}, typeFault("'generator' object is not reversible")
	}
	seq, err := in.sequence(v)
	if err != nil {
		return Value{}, err
	}
	if seq.len() == 0 {
		return undefinedBecause("no last item, sequence was empty"), a.none("last")
	}
	return seq.at(seq.len() - 1), a.none("last")
}

func filterJoin(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("join", 0, "d", "attribute")
	if err != nil {
		return Value{}, err
	}
	path, err := newAttrPath(b.or(1, None()))
	if err != nil {
		return Value{}, err
	}
	seq, err := in.sequence(v)
	if err != nil {
		return Value{}, err
	}
	sep, err := in.str(b.or(0, String("")))
	if err != nil {
		return Value{}, err
	}
	base := len(in.parts)
	defer func() { in.parts = in.parts[:base] }()
	total := 0
	for i := range seq.len() {
		item, err := path.get(in, seq.at(i), nil)
		if err != nil {
			return Value{}, err
		}
		s, err := in.str(item)
		if err != nil {
			return Value{}, err
		}
		if i > 0 {
			in.parts = append(in.parts, sep)
			total += len(sep)
		}
		in.parts = append(in.parts, s)
		if total += len(s); total > in.maxOutput {
			return Value{}, fault(CauseLimit, "text too long")
		}
	}
	return in.joined(in.parts[base:], total)
}

func filterReverse(in *interp, v Value, a args) (Value, error) {
	if err := a.none("reverse"); err != nil {
		return Value{}, err
	}
	if v.isString() {
		return in.sliceString(v, nil, nil, -1)
	}
	seq, err := in.sequence(v)
	if err != nil {
		return Value{}, err
	}
	n := seq.len()
	if err := in.spend(1 + n); err != nil {
		return Value{}, err
	}
	items := make([]Value, n)
	for i := range items {
		items[i] = seq.at(n - 1 - i)
	}
	return iteratorOf(items), nil
}

// filterMap is map(attribute=...) or map(filter, arguments).
func filterMap(in *interp, v Value, a args) (Value, error) {
	if !v.truth() { // none of nothing, and of None
		return iteratorOf(nil), nil
	}
	seq, err := in.sequence(v)
	if err != nil {
		return Value{}, err
	}
	apply, err := mapper(a)
	if err != nil {
		return Value{}, err
	}
	if err := in.spend(1 + seq.len()); err != nil {
		return Value{}, err
	}
	items := make([]Value, seq.len())
	for i := range items {
		if items[i], err = apply(in, seq.at(i)); err != nil {
			return Value{}, err
		}
	}
	return iteratorOf(items), nil
}

func mapper(a args) (func(*interp, Value) (Value, error), error) {
	if len(a.pos) == 0 {
		b, err := a.bind("map", 1, "attribute", "default")
		if err != nil {
			return nil, err
		}
		path, err := newAttrPath(b.value[0])
		if err != nil {
			return nil, err
		}
		var otherwise *Value
		if b.given[1] {
			otherwise = &b.value[1]
		}
		return func(in *interp, v Value) (Value, error) { return path.get(in, v, otherwise) }, nil
	}
	f := filterNamed(a.pos[0].Str())
	if f == nil {
		return nil, fault(CauseSyntax, "no filter named '%s'", a.pos[0].Str())
	}
	rest := args{a.pos[1:], a.kw}
	return func(in *interp, v Value) (Value, error) { return f(in, v, rest) }, nil
}

// chooseFilter is select, reject, selectattr and rejectattr.
func chooseFilter(name string, keep, byAttr bool) filterFunc {
	return func(in *interp, v Value, a args) (Value, error) {
		if !v.truth() { // none of nothing, and of None
			return iteratorOf(nil), nil
		}
		var path attrPath
		if byAttr {
			if len(a.pos) == 0 {
				return Value{}, typeFault("%s: missing parameter for attribute name", name)
			}
			var err error
			if path, err = newAttrPath(a.pos[0]); err != nil {
				return Value{}, err
			}
			a.pos = a.pos[1:]
		}
		test := kindTest(Value.truth)
		if len(a.pos) > 0 {
			if test = testNamed(a.pos[0].Str()); test == nil {
				return Value{}, fault(CauseSyntax, "no test named '%s'", a.pos[0].Str())
			}
			a.pos = a.pos[1:]
		}
		seq, err := in.sequence(v)
		if err != nil {
			return Value{}, err
		}
		var items []Value
		for i := range seq.len() {
			if err := in.spend(1); err != nil {
				return Value{}, err
			}
			item := seq.at(i)
			subject, err := path.get(in, item, nil)
			if err != nil {
				return Value{}, err
			}
			ok, err := test(in, subject, a)
			if err != nil {
				return Value{}, err
			}
			if ok == keep {
				items = append(items, item)
			}
		}
		return iteratorOf(items), nil
	}
}

// filterItems yields the pairs of a mapping; of undefined, nothing.
func filterItems(in *interp, v Value, a args) (Value, error) {
	if v.IsUndefined() {
		return iteratorOf(nil), a.none("items")
	}
	d := v.Dict()
	if d == nil {
		return Value{}, typeFault("can only get item pairs from a mapping")
	}
	return viewOf(d, viewItems), a.none("items")
}

func filterBatch(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("batch", 1, "linecount", "fill_with")
	if err != nil {
		return Value{}, err
	}
	n, ok := b.value[0].Int64()
	if !ok || n < 1 {
		return Value{}, typeFault("batch: linecount must be a positive number")
	}
	seq, err := in.sequence(v)
	if err != nil {
		return Value{}, err
	}
	items := seq.all()
	if err := in.spend(1 + len(items)); err != nil {
		return Value{}, err
	}
	var batches []Value
	for len(items) > 0 {
		size := int(min(n, int64(len(items))))
		batch := append([]Value(nil), items[:size]...)
		items = items[size:]
		if fill := b.or(1, None()); !fill.IsNone() {
			if err := in.spend(int(min(n, maxRange*100))); err != nil {
				return Value{}, err
			}
			for int64(len(batch)) < n {
				batch = append(batch, fill)
			}
		}
		batches = append(batches, listOf(batch))
	}
	return iteratorOf(batches), nil
}

func filterSlice(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("slice", 1, "slices", "fill_with")
	if err != nil {
		return Value{}, err
	}
	n, ok := b.value[0].Int64()
	if !ok || n < 1 || n > maxRange {
		return Value{}, typeFault("slice: slices must be a positive number")
	}
	seq, err := in.sequence(v)
	if err != nil {
		return Value{}, err
	}
	items := seq.all()
	if err := in.spend(int(n) + 2*len(items)); err != nil {
		return Value{}, err
	}
	size, longer := len(items)/int(n), len(items)%int(n)
	var slices []Value
	for i, at := 0, 0; i < int(n); i++ {
		width := size
		if i < longer {
			width++
		}
		part := append([]Value(nil), items[at:at+width]...)
		at += width
		if fill := b.or(1, None()); !fill.IsNone() && i >= longer {
			part = append(part, fill)
		}
		slices = append(slices, listOf(part))
	}
	return iteratorOf(slices), nil
}
