package scheduler

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/warmroute/kvindex"
)

// address returns the i-th test address.
func address(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000)
}

// fleet is a pool of n endpoints whose state a test sets one by one.
type fleet struct {
	pool  *Pool
	index *fakeIndex
	all   []*Endpoint
}

func newFleet(n int) *fleet {
	f := &fleet{pool: NewPool(), index: newFakeIndex()}
	specs := make([]Spec, n)
	for i := range specs {
		specs[i] = Spec{Addr: address(i), Rank: -1}
	}
	f.all, _ = f.pool.Set(specs)
	for i := range f.all {
		f.report(i, Load{At: start}, true)
		f.index.blockSize[f.all[i].ID] = 16
	}
	return f
}

func (f *fleet) report(i int, l Load, up bool) {
	f.pool.Report(f.all[i].Spec(), Report{
		Up:       up,
		Load:     l,
		Identity: &Identity{Base: "m", Models: []Model{{Name: "m"}}, BlockSize: 16, KVBlocks: 10_000},
	})
}

// TestNoRuleIsEverViolated draws fleets and requests and checks that a pick is
// up, serves the model, is in the subset, and that an error is right.
func TestNoRuleIsEverViolated(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	models := []string{"a", "b", "c"}
	for round := range 2000 {
		f := newFleet(rng.IntN(8))
		s := New(Config{Seed: 7}, f.pool, f.index)
		for _, e := range f.all {
			id := &Identity{Base: "a"}
			for _, m := range models {
				if rng.IntN(2) == 0 {
					id.Models = append(id.Models, Model{Name: m})
				}
			}
			load := Load{Waiting: rng.IntN(5) - 1, Running: rng.IntN(9) - 1, KVUsage: rng.Float64(), At: start}
			f.pool.Report(e.Spec(), Report{Up: rng.IntN(3) > 0, Load: load, Identity: id})
			f.index.held[e.ID] = rng.IntN(40)
			f.index.blockSize[e.ID] = []int{0, 16, 32}[rng.IntN(3)]
		}
		req := &Request{Model: append(models, "")[rng.IntN(4)], Tokens: make([]uint32, rng.IntN(600)), Now: start}
		if req.HasSubset = rng.IntN(2) == 0; req.HasSubset {
			for range rng.IntN(4) {
				a := address(rng.IntN(8))
				req.Subset = append(req.Subset, netip.AddrPortFrom(a.Addr(), []uint16{0, 8000, 9}[rng.IntN(3)]))
			}
		}
		unserved := !slices.ContainsFunc(f.pool.Snapshot(), func(e *Endpoint) bool {
			_, ok := e.serves(req.Model)
			return ok
		})
		allowed := func(e *Endpoint) bool {
			_, serves := e.serves(req.Model)
			serves = serves || unserved
			in := !req.HasSubset || slices.ContainsFunc(req.Subset, func(a netip.AddrPort) bool {
				return a.Addr() == e.Addr.Addr() && (a.Port() == 0 || a.Port() == e.Addr.Port())
			})
			return e.Up && serves && in
		}
		exists := slices.ContainsFunc(f.pool.Snapshot(), allowed)

		d, err := s.Pick(t.Context(), req)
		switch {
		case err != nil && exists:
			t.Fatalf("round %d: %v although a candidate exists", round, err)
		case err == nil && !exists:
			t.Fatalf("round %d: picked %v although no endpoint is allowed", round, d.Endpoint)
		case err != nil && !errors.Is(err, ErrNoEndpoint):
			t.Fatalf("round %d: %v does not wrap ErrNoEndpoint", round, err)
		case err == nil:
			i := slices.IndexFunc(f.pool.Snapshot(), func(e *Endpoint) bool { return e.Addr == d.Endpoint })
			if !allowed(f.pool.Snapshot()[i]) {
				t.Fatalf("round %d: picked %v, which the request excludes", round, d.Endpoint)
			}
			if d.Matched < 0 || d.Matched >= max(1, len(req.Tokens)) {
				t.Fatalf("round %d: matched %d of %d", round, d.Matched, len(req.Tokens))
			}
			if !slices.Contains(reasons[:], d.Reason) {
				t.Fatalf("round %d: unknown reason %q", round, d.Reason)
			}
		}
	}
}

