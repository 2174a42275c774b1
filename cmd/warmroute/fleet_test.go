package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/warmroute/kvindex"
	"github.com/warmroute/warmroute/kvindex/zmq"
	"github.com/warmroute/warmroute/scheduler"
	"github.com/warmroute/warmroute/scheduler/scrape"
	"github.com/warmroute/warmroute/tokenize"
)

// testFleet is a fleet of one engine that is reported on by hand.
func testFleet(t *testing.T, cfg config) (f *fleet, addr netip.AddrPort) {
	t.Helper()
	cfg.Endpoints.Static = []string{"127.0.0.1:1"}
	p := &picker{
		log: slog.New(slog.DiscardHandler), pool: scheduler.NewPool(), index: kvindex.New(), models: tokenize.NewModels(),
	}
	f, err := newFleet(t.Context(), cfg, p)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.publishLocked()
	f.mu.Unlock()
	t.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, e := range f.engines {
			f.unsubscribeLocked(e)
		}
	})
	return f, f.addrs[0]
}

func identity(base string, ranks int, events ...scrape.EventSource) *scrape.Identity {
	return &scrape.Identity{
		Identity: scheduler.Identity{Base: base, Models: []scheduler.Model{{Name: base}}},
		Ranks:    ranks, Events: events,
	}
}

// store gives the endpoint of that rank one block, as its feed would.
func store(t *testing.T, f *fleet, rank int) {
	t.Helper()
	for _, e := range f.pool.Snapshot() {
		if e.Rank != rank {
			continue
		}
		err := f.index.Apply(e.ID, kvindex.EventBatch{Rank: -1, Events: []kvindex.Event{
			kvindex.BlockStored{Hashes: []uint64{1}, Tokens: []uint32{1, 2}, BlockSize: 2},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no endpoint of rank %d", rank)
}

// blocks counts what the index holds, by rank.
func blocks(f *fleet) map[int]int {
	held := make(map[int]int)
	for _, e := range f.pool.Snapshot() {
		held[e.Rank] = f.index.EndpointStats(e.ID).Blocks[kvindex.TierGPU]
	}
	return held
}

func TestFleetForgetsWhatNoLongerHolds(t *testing.T) {
	tests := []struct {
		name string
		then scrape.Report // after an engine of one rank with a block was reported
		want map[int]int
	}{
		{"a further load report", scrape.Report{Up: true}, map[int]int{-1: 1}},
		{"down for a moment", scrape.Report{Err: errors.New("refused")}, map[int]int{-1: 1}},
		{"asked again, the same engine", scrape.Report{Up: true, Identity: identity("m", 1)}, map[int]int{-1: 1}},
		{"a restart", scrape.Report{Up: true, Restarted: true, Identity: identity("m", 1)}, map[int]int{-1: 0}},
		{"another model at the address", scrape.Report{Up: true, Identity: identity("other", 1)}, map[int]int{-1: 0}},
		{"two ranks at the address", scrape.Report{Up: true, Identity: identity("m", 2)}, map[int]int{0: 0, 1: 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, addr := testFleet(t, defaultConfig())
			f.report(t.Context(), scrape.Report{Addr: addr, Up: true, Identity: identity("m", 1)})
			store(t, f, -1)
			tt.then.Addr = addr
			f.report(t.Context(), tt.then)
			if diff := cmp.Diff(blocks(f), tt.want); diff != "" {
				t.Errorf("blocks by rank, got (-) and want (+):\n%s", diff)
			}
		})
	}
}

func TestFleetFindsEventSources(t *testing.T) {
	announced := scrape.EventSource{Rank: -1, Events: "127.0.0.1:7", Replay: "127.0.0.1:8", Topic: "kv@pod@m"}
	tests := []struct {
		name   string
		events int // configured ports, 0 for none
		id     *scrape.Identity
		want   map[int]zmq.Source
	}{
		{"announced by the engine, any topic", 5557, identity("m", 1, announced), map[int]zmq.Source{-1: {Events: "127.0.0.1:7", Replay: "127.0.0.1:8"}}},
		{"not announced", 5557, identity("m", 1), map[int]zmq.Source{-1: {Events: "127.0.0.1:5557", Replay: "127.0.0.1:5558"}}},
		{"not announced, a port a rank", 5557, identity("m", 2), map[int]zmq.Source{
			0: {Events: "127.0.0.1:5557", Replay: "127.0.0.1:5558"}, 1: {Events: "127.0.0.1:5558", Replay: "127.0.0.1:5559"},
		}},
		{"none", 0, identity("m", 1), map[int]zmq.Source{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := defaultConfig()
			cfg.Endpoints.EventsPort = tt.events
			f, addr := testFleet(t, cfg)
			f.report(t.Context(), scrape.Report{Addr: addr, Up: true, Identity: tt.id})
			got := make(map[int]zmq.Source)
			for rank, s := range f.engines[addr].feeds {
				got[rank] = s.source
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("sources by rank, got (-) and want (+):\n%s", diff)
			}
		})
	}
}

// TestFleetSharesANamespaceAcrossAliases: engines that list their names in
// another order still serve the same model.
func TestFleetSharesANamespaceAcrossAliases(t *testing.T) {
	cfg := defaultConfig()
	cfg.Models = []modelConfig{{Name: "m", Aliases: []string{"alias"}, Tokenizer: "unused"}}
	f, addr := testFleet(t, cfg)
	id := identity("alias", 1)
	id.Models = append(id.Models, scheduler.Model{Name: "m"}, scheduler.Model{Name: "lora", Adapter: "lora"})
	f.report(t.Context(), scrape.Report{Addr: addr, Up: true, Identity: id})
	if got := f.pool.Snapshot()[0].Base; got != "m" {
		t.Errorf("base model: got %q, want the configured name m", got)
	}
}

func TestFleetIsReadyOnceEveryEngineWasAsked(t *testing.T) {
	f, addr := testFleet(t, defaultConfig())
	select {
	case <-f.probed:
		t.Fatal("ready before the engine was asked")
	default:
	}
	f.report(t.Context(), scrape.Report{Addr: addr, Err: errors.New("refused")})
	select {
	case <-f.probed:
	default:
		t.Error("not ready although the engine was asked")
	}
}

// TestFleetStops: run returns once its context ends, with every watcher and
// subscription.
func TestFleetStops(t *testing.T) {
	f, addr := testFleet(t, defaultConfig())
	f.report(t.Context(), scrape.Report{Addr: addr, Up: true, Identity: identity("m", 1)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.run(ctx) }()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("run ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("still running")
	}
	if n := len(f.engines[addr].feeds); n != 0 {
		t.Errorf("%d subscriptions are left", n)
	}
}
