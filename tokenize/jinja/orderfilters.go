package jinja

import (
	"slices"
	"strings"
)

// foldCase is how filters compare strings without case.
func foldCase(v Value) Value {
	if v.isString() {
		return String(lower(v.text()))
	}
	return v
}

// sortBy sorts items stably by keys.
func (in *interp) sortBy(items, keys []Value, reverse bool) ([]Value, error) {
	if err := in.spend(4 * len(items)); err != nil {
		return nil, err
	}
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	var failed error
	slices.SortStableFunc(order, func(i, j int) int {
		if failed != nil {
			return 0
		}
		if reverse { // stable, as Python's reverse is
			i, j = j, i
		}
		if failed = in.spend(1); failed != nil {
			return 0
		}
		c, _, err := in.order(opLess, keys[i], keys[j])
		if err != nil {
			failed = err
		}
		return c
	})
	if failed != nil {
		return nil, failed
	}
	sorted := make([]Value, len(items))
	for i, at := range order {
		sorted[i] = items[at]
	}
	return sorted, nil
}

// keysOf returns what items are compared by.
func (in *interp) keysOf(items []Value, attribute Value, caseSensitive bool, otherwise *Value) ([]Value, error) {
	path, err := newAttrPath(attribute)
	if err != nil {
		return nil, err
	}
	if err := in.spend(1 + len(items)); err != nil {
		return nil, err
	}
	keys := make([]Value, len(items))
	for i, item := range items {
		if keys[i], err = path.get(in, item, otherwise); err != nil {
			return nil, err
		}
		if !caseSensitive {
			keys[i] = foldCase(keys[i])
		}
	}
	return keys, nil
}

// sortKeys is keysOf for an attribute that may be several with commas between
// them.
func (in *interp) sortKeys(items []Value, attribute Value, caseSensitive bool) ([]Value, error) {
	if !strings.Contains(attribute.Str(), ",") {
		return in.keysOf(items, attribute, caseSensitive, nil)
	}
	names := strings.Split(attribute.Str(), ",")
	keys := make([]Value, len(items))
	for i := range items {
		if err := in.spend(len(names)); err != nil {
			return nil, err
		}
		parts := make([]Value, 0, len(names))
		for _, name := range names {
			part, err := in.keysOf(items[i:i+1], String(name), caseSensitive, nil)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part[0])
		}
		keys[i] = listOf(parts)
	}
	return keys, nil
}

func filterSort(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("sort", 0, "reverse", "case_sensitive", "attribute")
	if err != nil {
		return Value{}, err
	}
	seq, err := in.sequence(v)
	if err != nil {
		return Value{}, err
	}
	items := seq.all()
	keys, err := in.sortKeys(items, b.or(2, None()), b.truth(1))
	if err != nil {
		return Value{}, err
	}
	sorted, err := in.sortBy(items, keys, b.truth(0))
	return listOf(sorted), err
}

func filterDictSort(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("dictsort", 0, "case_sensitive", "by", "reverse")
	if err != nil {
		return Value{}, err
	}
	d := v.Dict()
	if d == nil {
		if v.IsUndefined() {
			return Value{}, in.useUndefined(v)
		}
		return Value{}, typeFault("'%s' object has no attribute 'items'", typeName(v))
	}
	by := b.or(1, String("key")).Str()
	if by != "key" && by != "value" {
		return Value{}, typeFault("dictsort: you can only sort by either 'key' or 'value'")
	}
	if err := in.spend(4 * d.Len()); err != nil {
		return Value{}, err
	}
	pairs := make([]Value, d.Len())
	keys := make([]Value, d.Len())
	for i, e := range d.entries {
		pairs[i] = tuple(e.key, e.value)
		keys[i] = e.key
		if by == "value" {
			keys[i] = e.value
		}
		if !b.truth(0) {
			keys[i] = foldCase(keys[i])
		}
	}
	sorted, err := in.sortBy(pairs, keys, b.truth(2))
	return listOf(sorted), err
}