// TestBetterInEveryWayWins draws fleets in which one endpoint beats each other
// one in prefix, queue, running requests, KV usage and own pending work.
func TestBetterInEveryWayWins(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for round := range 1000 {
		n := 2 + rng.IntN(8)
		f := newFleet(n)
		s := New(Config{Seed: uint64(round) + 1}, f.pool, f.index)
		best := rng.IntN(n)
		held, waiting, running, kv := 2+rng.IntN(50), rng.IntN(4), rng.IntN(20), rng.Float64()
		for i := range n {
			if i == best {
				f.index.held[f.all[i].ID] = held
				f.report(i, Load{Waiting: waiting, Running: running, KVUsage: kv, At: start}, true)
				continue
			}
			f.index.held[f.all[i].ID] = rng.IntN(held)
			f.report(i, Load{
				Waiting: waiting + 1 + rng.IntN(4), Running: running + 1 + rng.IntN(9), KVUsage: kv + (1-kv)*rng.Float64(), At: start,
			}, true)
			f.all[i].own.reserve(f.pool.since(start), time.Duration(1+rng.IntN(1000))*time.Millisecond, 100)
		}
		d, err := s.Pick(t.Context(), &Request{Model: "m", Tokens: make([]uint32, 100+rng.IntN(1000)), Now: start})
		if err != nil || d.Endpoint != f.all[best].Addr {
			t.Fatalf("round %d: picked %v (%v), want %v", round, d.Endpoint, err, f.all[best].Addr)
		}
	}
}

func TestTiesAreSharedAndReproducible(t *testing.T) {
	picks := func(seed uint64) (string, []int) {
		f := newFleet(4)
		count := make([]int, 4)
		var order strings.Builder
		s := New(Config{Seed: seed}, f.pool, f.index)
		for range 4000 {
			d, err := s.Pick(t.Context(), &Request{Model: "m", Bodyless: true, Now: start})
			if err != nil {
				t.Fatal(err)
			}
			i := int(d.Endpoint.Addr().As4()[3])
			count[i]++
			order.WriteString(strconv.Itoa(i))
		}
		return order.String(), count
	}
	first, count := picks(42)
	for i, n := range count {
		if n < 850 || n > 1150 {
			t.Errorf("endpoint %d got %d of 4000 equal picks", i, n)
		}
	}
	if again, _ := picks(42); again != first {
		t.Error("the same seed gave other picks")
	}
	if other, _ := picks(43); other == first {
		t.Error("another seed gave the same picks")
	}
}

// TestPicksAndReportsAtOnce runs every method at the same time for the race
// detector, and checks that IDs stay unique.
func TestPicksAndReportsAtOnce(t *testing.T) {
	const endpoints = 16
	f := newFleet(endpoints)
	s := New(Config{}, f.pool, f.index)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				now := start.Add(time.Duration(i) * time.Millisecond)
				if _, err := s.Pick(t.Context(), &Request{Model: "m", Tokens: make([]uint32, 64+g), Now: now}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 2000 {
			now := start.Add(time.Duration(i) * time.Millisecond)
			f.report(i%endpoints, Load{Waiting: i % 3, Running: i % 5, KVUsage: 0.5, At: now}, true)
			s.Stats()
		}
	})
	wg.Go(func() {
		specs := make([]Spec, 0, endpoints)
		for i := range endpoints {
			specs = append(specs, Spec{Addr: address(i), Rank: -1})
		}
		for i := range 500 {
			f.pool.Set(specs[:endpoints-i%4])
			seen := map[kvindex.EndpointID]bool{}
			for _, e := range f.pool.Snapshot() {
				if seen[e.ID] {
					t.Errorf("ID %d is used twice", e.ID)
				}
				seen[e.ID] = true
			}
		}
	})
	wg.Wait()
}
