package jinja

import "time"

// maxKeptStack is the largest argument stack, in values, that an interpreter
// keeps for its next render.
const maxKeptStack = 4096

// interp is the state of one render.
type interp struct {
	out  []byte
	base int // where this render's output starts
	act  *activation
	root activation

	stack []Value       // arguments of calls in progress
	free  []*activation // activations of finished macro calls
	parts []string      // scratch of concatenation

	steps     int // left
	depth     int
	maxDepth  int
	maxOutput int
	now       func() time.Time
}

// activation holds the variables of the template or of one macro call.
type activation struct {
	slots  []Value
	parent *activation
}

func (in *interp) start(t *Template, dst []byte, vars *Dict, opts Options) {
	in.out, in.base = dst, len(dst)
	in.steps = positiveOr(opts.MaxSteps, defaultMaxSteps)
	in.maxDepth = positiveOr(opts.MaxDepth, defaultMaxDepth)
	in.maxOutput = positiveOr(opts.MaxOutput, defaultMaxOutput)
	in.now = opts.Now
	if in.now == nil {
		in.now = time.Now
	}
	if cap(in.root.slots) < t.size {
		in.root.slots = make([]Value, t.size)
	}
	in.root.slots = in.root.slots[:t.size]
	in.act = &in.root
	for i, name := range t.names {
		v, ok := Value{}, false
		if vars != nil {
			v, ok = vars.Get(name)
		}
		if !ok {
			v = global(name)
		}
		in.root.slots[t.slots[i]] = v
	}
	in.enter(&t.frame)
}

func positiveOr(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}

// reset drops every reference to the render's values.
func (in *interp) reset() {
	clear(in.root.slots[:cap(in.root.slots)])
	clear(in.stack[:cap(in.stack)])
	clear(in.parts[:cap(in.parts)])
	in.stack, in.parts = in.stack[:0], in.parts[:0]
	if cap(in.stack) > maxKeptStack {
		in.stack = nil
	}
	in.out, in.act, in.now, in.depth = nil, nil, nil, 0
}

// enter gives the variables of a frame their first values.
func (in *interp) enter(f *frame) {
	for i := range f.inits {
		init := &f.inits[i]
		v := Value{}
		if init.known {
			v = in.get(init.from)
		}
		in.act.slots[init.slot] = v
	}
}

func (in *interp) get(v variable) Value {
	a := in.act
	for range v.up {
		a = a.parent
	}
	return a.slots[v.slot]
}

func (in *interp) set(v variable, x Value) {
	a := in.act
	for range v.up {
		a = a.parent
	}
	a.slots[v.slot] = x
}

// run executes statements until one of them leaves the loop around them.
func (in *interp) run(body []stmt) (signal, error) {
	for _, s := range body {
		if in.steps--; in.steps < 0 {
			return next, in.located(tooManySteps(), s.at())
		}
		sig, err := s.exec(in)
		if err != nil {
			return next, in.located(err, s.at())
		}
		if sig != next {
			return sig, nil
		}
	}
	return next, nil
}

// located gives an error the line of the statement it happened in.
func (in *interp) located(err error, line int) error {
	if e, ok := err.(*Error); ok && e.Line == 0 { //nolint:errorlint // faults are never wrapped
		e.Line = line
	}
	return err
}

func tooManySteps() error { return fault(CauseLimit, "too many steps") }

// spend charges n steps.
func (in *interp) spend(n int) error {
	if in.steps -= n; in.steps < 0 || n < 0 {
		return tooManySteps()
	}
	return nil
}

// bytesPerStep is how many bytes of text count as one step.
const bytesPerStep = 16

// spendText charges for making or reading a text of n bytes, and refuses one
// that is longer than the output may be.
func (in *interp) spendText(n int) error {
	if n > in.maxOutput || n < 0 {
		return fault(CauseLimit, "text too long")
	}
	if in.steps -= n / bytesPerStep; in.steps < 0 {
		return tooManySteps()
	}
	return nil
}

// deeper counts one level of nesting; the caller calls shallower.
func (in *interp) deeper() error {
	in.depth++
	if in.depth > in.maxDepth {
		in.depth--
		return fault(CauseLimit, "nested too deep")
	}
	return nil
}

func (in *interp) shallower() { in.depth-- }

// emit appends text to the output. All output passes here or through print:
// what wants to know which part came from which message looks here.
func (in *interp) emit(s string) error {
	in.out = append(in.out, s...)
	return in.checkOutput()
}

// print appends the text of a value to the output.
func (in *interp) print(v Value) error {
	switch v.kind {
	case KindString:
		in.out = append(in.out, v.text()...)
	case KindUndefined:
		return nil
	default:
		out, err := in.appendText(in.out, v)
		if err != nil {
			return err
		}
		in.out = out
	}
	return in.checkOutput()
}

func (in *interp) checkOutput() error {
	if len(in.out)-in.base > in.maxOutput {
		return fault(CauseLimit, "output too long")
	}
	return nil
}

// capture runs a body and returns what it printed.
func (in *interp) capture(body []stmt) (string, signal, error) {
	start := len(in.out)
	sig, err := in.run(body)
	if err != nil {
		return "", next, err
	}
	n := len(in.out) - start
	if err := in.spendText(n); err != nil {
		return "", next, err
	}
	s := string(in.out[start:])
	in.out = in.out[:start]
	return s, sig, nil
}

// activate returns an activation of n empty slots inside parent.
func (in *interp) activate(n int, parent *activation) *activation {
	if last := len(in.free) - 1; last >= 0 && cap(in.free[last].slots) >= n {
		a := in.free[last]
		in.free = in.free[:last]
		a.slots, a.parent = a.slots[:n], parent
		return a
	}
	return &activation{slots: make([]Value, n), parent: parent}
}

// release takes back an activation nothing refers to.
func (in *interp) release(a *activation) {
	clear(a.slots)
	a.parent = nil
	in.free = append(in.free, a)
}
