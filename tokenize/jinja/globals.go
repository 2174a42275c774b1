package jinja

import (
	"math"
	"strconv"
	"unsafe"
)

// maxRange is the longest range the sandbox allows.
const maxRange = 100_000

// global returns a variable of the environment, or undefined.
func global(name string) Value {
	switch name {
	case "range":
		return builtinValue(name, rangeFunc)
	case "dict":
		return builtinValue(name, dictFunc)
	case "namespace":
		return builtinValue(name, namespaceFunc)
	case "cycler":
		return builtinValue(name, cyclerFunc)
	case "joiner":
		return builtinValue(name, joinerFunc)
	case "lipsum":
		return builtinValue(name, func(*interp, Value, args) (Value, error) {
			return Value{}, fault(CauseUnsupported, "lipsum makes random text")
		})
	case "raise_exception":
		return builtinValue(name, raiseFunc)
	case "strftime_now":
		return builtinValue(name, strftimeFunc)
	default:
		return Value{}
	}
}

func raiseFunc(in *interp, _ Value, a args) (Value, error) {
	b, err := a.bind("raise_exception", 1, "message")
	if err != nil {
		return Value{}, err
	}
	s, err := in.str(b.value[0])
	if err != nil {
		return Value{}, err
	}
	return Value{}, fault(CauseRaised, "%s", s)
}

func strftimeFunc(in *interp, _ Value, a args) (Value, error) {
	b, err := a.bind("strftime_now", 1, "format")
	if err != nil {
		return Value{}, err
	}
	if !b.value[0].isString() {
		return Value{}, typeFault("strftime() argument must be str, not %s", typeName(b.value[0]))
	}
	// A conversion is two bytes, and writes some ten.
	if err := in.spend(len(b.value[0].text())); err != nil {
		return Value{}, err
	}
	s, err := strftime(in.now(), b.value[0].text())
	if err != nil {
		return Value{}, err
	}
	return String(s), in.spendText(len(s))
}

// mapping merges the arguments of dict() and namespace().
func (in *interp) mapping(function string, a args) (*Dict, error) {
	if len(a.pos) > 1 {
		return nil, typeFault("%s expected at most 1 argument, got %d", function, len(a.pos))
	}
	d := NewDict(len(a.kw))
	if len(a.pos) == 1 {
		if from := a.pos[0].Dict(); from != nil {
			if err := in.spend(4 * from.Len()); err != nil {
				return nil, err
			}
			d = from.Clone()
		} else if err := in.addPairs(d, a.pos[0]); err != nil {
			return nil, err
		}
	}
	if err := in.spend(4 * len(a.kw)); err != nil {
		return nil, err
	}
	for _, k := range a.kw {
		d.Set(k.name, k.value)
	}
	return d, nil
}

func (in *interp) addPairs(d *Dict, v Value) error {
	seq, err := in.sequence(v)
	if err != nil {
		return err
	}
	for i := range seq.len() {
		pair, err := in.sequence(seq.at(i))
		if err != nil {
			return err
		}
		if pair.len() != 2 {
			return typeFault("dictionary update sequence element #%d has length %d; 2 is required", i, pair.len())
		}
		if err := in.hashable(pair.at(0)); err != nil {
			return err
		}
		cost := 4
		if !pair.at(0).isString() {
			cost += d.Len() // found by scan
		}
		if err := in.spend(cost); err != nil {
			return err
		}
		d.setValue(pair.at(0), pair.at(1))
	}
	return nil
}

func dictFunc(in *interp, _ Value, a args) (Value, error) {
	d, err := in.mapping("dict", a)
	if err != nil {
		return Value{}, err
	}
	return FromDict(d), nil
}

func namespaceFunc(in *interp, _ Value, a args) (Value, error) {
	d, err := in.mapping("namespace", a)
	if err != nil {
		return Value{}, err
	}
	return Value{kind: kindNamespace, ref: unsafe.Pointer(d)}, nil
}

// pyRange is Python's range.
type pyRange struct {
	start, stop, step int64
}

