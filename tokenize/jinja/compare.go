package jinja

import "strings"

// compare is == != < <= > >= in and not in.
func (in *interp) compare(op operator, a, b Value) (bool, error) {
	switch op {
	case opEqual:
		return in.equal(a, b)
	case opNotEqual:
		ok, err := in.equal(a, b)
		return !ok, err
	case opIn:
		return in.contains(b, a)
	case opNotIn:
		ok, err := in.contains(b, a)
		return !ok, err
	default:
		return in.ordered(op, a, b)
	}
}

// equal is ==.
func (in *interp) equal(a, b Value) (bool, error) {
	switch {
	case a.isNumber() && b.isNumber():
		order, ok := compareNumbers(a, b)
		return ok && order == 0, nil
	case a.kind != b.kind:
		return false, nil
	}
	switch a.kind {
	case KindString:
		if len(a.text()) == len(b.text()) {
			return a.text() == b.text(), in.spendText(len(a.text()))
		}
		return false, nil
	case KindNone, KindUndefined:
		return true, nil
	case KindList, KindTuple:
		return in.equalLists(a.List().items, b.List().items)
	case KindDict:
		return in.equalDicts(a.Dict(), b.Dict())
	case kindRange:
		return (*pyRange)(a.ref).equal((*pyRange)(b.ref)), nil
	case kindView:
		return in.equalViews((*view)(a.ref), (*view)(b.ref))
	default:
		return a.ref == b.ref, nil
	}
}

func (in *interp) equalLists(x, y []Value) (bool, error) {
	if len(x) != len(y) {
		return false, nil
	}
	if err := in.deeper(); err != nil {
		return false, err
	}
	defer in.shallower()
	for i := range x {
		if err := in.spend(1); err != nil {
			return false, err
		}
		if ok, err := in.equal(x[i], y[i]); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func (in *interp) equalDicts(x, y *Dict) (bool, error) {
	if x.Len() != y.Len() {
		return false, nil
	}
	if err := in.deeper(); err != nil {
		return false, err
	}
	defer in.shallower()
	for i := range x.entries {
		if err := in.spend(1); err != nil {
			return false, err
		}
		j := y.findValue(x.entries[i].key)
		if j < 0 {
			return false, nil
		}
		if ok, err := in.equal(x.entries[i].value, y.entries[j].value); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// equalViews compares keys and items as sets, and values by identity.
func (in *interp) equalViews(x, y *view) (bool, error) {
	switch {
	case x.what == viewValues || x.what != y.what:
		return x == y, nil
	case x.what == viewItems:
		return in.equalDicts(x.dict, y.dict)
	case x.dict.Len() != y.dict.Len():
		return false, nil
	}
	if err := in.spend(x.dict.Len()); err != nil {
		return false, err
	}
	for i := range x.dict.entries {
		if y.dict.findValue(x.dict.entries[i].key) < 0 {
			return false, nil
		}
	}
	return true, nil
}

// ordered is < <= > >=.
func (in *interp) ordered(op operator, a, b Value) (bool, error) {
	order, ok, err := in.order(op, a, b)
	if err != nil || !ok {
		return false, err
	}
	switch op {
	case opLess:
		return order < 0, nil
	case opLessEqual:
		return order <= 0, nil
	case opGreater:
		return order > 0, nil
	default:
		return order >= 0, nil
	}
}

// order compares two values that have an order; ok is false for NaN.
func (in *interp) order(op operator, a, b Value) (order int, ok bool, err error) {
	switch {
	case a.isNumber() && b.isNumber():
		order, ok = compareNumbers(a, b)
		return order, ok, nil
	case a.isString() && b.isString():
		// The order of UTF-8 bytes is the order of code points.
		err = in.spendText(min(len(a.text()), len(b.text())))
		return strings.Compare(a.text(), b.text()), true, err
	case a.kind == b.kind && (a.kind == KindList || a.kind == KindTuple):
		return in.orderLists(op, a.List().items, b.List().items)
	case a.kind == KindUndefined || b.kind == KindUndefined:
		return 0, false, in.badOperands(op, a, b)
	default:
		return 0, false, typeFault("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	}
}

func (in *interp) orderLists(op operator, x, y []Value) (int, bool, error) {
	if err := in.deeper(); err != nil {
		return 0, false, err
	}
	defer in.shallower()
	for i := range min(len(x), len(y)) {
		if err := in.spend(1); err != nil {
			return 0, false, err
		}
		same, err := in.equal(x[i], y[i])
		if err != nil {
			return 0, false, err
		}
		if !same {
			return in.order(op, x[i], y[i])
		}
	}
	return len(x) - len(y), true, nil
}

// contains is "v in container".
func (in *interp) contains(container, v Value) (bool, error) {
	switch container.kind {
	case KindString:
		if !v.isString() {
			if v.kind == KindUndefined {
				return false, in.useUndefined(v)
			}
			return false, typeFault("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		return strings.Contains(container.text(), v.text()), in.spendText(len(container.text()))
	case KindDict:
		if err := in.hashable(v); err != nil {
			return false, err
		}
		return container.Dict().findValue(v) >= 0, nil
	case kindView:
		if w := (*view)(container.ref); w.what == viewKeys {
			if err := in.hashable(v); err != nil {
				return false, err
			}
			return w.dict.findValue(v) >= 0, nil
		}
	case kindRange:
		if i, ok := v.asInt(); ok {
			x, fits := i.Int64()
			return fits && (*pyRange)(container.ref).contains(x), nil
		}
	case KindUndefined:
		return false, nil
	case KindList, KindTuple, kindIterator:
	default:
		return false, typeFault("argument of type '%s' is not iterable", typeName(container))
	}
	seq, err := in.sequence(container)
	if err != nil {
		return false, err
	}
	for i := range seq.len() {
		if err := in.spend(1); err != nil {
			return false, err
		}
		if ok, err := in.equal(seq.at(i), v); err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

// hashable reports an error when v cannot be a key.
func (in *interp) hashable(v Value) error {
	switch v.kind {
	case KindList, KindDict, kindView:
		return typeFault("unhashable type: '%s'", typeName(v))
	case KindTuple:
		if err := in.deeper(); err != nil {
			return err
		}
		defer in.shallower()
		if err := in.spend(1 + v.List().Len()); err != nil {
			return err
		}
		for _, item := range v.List().items {
			if err := in.hashable(item); err != nil {
				return err
			}
		}
	default:
	}
	return nil
}
