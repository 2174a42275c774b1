package scheduler

import (
	"testing"

	"github.com/warmroute/warmroute/kvindex"
)

// blocks is the event of an engine that stored the full blocks of tokens.
func blocks(tokens []uint32, blockSize int, adapter string) kvindex.EventBatch {
	n := len(tokens) / blockSize
	ev := kvindex.BlockStored{Tokens: tokens[:n*blockSize], BlockSize: blockSize, LoraName: adapter, HasExtras: true}
	for i := range n {
		ev.Hashes = append(ev.Hashes, uint64(1000+i))
		if adapter != "" {
			ev.Extras = append(ev.Extras, kvindex.BlockExtras{Block: i, Keys: []kvindex.ExtraKey{{Text: adapter}}})
		}
	}
	return kvindex.EventBatch{Rank: -1, Events: []kvindex.Event{ev}}
}

// TestPickWithIndex runs picks over the real index: each engine is credited
// for what it reported in the namespace of the request, and in no other.
func TestPickWithIndex(t *testing.T) {
	prompt := make([]uint32, 500)
	for i := range prompt {
		prompt[i] = uint32(i)
	}
	index, pool := kvindex.New(), NewPool()
	s := New(Config{Seed: 1}, pool, index)
	added, _ := pool.Set(specs("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"))
	for i, held := range []kvindex.EventBatch{blocks(prompt[:160], 16, ""), blocks(prompt[:256], 32, ""), blocks(prompt[:480], 16, "poet")} {
		e := added[i]
		pool.Report(e.Spec(), Report{Up: true, Load: Load{At: start}, Identity: &Identity{
			Base: "m", Models: []Model{{Name: "m"}, {Name: "poet", Adapter: "poet"}},
		}})
		index.Attach(e.ID, "m")
		if err := index.Apply(e.ID, held); err != nil {
			t.Fatal(err)
		}
	}

	for _, tt := range []struct {
		name     string
		req      Request
		endpoint string // empty: any
		reason   Reason
		matched  int
	}{
		{"larger blocks held further", Request{Model: "m", Tokens: prompt}, "10.0.0.2:1", ReasonPrefix, 256},
		{"the adapter's blocks", Request{Model: "poet", Tokens: prompt}, "10.0.0.3:1", ReasonPrefix, 480},
		{"the last token is always computed", Request{Model: "poet", Tokens: prompt[:480]}, "10.0.0.3:1", ReasonPrefix, 464},
		{"another salt shares nothing", Request{Model: "m", Salt: "s", Tokens: prompt}, "", ReasonNoOverlap, 0},
		{"another prompt shares nothing", Request{Model: "m", Tokens: prompt[1:]}, "", ReasonNoOverlap, 0},
	} {
		tt.req.Now = start
		d, err := s.Pick(t.Context(), &tt.req)
		if err != nil {
			t.Fatal(err)
		}
		if tt.endpoint != "" && d.Endpoint.String() != tt.endpoint || d.Reason != tt.reason || d.Matched != tt.matched {
			t.Errorf("%s: got %v %s %d, want %s %s %d", tt.name, d.Endpoint, d.Reason, d.Matched, tt.endpoint, tt.reason, tt.matched)
		}
	}
}

func TestPickWithIndexDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("NOT CHECKED: allocations cannot be counted under the race detector; run without -race")
	}
	pool, _ := denseFleet(8)
	index := kvindex.New()
	tokens := make([]uint32, 4096)
	for _, e := range pool.Snapshot() {
		index.Attach(e.ID, "m")
		if err := index.Apply(e.ID, blocks(tokens[:2048], 16, "")); err != nil {
			t.Fatal(err)
		}
	}
	s := New(Config{}, pool, index)
	req := &Request{Model: "m", Tokens: tokens, Now: start}
	allocs := testing.AllocsPerRun(5000, func() {
		if d, err := s.Pick(t.Context(), req); err != nil || d.Matched != 2048 {
			t.Fatal(d, err)
		}
	})
	if allocs >= 1 {
		t.Errorf("%v allocations a pick, want 0", allocs)
	}
}
