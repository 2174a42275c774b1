package jinja

import (
	"strings"
	"unicode/utf8"
	"unsafe"
)

// view is dict.items(), dict.keys() or dict.values().
type view struct {
	dict *Dict
	what viewKind
}

type viewKind uint8

const (
	viewKeys viewKind = iota
	viewValues
	viewItems
)

func viewOf(d *Dict, what viewKind) Value {
	return Value{kind: kindView, ref: unsafe.Pointer(&view{d, what})}
}

// iterator is a generator: its items are there, but can be taken once.
type iterator struct {
	items []Value
}

func iteratorOf(items []Value) Value {
	return Value{kind: kindIterator, ref: unsafe.Pointer(&iterator{items})}
}

// attr is object.name: the attribute, or else the key. Methods are those with
// this name.
func (in *interp) attr(object Value, name string, methods *methodSet) (Value, error) {
	if object.kind == KindUndefined {
		return Value{}, in.useUndefined(object)
	}
	if v, ok := attribute(object, name, methods); ok {
		return v, nil
	}
	if object.kind == KindDict {
		if v, ok := object.Dict().Get(name); ok {
			return v, nil
		}
	}
	return undefinedName(name), nil
}

// item is object[index]: the element or key, or else the attribute.
func (in *interp) item(object, index Value) (Value, error) {
	switch object.kind {
	case KindUndefined:
		return Value{}, in.useUndefined(object)
	case KindDict:
		// An unhashable key is not there.
		if i := object.Dict().findValue(index); i >= 0 {
			return object.Dict().entries[i].value, nil
		}
	default:
		if i, ok := index.asInt(); ok {
			if at, fits := i.Int64(); fits {
				if v, ok, err := in.element(object, at); ok || err != nil {
					return v, err
				}
			}
		}
	}
	if index.isString() {
		name := index.text()
		if v, ok := attribute(object, name, methodsNamed(name)); ok {
			return v, nil
		}
		return undefinedName(name), nil
	}
	return undefinedBecause("there is no such element"), nil
}

// element is the element at an index of a sequence, from the end if negative.
func (in *interp) element(object Value, at int64) (Value, bool, error) {
	switch object.kind {
	case KindList, KindTuple:
		items := (*List)(object.ref).items
		if at < 0 {
			at += int64(len(items))
		}
		if at >= 0 && at < int64(len(items)) {
			return items[at], true, nil
		}
	case KindString:
		at = max(at, -int64(len(object.text()))-1)
		c, ok := runeAt(object.text(), at)
		// The way from the nearer end is walked, but all of a text too short.
		walked := max(at, -at)
		if !ok {
			walked = int64(len(object.text()))
		}
		if err := in.spend(int(min(walked, int64(len(object.text()))) / 4)); err != nil || !ok {
			return Value{}, false, err
		}
		return object.sameSafety(c), true, nil
	case kindRange:
		r := (*pyRange)(object.ref)
		n := int64(r.len())
		if at < 0 {
			at += n
		}
		if at >= 0 && at < n {
			return Int(r.at(int(at))), true, nil
		}
	}
	return Value{}, false, nil
}

