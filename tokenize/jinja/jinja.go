package jinja

import (
	"sync"
	"time"
)

// Defaults of Options. They are far above what chat templates need for the
// longest prompts, and small enough to stay within about a second and some
// hundred megabytes.
const (
	defaultMaxSteps  = 10_000_000
	defaultMaxDepth  = 200
	defaultMaxOutput = 64 << 20
)

// Options are the circumstances of one render. The zero value is safe.
type Options struct {
	// Now is the clock of strftime_now, in the time zone it prints. Default
	// time.Now.
	Now func() time.Time
	// MaxSteps bounds the work: statements, loop rounds and calls, and the
	// bytes and elements of values that are made. Default 10 million.
	MaxSteps int
	// MaxDepth bounds macros and recursive loops within each other, and values
	// within values. Python gives up between 200 and 300 macros. Default 200.
	MaxDepth int
	// MaxOutput bounds the output and every string on the way to it, in bytes.
	// Default 64 MiB.
	MaxOutput int
}

// Template is a parsed template. It is immutable and may be rendered from many
// goroutines at once.
type Template struct {
	body  []stmt
	frame frame
	size  int // slots of the outermost activation
	// names are the variables and globals it uses, slots where they go.
	names []string
	slots []int

	interps sync.Pool // *interp
}

// Parse reads a template. The error is an *Error.
func Parse(source string) (*Template, error) {
	body, err := parse(source)
	if err != nil {
		return nil, err
	}
	t := &Template{body: body}
	t.frame, t.size, t.names, t.slots = resolve(body)
	return t, nil
}

// Render appends the text of the template with vars to dst. The error is an
// *Error; the bytes before dst's length are then still its own. Vars and what
// they hold are only read.
func (t *Template) Render(dst []byte, vars *Dict, opts Options) ([]byte, error) {
	in, _ := t.interps.Get().(*interp)
	if in == nil {
		in = &interp{}
	}
	in.start(t, dst, vars, opts)
	_, err := in.run(t.body)
	out := in.out
	in.reset()
	t.interps.Put(in)
	if err != nil {
		return out[:len(dst)], err
	}
	return out, nil
}
