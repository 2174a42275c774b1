package replay

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestSummarize(t *testing.T) {
	refused := errors.New("refused")
	var results []Result
	for i := range 100 {
		engine := "0"
		if i >= 75 {
			engine = "1"
		}
		results = append(results, Result{
			Engine: engine, TTFT: time.Duration(100-i) * time.Millisecond, E2E: time.Second,
			Prompt: 10, Cached: 4, Completed: 2,
		})
	}
	results = append(results, Result{Err: refused, Prompt: 99})
	want := Summary{
		Requests: 101, Errors: 1, FirstError: refused,
		Prompt: 1000, Cached: 400, Completed: 200,
		TTFT:           Times{Mean: 505 * time.Millisecond, P50: 500 * time.Millisecond, P99: 990 * time.Millisecond},
		E2E:            Times{Mean: 10 * time.Second, P50: 10 * time.Second, P99: 10 * time.Second},
		RequestBalance: 1.5, ComputeBalance: 1.5, Engines: 2,
	}
	got := Summarize(results, 10)
	if diff := cmp.Diff(want, got, cmpopts.EquateErrors()); diff != "" {
		t.Error(diff)
	}
	if got.CachedRatio() != 0.4 {
		t.Errorf("cached ratio %g", got.CachedRatio())
	}
}

func TestSummarizeWithoutAnswers(t *testing.T) {
	got := Summarize([]Result{{Err: errors.New("no")}}, 10)
	if got.Errors != 1 || got.CachedRatio() != 0 || got.RequestBalance != 0 || got.TTFT != (Times{}) {
		t.Errorf("got %+v", got)
	}
}

func TestBar(t *testing.T) {
	for _, c := range []struct {
		name     string
		terminal bool
		step     time.Duration
		lines    int // how many of ten states are shown
	}{
		{"a log gets a line every five seconds and the last one", false, 2 * time.Second, 4},
		{"a terminal is redrawn", true, 2 * time.Second, 10},
		{"a terminal is not redrawn for every request", true, time.Millisecond, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			now := time.Now()
			b := newBar(&out, "test", c.terminal, now)
			for i := 1; i <= 10; i++ {
				now = now.Add(c.step)
				b.draw(Progress{Total: 10, Sent: 10, Done: i, Failed: 1}, now)
			}
			if got := strings.Count(out.String(), "answered"); got != c.lines {
				t.Errorf("%d states shown, want %d:\n%q", got, c.lines, out.String())
			}
			if last := "[" + strings.Repeat("#", barWidth) + "] 10/10 answered, 0 under way, 1 failed"; !strings.Contains(out.String(), last) {
				t.Errorf("no %q in %q", last, out.String())
			}
		})
	}
}
