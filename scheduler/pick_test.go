package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/warmroute/kvindex"
)

// denseIndex is an index whose answers cost a copy, so that benchmarks show
// the pick.
type denseIndex struct{ held []int }

func (x *denseIndex) BlockSize(kvindex.EndpointID) int { return 16 }

func (x *denseIndex) Match(hashes []kvindex.BlockHash, depth []int) {
	copy(depth, x.held)
	for i := range depth {
		depth[i] = min(depth[i], len(hashes))
	}
}

func denseFleet(n int) (*Pool, *denseIndex) {
	rng := rand.New(rand.NewPCG(5, 6))
	pool, index := NewPool(), &denseIndex{held: make([]int, n)}
	list := make([]Spec, n)
	for i := range list {
		list[i] = Spec{Addr: address(i), Rank: -1}
	}
	pool.Set(list)
	for i, s := range list {
		index.held[i] = rng.IntN(4)
		pool.Report(s, Report{
			Up:       true,
			Identity: &Identity{Base: "m", Models: []Model{{Name: "m"}, {Name: "poet", Adapter: "poet"}}, BlockSize: 16, KVBlocks: 60_000},
			Load:     Load{Waiting: rng.IntN(2), Running: rng.IntN(30), KVUsage: rng.Float64(), At: start},
		})
	}
	return pool, index
}

func TestPickDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("NOT CHECKED: allocations cannot be counted under the race detector; run without -race")
	}
	for _, n := range []int{8, 100, 1000} {
		pool, index := denseFleet(n)
		s := New(Config{}, pool, index)
		req := &Request{Model: "m", Tokens: make([]uint32, 64), Now: start, HasSubset: true}
		for i := range n {
			req.Subset = append(req.Subset, address(i))
		}
		allocs := testing.AllocsPerRun(2000, func() {
			if _, err := s.Pick(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		})
		if allocs >= 1 { // below one: a ledger's list grows to its bound
			t.Errorf("%d endpoints: %v allocations a pick, want 0", n, allocs)
		}
	}
}

// BenchmarkPick is the pick beside hashing and matching: the prompt has four
// blocks.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{8, 100, 1000} {
		pool, index := denseFleet(n)
		req := &Request{Model: "m", Tokens: make([]uint32, 64), Now: start}
		b.Run(fmt.Sprintf("joint/endpoints=%d", n), func(b *testing.B) {
			s := New(Config{Seed: 1}, pool, index)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Pick(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("naive/endpoints=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				naivePick(pool, index, req)
			}
		})
	}
}

// naivePick is what one would write first: maps by address, a score for each
// endpoint, least requests. It stands beside the pick in the benchmark.
func naivePick(pool *Pool, index Index, req *Request) Spec {
	scores := map[Spec]float64{}
	for _, e := range pool.Snapshot() {
		if _, ok := e.serves(req.Model); !ok || !e.Up {
			continue
		}
		depth := make([]int, int(e.ID)+1)
		root := kvindex.Namespace{Model: e.Base}.Root(16)
		index.Match(kvindex.AppendHashes(nil, root, req.Tokens, 16), depth)
		scores[e.Spec()] = float64(len(req.Tokens)-16*depth[e.ID]) + 100*float64(e.Load.Running+e.Load.Waiting)
	}
	var best Spec
	lowest := 0.0
	for s, score := range scores {
		if best == (Spec{}) || score < lowest {
			best, lowest = s, score
		}
	}
	return best
}

func TestPickEndsWithItsContext(t *testing.T) {
	f := newFleet(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(Config{}, f.pool, f.index).Pick(ctx, &Request{Model: "m"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestStatsCountByModelAndReason(t *testing.T) {
	f := newFleet(2)
	s := New(Config{}, f.pool, f.index)
	f.index.held[f.all[0].ID] = 4
	for _, req := range []Request{
		{Model: "m", Tokens: make([]uint32, 100)},
		{Model: "m", Bodyless: true},
		{Bodyless: true},
		{Model: "nobody"},
		{Model: "m", HasSubset: true},
	} {
		req.Now = start
		_, err := s.Pick(t.Context(), &req)
		if err != nil && !errors.Is(err, ErrNoEndpoint) {
			t.Fatal(err)
		}
	}
	f.report(0, Load{}, false)
	want := Stats{
		Endpoints: 2, Up: 1, NoneInSubset: 1,
		Models: []ModelStats{{
			Model: "m", PromptTokens: 100, PredictedTokens: 64,
			Picks: []ReasonCount{{ReasonPrefix, 1}, {ReasonBodyless, 2}},
		}, {
			Model: "other", Picks: []ReasonCount{{ReasonUnserved, 1}},
		}},
	}
	if diff := cmp.Diff(s.Stats(), want); diff != "" {
		t.Errorf("stats differ (-got +want):\n%s", diff)
	}
}

func TestStatsBoundModels(t *testing.T) {
	var c counters
	for i := range 2 * maxModels {
		c.count(strconv.Itoa(i), Decision{Reason: ReasonSingle})
	}
	all := *c.models.Load()
	if len(all) != maxModels+1 {
		t.Errorf("%d models counted, want %d and %q", len(all), maxModels, otherModels)
	}
	if got := all[otherModels].picks[6].Load(); got != maxModels {
		t.Errorf("%d picks under %q, want %d", got, otherModels, maxModels)
	}
}

func TestConfigValidate(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"zero means the defaults", Config{}, ""},
		{"the defaults are valid", Config{}.withDefaults(), ""},
		{"a negative speed", Config{PrefillSpeed: -1}, "scheduler: prefill_speed is -1, want 1 to 1e+09 tokens per second"},
		{"a stale age of a day", Config{LoadStale: 24 * time.Hour}, "scheduler: load_stale is 86400, want 0.001 to 3600 seconds"},
	} {
		got := ""
		if err := tt.cfg.Validate(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
