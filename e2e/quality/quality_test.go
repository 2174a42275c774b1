package quality

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/warmroute/e2e/replay"
	"github.com/warmroute/warmroute/scheduler"
)

// The two systems of units. In the demo's, every constant of the picker that is
// a time or a number of tokens is wrong by a factor of eight; the picker must
// stand that, because no user measures them.
var (
	recorded = units{shrink: 1, scale: 1, block: 128}
	demo     = units{shrink: 8, scale: 8, block: 16}
)

// readTrace returns the first n requests of a trace.
func readTrace(t *testing.T, path string, n int) []replay.Record {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}()
	trace, err := replay.ReadTrace(file)
	if err != nil {
		t.Fatal(err)
	}
	return trace[:min(n, len(trace))]
}

// row is one policy of a table.
type row struct {
	name string
	with func(*fleet) (policy, error)
}

// compare plays each policy and logs the table.
func compare(t *testing.T, u units, l load, rows ...row) map[string]replay.Summary {
	t.Helper()
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-22s %7s %7s %7s %7s %7s %10s %10s\n", "", "TTFT", "p50", "p99", "E2E", "cached", "requests", "computed")
	got := map[string]replay.Summary{}
	for _, r := range rows {
		s, err := play(u, l, r.with)
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		got[r.name] = s
		fmt.Fprintf(&table, "%-22s %6.2fs %6.2fs %6.2fs %6.1fs %7.3f %10.2f %10.2f\n", r.name,
			s.TTFT.Mean.Seconds(), s.TTFT.P50.Seconds(), s.TTFT.P99.Seconds(), s.E2E.Mean.Seconds(),
			s.CachedRatio(), s.RequestBalance, s.ComputeBalance)
	}
	t.Log(table.String(), "times in recorded seconds; the last two columns are the busiest engine over the mean one")
	return got
}

func rows(u units) []row {
	return append([]row{
		{"round robin", newRoundRobin},
		{"least requests", newLeastRequests},
		{"true state, w=1", newReference(u, 1, false)},
	}, against(u)...)
}

// against is the picker and what it is measured against.
func against(u units) []row {
	return []row{
		{"warmroute", newWarmroute(u, prompt, scheduler.Config{Seed: 1})},
		{"true state, joint w=4", newReference(u, 4, true)},
	}
}

// TestWarmroute holds the picker, with every setting at its default, to
// margins on the trace of the demo. They leave a tenth to the luck of ties,
// which another seed throws otherwise.
func TestWarmroute(t *testing.T) {
	t.Parallel()
	l := load{trace: readTrace(t, filepath.Join("..", "demo", "trace", "conversation.jsonl"), 900), engines: 4, rate: 0.7}
	for _, tt := range []struct {
		name                     string
		units                    units
		roundRobin, least, truth float64 // mean time to first token: theirs over ours, at least; ours over the reference's, at most
	}{
		{"recorded units", recorded, 3, 1.8, 1.1},
		{"the demo's units", demo, 2.5, 1.7, 1.3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := compare(t, tt.units, l, rows(tt.units)...)
			ours, truth := got["warmroute"], got["true state, joint w=4"]
			for _, peer := range []struct {
				name   string
				margin float64
			}{{"round robin", tt.roundRobin}, {"least requests", tt.least}} {
				p := got[peer.name]
				if r := ratio(p.TTFT.Mean, ours.TTFT.Mean); r < peer.margin {
					t.Errorf("time to first token: %s takes %.2f of ours, want at least %.2f", peer.name, r, peer.margin)
				}
				if r := ratio(p.E2E.Mean, ours.E2E.Mean); r < 1.3 {
					t.Errorf("time to the end: %s takes %.2f of ours, want at least 1.30", peer.name, r)
				}
				if float64(ours.Cached) < 1.5*float64(p.Cached) {
					t.Errorf("cached tokens: %d, want at least 1.5 times the %d of %s", ours.Cached, p.Cached, peer.name)
				}
			}
			if r := ratio(ours.TTFT.Mean, truth.TTFT.Mean); r > tt.truth {
				t.Errorf("time to first token: %.2f of the rule on the true state, want at most %.2f", r, tt.truth)
			}
		})
	}
}

func ratio(a, b time.Duration) float64 { return a.Seconds() / b.Seconds() }

// TestEqualSettingsGiveEqualNumbers is what makes the margins above testable.
func TestEqualSettingsGiveEqualNumbers(t *testing.T) {
	t.Parallel()
	l := load{trace: readTrace(t, filepath.Join("..", "demo", "trace", "conversation.jsonl"), 200), engines: 4, rate: 0.7}
	for _, r := range rows(demo) {
		first, err := play(demo, l, r.with)
		if err != nil {
			t.Fatal(err)
		}
		again, err := play(demo, l, r.with)
		if err != nil {
			t.Fatal(err)
		}
		if first != again {
			t.Errorf("%s: got %+v, and then %+v", r.name, first, again)
		}
	}
}

// TestMoreEngines is the setting of published comparisons: eight engines at
// twice the load for each minute, for which the demo's slice is too short.
// It runs when the whole trace lies beside the checkout.
func TestMoreEngines(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "..", "shared", "traces", "conversation_trace.jsonl")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("NOT CHECKED: eight engines: the whole conversation trace is not at %s", path)
	}
	l := load{trace: readTrace(t, path, 2000), engines: 8, rate: 1.4}
	for _, tt := range []struct {
		name  string
		units units
		truth float64
	}{{"recorded units", recorded, 1.06}, {"the demo's units", demo, 1.35}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := compare(t, tt.units, l, against(tt.units)...)
			ours, truth := got["warmroute"], got["true state, joint w=4"]
			if r := ratio(ours.TTFT.Mean, truth.TTFT.Mean); r > tt.truth {
				t.Errorf("time to first token: %.2f of the rule on the true state, want at most %.2f", r, tt.truth)
			}
			if r := ratio(ours.E2E.Mean, truth.E2E.Mean); r > 1.06 {
				t.Errorf("time to the end: %.2f of the rule on the true state, want at most 1.06", r)
			}
		})
	}
}
