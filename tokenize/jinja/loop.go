package jinja

import (
	"unicode/utf8"
	"unsafe"
)

// sequence is what a value yields when it is iterated: elements, or the pairs
// of a dict, which become tuples only when somebody looks.
type sequence struct {
	items []Value
	pairs []entry
}

func (s sequence) len() int { return len(s.items) + len(s.pairs) }

func (s sequence) at(i int) Value {
	if s.pairs != nil {
		return tuple(s.pairs[i].key, s.pairs[i].value)
	}
	return s.items[i]
}

// all returns the elements in a slice that may be shared and is not to change.
func (s sequence) all() []Value {
	if s.pairs == nil {
		return s.items
	}
	items := make([]Value, len(s.pairs))
	for i := range items {
		items[i] = s.at(i)
	}
	return items
}

// sequence iterates v, as Python's iter does. A generator is used up.
func (in *interp) sequence(v Value) (sequence, error) {
	switch v.kind {
	case KindList, KindTuple:
		return sequence{items: (*List)(v.ref).items}, nil
	case KindDict:
		return in.viewSequence(&view{(*Dict)(v.ref), viewKeys})
	case kindView:
		return in.viewSequence((*view)(v.ref))
	case KindString:
		s := v.text()
		if err := in.spend(len(s)); err != nil {
			return sequence{}, err
		}
		items := make([]Value, 0, utf8.RuneCountInString(s))
		for s != "" {
			_, n := utf8.DecodeRuneInString(s)
			items = append(items, v.sameSafety(s[:n]))
			s = s[n:]
		}
		return sequence{items: items}, nil
	case kindRange:
		r := (*pyRange)(v.ref)
		n := r.len()
		if err := in.spend(n); err != nil {
			return sequence{}, err
		}
		items := make([]Value, n)
		for i := range items {
			items[i] = Int(r.at(i))
		}
		return sequence{items: items}, nil
	case kindIterator:
		it := (*iterator)(v.ref)
		items := it.items
		it.items = nil
		return sequence{items: items}, nil
	case KindUndefined:
		return sequence{}, nil
	default:
		return sequence{}, typeFault("'%s' object is not iterable", typeName(v))
	}
}

func (in *interp) viewSequence(w *view) (sequence, error) {
	entries := w.dict.entries
	if w.what == viewItems {
		// Twice: the tuples may be made.
		return sequence{pairs: entries}, in.spend(2 * len(entries))
	}
	if err := in.spend(len(entries)); err != nil {
		return sequence{}, err
	}
	items := make([]Value, len(entries))
	for i := range entries {
		if w.what == viewKeys {
			items[i] = entries[i].key
		} else {
			items[i] = entries[i].value
		}
	}
	return sequence{items: items}, nil
}

// loopState is the "loop" variable.
type loopState struct {
	seq   sequence
	index int
	depth int // 0 outermost, of a recursive loop
	stmt  *forStmt
	act   *activation

	changed    []Value // arguments of the last changed()
	everCalled bool
}

func (s *forStmt) exec(in *interp) (signal, error) {
	v, err := s.iterable.eval(in)
	if err != nil {
		return next, err
	}
	return next, s.loopOver(in, v, 0)
}

// loopOver runs the loop over v; depth counts a recursive loop's levels.
func (s *forStmt) loopOver(in *interp, v Value, depth int) error {
	seq, err := in.sequence(v)
	if err != nil {
		return err
	}
	if s.filter != nil {
		if seq, err = s.filtered(in, seq); err != nil {
			return err
		}
	}
	if seq.len() == 0 {
		in.enter(&s.elseFrame)
		_, err := in.run(s.otherwise)
		return err
	}
	var state *loopState
	if s.usesLoop {
		state = &loopState{seq: seq, depth: depth, stmt: s, act: in.act}
	}
	for i := range seq.len() {
		if err := in.spend(1); err != nil {
			return err
		}
		in.enter(&s.frame)
		if state != nil {
			state.index = i
			in.set(s.loop, Value{kind: kindLoop, ref: unsafe.Pointer(state)})
		}
		if err := s.bind(in, seq, i); err != nil {
			return err
		}
		sig, err := in.run(s.body)
		if err != nil {
			return err
		}
		if sig == breakLoop {
			break
		}
	}
	return nil
}