func filterUnique(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("unique", 0, "case_sensitive", "attribute")
	if err != nil {
		return Value{}, err
	}
	seq, err := in.sequence(v)
	if err != nil {
		return Value{}, err
	}
	items := seq.all()
	keys, err := in.keysOf(items, b.or(1, None()), b.truth(0), nil)
	if err != nil {
		return Value{}, err
	}
	seen := NewDict(0)
	var kept []Value
	for i, key := range keys {
		if err := in.hashable(key); err != nil {
			return Value{}, err
		}
		cost := 1
		if !key.isString() {
			cost += seen.Len() // found by scan
		}
		if err := in.spend(cost); err != nil {
			return Value{}, err
		}
		if seen.findValue(key) < 0 {
			seen.setValue(key, None())
			kept = append(kept, items[i])
		}
	}
	return iteratorOf(kept), nil
}

// extremeFilter is min and max.
func extremeFilter(name string, sign int) filterFunc {
	return func(in *interp, v Value, a args) (Value, error) {
		b, err := a.bind(name, 0, "case_sensitive", "attribute")
		if err != nil {
			return Value{}, err
		}
		seq, err := in.sequence(v)
		if err != nil {
			return Value{}, err
		}
		items := seq.all()
		keys, err := in.keysOf(items, b.or(1, None()), b.truth(0), nil)
		if err != nil {
			return Value{}, err
		}
		if len(items) == 0 {
			return undefinedBecause("no aggregated item, sequence was empty"), nil
		}
		best := 0
		for i := range keys {
			order, _, err := in.order(opLess, keys[i], keys[best])
			if err != nil {
				return Value{}, err
			}
			if order*sign > 0 {
				best = i
			}
		}
		return items[best], nil
	}
}

func filterSum(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("sum", 0, "attribute", "start")
	if err != nil {
		return Value{}, err
	}
	path, err := newAttrPath(b.or(0, None()))
	if err != nil {
		return Value{}, err
	}
	seq, err := in.sequence(v)
	if err != nil {
		return Value{}, err
	}
	total := b.or(1, Int(0))
	if total.isString() {
		return Value{}, typeFault("sum() can't sum strings")
	}
	for i := range seq.len() {
		item, err := path.get(in, seq.at(i), nil)
		if err != nil {
			return Value{}, err
		}
		if total, err = in.arithmetic(opAdd, total, item); err != nil {
			return Value{}, err
		}
		if err := in.spend(1); err != nil {
			return Value{}, err
		}
	}
	return total, nil
}

// filterGroupBy sorts by an attribute and yields (key, items) pairs.
func filterGroupBy(in *interp, v Value, a args) (Value, error) {
	b, err := a.bind("groupby", 1, "attribute", "default", "case_sensitive")
	if err != nil {
		return Value{}, err
	}
	seq, err := in.sequence(v)
	if err != nil {
		return Value{}, err
	}
	var otherwise *Value
	if b.given[1] {
		otherwise = &b.value[1]
	}
	items := seq.all()
	keys, err := in.keysOf(items, b.value[0], b.truth(2), otherwise)
	if err != nil {
		return Value{}, err
	}
	if items, err = in.sortBy(items, keys, false); err != nil {
		return Value{}, err
	}
	if keys, err = in.keysOf(items, b.value[0], b.truth(2), otherwise); err != nil {
		return Value{}, err
	}
	var groups []Value
	for start := 0; start < len(items); {
		end := start + 1
		for ; end < len(items); end++ {
			if same, err := in.equal(keys[start], keys[end]); err != nil || !same {
				if err != nil {
					return Value{}, err
				}
				break
			}
		}
		// The group is named by its first item's value in its own case.
		named, err := in.keysOf(items[start:start+1], b.value[0], true, otherwise)
		if err != nil {
			return Value{}, err
		}
		groups = append(groups, tuple(named[0], listOf(items[start:end:end])))
		start = end
	}
	return listOf(groups), nil
}
