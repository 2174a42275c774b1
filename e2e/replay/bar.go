package replay

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Bar draws the progress of a replay: one line redrawn on a terminal, a line
// every few seconds elsewhere. It is used by one goroutine at a time.
type Bar struct {
	w        io.Writer
	label    string
	terminal bool
	start    time.Time
	drawn    time.Time
}

const (
	barWidth     = 30
	redrawEvery  = 100 * time.Millisecond
	newLineEvery = 5 * time.Second
)

// NewBar returns a bar that draws on f.
func NewBar(f *os.File, label string) *Bar {
	info, err := f.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	return newBar(f, label, terminal, time.Now())
}

func newBar(w io.Writer, label string, terminal bool, now time.Time) *Bar {
	return &Bar{w: w, label: label, terminal: terminal, start: now, drawn: now}
}

// Draw shows p, unless something was shown a moment ago.
func (b *Bar) Draw(p Progress) { b.draw(p, time.Now()) }

func (b *Bar) draw(p Progress, now time.Time) {
	last := p.Done == p.Total
	switch since := now.Sub(b.drawn); {
	case last:
	case b.terminal && since < redrawEvery, !b.terminal && since < newLineEvery:
		return
	}
	b.drawn = now
	filled := barWidth * p.Done / max(1, p.Total)
	line := fmt.Sprintf("%-12s [%s%s] %d/%d answered, %d under way, %d failed, %.0f s",
		b.label, strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled),
		p.Done, p.Total, p.Sent-p.Done, p.Failed, now.Sub(b.start).Seconds())
	if !b.terminal {
		fmt.Fprintln(b.w, line)
		return
	}
	// Erase to the end of the line: the text gets shorter too.
	fmt.Fprintf(b.w, "\r%s\x1b[K", line)
	if last {
		fmt.Fprintln(b.w)
	}
}