// runeAt is character number at of s, from the end if negative.
func runeAt(s string, at int64) (string, bool) {
	if at >= int64(len(s)) || -at > int64(len(s)) {
		return "", false
	}
	if at >= 0 {
		s = s[runeOffset(s, int(at)):]
		_, n := utf8.DecodeRuneInString(s)
		return s[:n], n > 0
	}
	for ; at < -1 && s != ""; at++ {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	_, n := utf8.DecodeLastRuneInString(s)
	return s[len(s)-n:], n > 0
}

// runeOffset is the byte offset of character n, or len(s) past the end.
func runeOffset(s string, n int) int {
	at := 0
	for n > 0 && at < len(s) {
		if s[at] < utf8.RuneSelf {
			at++
		} else {
			_, size := utf8.DecodeRuneInString(s[at:])
			at += size
		}
		n--
	}
	return at
}

// attribute is Python's getattr: what the object has beside its keys.
func attribute(object Value, name string, methods *methodSet) (Value, bool) {
	switch object.kind {
	case KindDict:
		if methods == nil && !strings.HasPrefix(name, "__") {
			return Value{}, false
		}
	case kindNamespace:
		v, ok := (*Dict)(object.ref).Get(name)
		return v, ok
	case kindLoop:
		l := (*loopState)(object.ref)
		if v, ok := l.attr(name); ok {
			return v, true
		}
	case kindCycler:
		if name == "current" {
			return (*cycler)(object.ref).current(), true
		}
	case kindMacro:
		if name == "name" {
			return String((*macro)(object.ref).code.name), true
		}
	}
	call, unsafeMethod := methods.of(object)
	switch {
	case call != nil:
		m := &boundMethod{object, name, call}
		return Value{kind: kindMethod, ref: unsafe.Pointer(m)}, true
	case unsafeMethod || strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__"):
		// Only using what the sandbox refuses is an error.
		v := undefinedName(name)
		v.flag |= flagSecurity
		return v, true
	}
	return Value{}, false
}

// apply is object[start:stop:step].
func (e *sliceExpr) apply(in *interp, object Value) (Value, error) {
	step := int64(1)
	bounds := [3]*int64{}
	var at [3]int64
	for i, x := range [...]expr{e.start, e.stop, e.step} {
		if x == nil {
			continue
		}
		v, err := x.eval(in)
		if err != nil {
			return Value{}, err
		}
		if v.kind == KindNone {
			continue
		}
		n, ok := v.asInt()
		if !ok {
			return Value{}, typeFault("slice indices must be integers or None")
		}
		at[i] = clampInt(n)
		bounds[i] = &at[i]
	}
	if bounds[2] != nil {
		step = at[2]
	}
	switch object.kind {
	case KindUndefined:
		return Value{}, in.useUndefined(object)
	case KindList, KindTuple, KindString, kindRange:
	default:
		return Value{}, typeFault("'%s' object cannot be sliced", typeName(object))
	}
	if step == 0 {
		return Value{}, typeFault("slice step cannot be zero")
	}
	if object.kind == KindString {
		return in.sliceString(object, bounds[0], bounds[1], step)
	}
	items := []Value(nil)
	if object.kind == kindRange {
		seq, err := in.sequence(object)
		if err != nil {
			return Value{}, err
		}
		items = seq.items
	} else {
		items = (*List)(object.ref).items
	}
	lo, n := sliceRange(len(items), bounds[0], bounds[1], step)
	if err := in.spend(1 + n); err != nil {
		return Value{}, err
	}
	var r Value
	if step == 1 {
		r = listOf(items[lo : lo+n : lo+n])
	} else {
		part := make([]Value, n)
		for i := range part {
			part[i] = items[lo+i*int(step)]
		}
		r = listOf(part)
	}
	if object.kind == KindTuple {
		r.kind = KindTuple
	}
	return r, nil
}

// clampInt brings an integer into a range where slice arithmetic is safe.
func clampInt(v Value) int64 {
	const far = 1 << 40
	n, fits := v.Int64()
	if !fits {
		n = far
		if v.bigInt().Sign() < 0 {
			n = -far
		}
	}
	return max(-far, min(far, n))
}

// sliceRange returns the first index and the number of elements of a slice.
func sliceRange(length int, start, stop *int64, step int64) (first, n int) {
	size := int64(length)
	low, high := int64(0), size
	if step < 0 {
		low, high = -1, size-1
	}
	clamp := func(p *int64, otherwise int64) int64 {
		if p == nil {
			return otherwise
		}
		i := *p
		if i < 0 {
			i += size
		}
		return max(low, min(high, i))
	}
	var from, to int64
	if step > 0 {
		from, to = clamp(start, low), clamp(stop, high)
		if to > from {
			n = int((to - from + step - 1) / step)
		}
	} else {
		from, to = clamp(start, high), clamp(stop, low)
		if from > to {
			n = int((from - to - step - 1) / -step)
		}
	}
	if n == 0 {
		return 0, 0
	}
	return int(from), n
}

func (in *interp) sliceString(v Value, start, stop *int64, step int64) (Value, error) {
	s := v.text()
	if err := in.spendText(len(s)); err != nil {
		return Value{}, err
	}
	first, n := sliceRange(utf8.RuneCountInString(s), start, stop, step)
	if step == 1 {
		lo := runeOffset(s, first)
		return v.sameSafety(s[lo : lo+runeOffset(s[lo:], n)]), nil
	}
	if err := in.spend(len(s)); err != nil {
		return Value{}, err
	}
	runes := []rune(s)
	part := make([]rune, n)
	for i := range part {
		part[i] = runes[first+i*int(step)]
	}
	return v.sameSafety(string(part)), nil
}