// bind assigns element i to the targets; the pairs of a dict need no tuple.
func (s *forStmt) bind(in *interp, seq sequence, i int) error {
	if t, ok := s.target.(*tupleTarget); ok && seq.pairs != nil && len(t.items) == 2 {
		if err := t.items[0].assign(in, seq.pairs[i].key); err != nil {
			return err
		}
		return t.items[1].assign(in, seq.pairs[i].value)
	}
	return s.target.assign(in, seq.at(i))
}

// filtered keeps the elements for which the loop's if holds.
func (s *forStmt) filtered(in *interp, seq sequence) (sequence, error) {
	var kept []Value
	for i := range seq.len() {
		if err := in.spend(1); err != nil {
			return sequence{}, err
		}
		in.enter(&s.filterFrame)
		v := seq.at(i)
		if err := s.filterVars.assign(in, v); err != nil {
			return sequence{}, err
		}
		test, err := s.filter.eval(in)
		if err != nil {
			return sequence{}, err
		}
		if test.truth() {
			kept = append(kept, v)
		}
	}
	return sequence{items: kept}, nil
}

// attr returns an attribute of the loop variable.
func (l *loopState) attr(name string) (Value, bool) {
	i, n := int64(l.index), int64(l.seq.len())
	switch name {
	case "index":
		return Int(i + 1), true
	case "index0":
		return Int(i), true
	case "revindex":
		return Int(n - i), true
	case "revindex0":
		return Int(n - i - 1), true
	case "first":
		return Bool(i == 0), true
	case "last":
		return Bool(i == n-1), true
	case "length":
		return Int(n), true
	case "depth":
		return Int(int64(l.depth) + 1), true
	case "depth0":
		return Int(int64(l.depth)), true
	case "previtem":
		if i == 0 {
			return undefinedBecause("there is no previous item"), true
		}
		return l.seq.at(l.index - 1), true
	case "nextitem":
		if i == n-1 {
			return undefinedBecause("there is no next item"), true
		}
		return l.seq.at(l.index + 1), true
	default:
		return Value{}, false
	}
}

// method calls loop.cycle or loop.changed.
func (l *loopState) method(in *interp, attr *attrExpr, a args) (Value, error) {
	switch attr.name {
	case "cycle":
		if len(a.pos) == 0 {
			return Value{}, typeFault("no items for cycling given")
		}
		return a.pos[l.index%len(a.pos)], nil
	case "changed":
		if l.everCalled && len(l.changed) == len(a.pos) {
			same, err := in.equal(listOf(l.changed), listOf(a.pos))
			if err != nil || same {
				return Bool(false), err
			}
		}
		l.everCalled = true
		l.changed = append([]Value(nil), a.pos...)
		return Bool(true), nil
	default:
		self := Value{kind: kindLoop, ref: unsafe.Pointer(l)}
		v, err := in.attr(self, attr.name, attr.methods)
		if err != nil {
			return Value{}, err
		}
		return in.call(v, a)
	}
}

// call runs a recursive loop over children and returns what it printed.
func (l *loopState) call(in *interp, a args) (Value, error) {
	if !l.stmt.recursive {
		return Value{}, typeFault("the loop is not marked as recursive")
	}
	if len(a.pos) != 1 || len(a.kw) > 0 {
		return Value{}, typeFault("loop() takes one argument")
	}
	if err := in.deeper(); err != nil {
		return Value{}, err
	}
	defer in.shallower()
	// The inner loop has variables of its own; it runs in the same slots.
	outer := in.act
	in.act = l.act
	defer func() { in.act = outer }()
	f := &l.stmt.frame
	saved := append([]Value(nil), in.act.slots[f.low:f.high]...)
	start := len(in.out)
	if err := l.stmt.loopOver(in, a.pos[0], l.depth+1); err != nil {
		return Value{}, err
	}
	copy(in.act.slots[f.low:f.high], saved)
	if err := in.spendText(len(in.out) - start); err != nil {
		return Value{}, err
	}
	text := string(in.out[start:])
	in.out = in.out[:start]
	return String(text), nil
}
