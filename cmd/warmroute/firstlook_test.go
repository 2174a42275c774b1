package main

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/warmroute/warmroute/scheduler"
)

// pickerFunc is a picker under test.
type pickerFunc func()

func (f pickerFunc) Pick(context.Context, *scheduler.Request) (scheduler.Decision, error) {
	f()
	return scheduler.Decision{}, nil
}

func TestRequestsWaitForTheFirstLookAtTheEngines(t *testing.T) {
	const never = 1 << 30
	tests := []struct {
		name   string
		serves int           // the look from which on an engine serves the model
		done   int           // the look at which all engines were asked; 0 is before
		leaves int           // the look at which the client is gone
		wait   time.Duration // before the request gives up
		looks  int           // expected
	}{
		{"an engine serves at once", 1, never, never, time.Hour, 1},
		{"an engine comes up while others were not asked", 4, never, never, time.Hour, 4},
		{"all were asked, and none serves", never, 2, never, time.Hour, 2},
		{"after the first look nothing waits", never, 0, never, time.Hour, 0},
		{"the answers take too long", never, never, never, time.Nanosecond, 1},
		{"the client leaves", never, never, 1, time.Hour, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			if tt.done == 0 {
				close(done)
			}
			looks, picks := 0, 0
			f := &firstLook{
				done: done, wait: tt.wait, picker: pickerFunc(func() { picks++ }),
				serves: func(string) bool {
					looks++
					if looks == tt.done {
						close(done)
					}
					if looks == tt.leaves {
						cancel()
					}
					return looks >= tt.serves
				},
			}
			if _, err := f.Pick(ctx, &scheduler.Request{}); err != nil {
				t.Fatal(err)
			}
			if looks != tt.looks || picks != 1 {
				t.Errorf("%d looks and %d picks, want %d and 1", looks, picks, tt.looks)
			}
		})
	}
}

func TestAnEngineServesItsModelsOnceItIsUp(t *testing.T) {
	p := &picker{pool: scheduler.NewPool()}
	specs := []scheduler.Spec{{Addr: netip.MustParseAddrPort("10.0.0.1:8000"), Rank: -1}, {Addr: netip.MustParseAddrPort("10.0.0.2:8000"), Rank: -1}}
	p.pool.Set(specs)
	if p.served("a") {
		t.Error("an engine that was not asked serves")
	}
	p.pool.Report(specs[0], scheduler.Report{Up: true, Identity: &scheduler.Identity{Base: "a", Models: []scheduler.Model{{Name: "a"}}}})
	for model, want := range map[string]bool{"a": true, "b": false, "": true} {
		if got := p.served(model); got != want {
			t.Errorf("model %q: got %t, want %t", model, got, want)
		}
	}
	p.pool.Report(specs[1], scheduler.Report{Up: true})
	if !p.served("b") {
		t.Error("an engine that does not tell its models serves none, want any")
	}
}