func rangeFunc(_ *interp, _ Value, a args) (Value, error) {
	if len(a.kw) > 0 || len(a.pos) < 1 || len(a.pos) > 3 {
		return Value{}, typeFault("range expected 1 to 3 arguments, got %d", len(a.pos)+len(a.kw))
	}
	n := [3]int64{0, 0, 1}
	for i, v := range a.pos {
		x, ok := v.asInt()
		if !ok {
			return Value{}, typeFault("'%s' object cannot be interpreted as an integer", typeName(v))
		}
		at, fits := x.Int64()
		if !fits || at > math.MaxInt32*1024 || at < -math.MaxInt32*1024 {
			return Value{}, fault(CauseLimit, "range too big")
		}
		n[i] = at
	}
	if len(a.pos) == 1 {
		n[0], n[1] = 0, n[0]
	}
	if n[2] == 0 {
		return Value{}, typeFault("range() arg 3 must not be zero")
	}
	r := &pyRange{n[0], n[1], n[2]}
	if r.len() > maxRange {
		return Value{}, fault(CauseLimit, "range too big: the sandbox blocks ranges larger than %d", maxRange)
	}
	return Value{kind: kindRange, ref: unsafe.Pointer(r)}, nil
}

func (r *pyRange) len() int {
	switch {
	case r.step > 0 && r.start < r.stop:
		return int((r.stop-r.start-1)/r.step) + 1
	case r.step < 0 && r.start > r.stop:
		return int((r.start-r.stop-1)/-r.step) + 1
	default:
		return 0
	}
}

func (r *pyRange) at(i int) int64 { return r.start + int64(i)*r.step }

func (r *pyRange) contains(x int64) bool {
	if r.len() == 0 || (x-r.start)%r.step != 0 {
		return false
	}
	i := (x - r.start) / r.step
	return i >= 0 && i < int64(r.len())
}

func (r *pyRange) equal(o *pyRange) bool {
	n := r.len()
	return n == o.len() && (n == 0 || r.start == o.start && (n == 1 || r.step == o.step))
}

func (r *pyRange) appendRepr(dst []byte) []byte {
	dst = append(dst, "range("...)
	dst = strconv.AppendInt(dst, r.start, 10)
	dst = append(dst, ", "...)
	dst = strconv.AppendInt(dst, r.stop, 10)
	if r.step != 1 {
		dst = append(dst, ", "...)
		dst = strconv.AppendInt(dst, r.step, 10)
	}
	return append(dst, ')')
}

// cycler is the object of cycler().
type cycler struct {
	items []Value
	index int
}

func cyclerFunc(_ *interp, _ Value, a args) (Value, error) {
	if len(a.pos) == 0 || len(a.kw) > 0 {
		return Value{}, typeFault("at least one item has to be provided")
	}
	c := &cycler{items: append([]Value(nil), a.pos...)}
	return Value{kind: kindCycler, ref: unsafe.Pointer(c)}, nil
}

func (c *cycler) current() Value { return c.items[c.index] }

func cyclerNext(_ *interp, self Value, a args) (Value, error) {
	c := (*cycler)(self.ref)
	v := c.current()
	c.index = (c.index + 1) % len(c.items)
	return v, a.none("next")
}

func cyclerReset(_ *interp, self Value, a args) (Value, error) {
	(*cycler)(self.ref).index = 0
	return None(), a.none("reset")
}

// joiner is the object of joiner(): empty the first time it is called, its
// separator after that.
type joiner struct {
	sep  Value
	used bool
}

func joinerFunc(_ *interp, _ Value, a args) (Value, error) {
	b, err := a.bind("joiner", 0, "sep")
	if err != nil {
		return Value{}, err
	}
	return Value{kind: kindJoiner, ref: unsafe.Pointer(&joiner{sep: b.or(0, String(", "))})}, nil
}

func (j *joiner) call() Value {
	if !j.used {
		j.used = true
		return String("")
	}
	return j.sep
}
