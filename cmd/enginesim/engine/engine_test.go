package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func testConfig() Config {
	return Config{
		BlockSize: 4, Blocks: 10, MaxModelLen: 36, MaxRunning: 8, TokenBudget: 64,
		PrefillRate: 1000, StepBase: 10 * time.Millisecond, StepPerSeq: time.Millisecond,
	}
}

func newTestEngine(t *testing.T, cfg Config) *Engine {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// tokens is n token ids that start at from.
func tokens(from, n int) []uint32 {
	ts := make([]uint32, n)
	for i := range ts {
		ts[i] = uint32(from + i)
	}
	return ts
}

func request(id uint64, prompt []uint32, output int) *Request {
	return &Request{ID: id, Tokens: prompt, MaxTokens: output, Output: func(i int) uint32 { return uint32(1000*int(id) + i) }}
}

func submit(t *testing.T, e *Engine, now time.Duration, rs ...*Request) {
	t.Helper()
	for _, r := range rs {
		if err := e.Submit(now, r); err != nil {
			t.Fatal(err)
		}
	}
}

// drain steps until the engine is idle.
func drain(e *Engine) (updates []Update, events []Event) {
	for {
		if _, ok := e.Next(); !ok {
			return updates, events
		}
		out := e.Step()
		updates = append(updates, out.Updates...)
		events = append(events, out.Events...)
	}
}

// firsts is when each request got its first token, and from how much cache.
func firsts(e *Engine) map[uint64][2]int {
	got := map[uint64][2]int{}
	for {
		if _, ok := e.Next(); !ok {
			return got
		}
		out := e.Step()
		for _, u := range out.Updates {
			if u.Index == 0 {
				got[u.ID] = [2]int{int(out.At / time.Millisecond), u.Cached}
			}
		}
	}
}

func TestScheduling(t *testing.T) {
	cases := []struct {
		name   string
		change func(*Config)
		rs     []*Request
		want   map[uint64][2]int // first token in ms, cached tokens
	}{
		{
			"a step takes its base and its prompt tokens", nil,
			[]*Request{request(1, tokens(0, 20), 1)},
			map[uint64][2]int{1: {30, 0}},
		},
		{
			"a prompt longer than the budget takes several steps", func(c *Config) { c.TokenBudget = 8 },
			[]*Request{request(1, tokens(0, 20), 1)},
			map[uint64][2]int{1: {50, 0}},
		},
		{
			"decoding requests come first and slow the step", nil,
			[]*Request{request(1, tokens(0, 10), 2), request(2, tokens(50, 10), 1)},
			map[uint64][2]int{1: {30, 0}, 2: {30, 0}},
		},
		{
			"no more than the allowed number run, in order of arrival", func(c *Config) { c.MaxRunning = 1 },
			[]*Request{request(1, tokens(0, 10), 2), request(2, tokens(50, 10), 1)},
			map[uint64][2]int{1: {20, 0}, 2: {51, 0}},
		},
		{
			"equal prompts of one step share blocks", nil,
			[]*Request{request(1, tokens(0, 10), 1), request(2, tokens(0, 10), 1)},
			map[uint64][2]int{1: {22, 0}, 2: {22, 8}},
		},
		{
			"the last token is computed anew", func(c *Config) { c.MaxRunning = 1 },
			[]*Request{request(1, tokens(0, 8), 1), request(2, tokens(0, 8), 1)},
			map[uint64][2]int{1: {18, 0}, 2: {32, 4}},
		},
		{
			"a prompt waits until all of it fits", nil,
			[]*Request{request(1, tokens(0, 24), 4), request(2, tokens(50, 20), 1)},
			map[uint64][2]int{1: {34, 0}, 2: {97, 0}},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig()
			if c.change != nil {
				c.change(&cfg)
			}
			e := newTestEngine(t, cfg)
			submit(t, e, 0, c.rs...)
			if diff := cmp.Diff(c.want, firsts(e)); diff != "" {
				t.Errorf("first tokens (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPreemptedRequestStartsOverAndAnswersTheSame(t *testing.T) {
	e := newTestEngine(t, testConfig()) // 9 usable blocks
	submit(t, e, 0, request(1, tokens(0, 14), 14), request(2, tokens(50, 14), 14))
	updates, _ := drain(e)
	if got := e.Stats().Preemptions; got == 0 {
		t.Error("got no preemption, want at least one: 56 tokens do not fit 36")
	}
	got := map[uint64][]uint32{}
	for _, u := range updates {
		if u.Index != len(got[u.ID]) {
			t.Errorf("request %d: got token %d, want %d", u.ID, u.Index, len(got[u.ID]))
		}
		got[u.ID] = append(got[u.ID], u.Token)
	}
	want := map[uint64][]uint32{1: tokens(1000, 14), 2: tokens(2000, 14)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	if s := e.Stats(); s.UsedBlocks != 0 || s.Finished != 2 {
		t.Errorf("got %d blocks in use and %d finished, want 0 and 2", s.UsedBlocks, s.Finished)
	}
}

func TestReset(t *testing.T) {
	e := newTestEngine(t, testConfig())
	submit(t, e, 0, request(1, tokens(0, 9), 2))
	e.Step()
	if e.Reset() {
		t.Error("the cache was reset while a request held blocks")
	}
	drain(e)
	if !e.Reset() {
		t.Error("the cache of an idle engine was not reset")
	}
	if _, ok := e.Next(); ok {
		t.Error("a reset woke the engine; its event waits for the next step")
	}
	submit(t, e, time.Second, request(2, tokens(0, 9), 1))
	updates, events := drain(e)
	if updates[0].Cached != 0 {
		t.Errorf("got %d cached tokens after the reset, want 0", updates[0].Cached)
	}
	if _, first := events[0].(Cleared); !first {
		t.Errorf("got %T first, want Cleared", events[0])
	}
}

func TestCancelGivesBlocksBack(t *testing.T) {
	e := newTestEngine(t, testConfig())
	submit(t, e, 0, request(1, tokens(0, 16), 8), request(2, tokens(50, 30), 1))
	e.Step()
	if !e.Cancel(1) || !e.Cancel(2) || e.Cancel(3) {
		t.Error("want live requests cancelled and an unknown one refused")
	}
	drain(e)
	if s := e.Stats(); s.UsedBlocks != 0 || s.Aborted != 2 || s.Running != 0 || s.Waiting != 0 {
		t.Errorf("got %+v, want nothing held", s)
	}
}

func TestSubmitRefuses(t *testing.T) {
	cases := []struct {
		name string
		r    *Request
	}{
		{"an empty prompt", request(1, nil, 1)},
		{"no output", request(1, tokens(0, 4), 0)},
		{"more than the model length", request(1, tokens(0, 30), 7)},
	}
	for _, c := range cases {
		if err := newTestEngine(t, testConfig()).Submit(0, c.r); err == nil {
			t.Errorf("%s was accepted", c.name)
		}
	}
	cfg := testConfig()
	cfg.MaxModelLen = 100
	if err := newTestEngine(t, cfg).Submit(0, request(1, tokens(0, 36), 2)); err == nil {
		t.Error("a request larger than the pool was accepted")
	}
}

// TestPoolAgainstEvents drives random load and checks the pool's invariants
// after each step, and that whoever only counts the events knows exactly which
// blocks can be found.
func TestPoolAgainstEvents(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	cfg := testConfig()
	cfg.Blocks, cfg.TokenBudget = 14, 24
	e := newTestEngine(t, cfg)
	copies := map[Hash]int{}
	for id := uint64(1); id < 3000; id++ {
		for range rng.IntN(3) {
			prompt := tokens(100*rng.IntN(4), 4+rng.IntN(20))
			if rng.IntN(2) == 0 {
				prompt[len(prompt)-1-rng.IntN(4)] = 7
			}
			r := request(id, prompt, 1+rng.IntN(12))
			at, _ := e.Next()
			submit(t, e, at, r)
			id++
		}
		if rng.IntN(20) == 0 {
			e.Cancel(id - uint64(rng.IntN(4)))
		}
		if rng.IntN(30) == 0 {
			e.Reset()
		}
		out := e.Step()
		for _, ev := range append(out.Events, e.pool.events...) {
			switch ev := ev.(type) {
			case Stored:
				for _, h := range ev.Hashes {
					copies[h]++
				}
			case Removed:
				for _, h := range ev.Hashes {
					if copies[h]--; copies[h] < 0 {
						t.Fatalf("step %d: a block was removed more often than stored", id)
					}
				}
			case Cleared:
				clear(copies)
			}
		}
		e.pool.events = nil // counted above
		checkPool(t, e, copies)
		if t.Failed() {
			t.Fatalf("at step %d", id)
		}
	}
	if s := e.Stats(); s.Preemptions == 0 || s.HitTokens == 0 || s.Finished < 500 {
		t.Errorf("the load was too tame to prove anything: %+v", s)
	}
}

func checkPool(t *testing.T, e *Engine, copies map[Hash]int) {
	t.Helper()
	p := e.pool
	refs := map[*block]int{}
	for _, r := range e.running {
		for _, b := range r.blocks {
			refs[b]++
		}
	}
	if b := &p.blocks[0]; b.refs != 0 || b.hashed || b.next != nil {
		t.Error("(1) the null block was handed out")
	}
	free := map[*block]bool{}
	for b := p.free.next; b != &p.free; b = b.next {
		free[b] = true
	}
	if len(free) != p.nfree {
		t.Errorf("(2) got %d blocks in the free queue, counted %d", len(free), p.nfree)
	}
	found := map[Hash]int{}
	for i := 1; i < len(p.blocks); i++ {
		b := &p.blocks[i]
		if b.refs != refs[b] || free[b] != (b.refs == 0) {
			t.Errorf("(2) block %d: %d references counted, %d held, free %v", i, b.refs, refs[b], free[b])
		}
		if b.hashed {
			found[b.hash]++
		}
	}
	for h, first := range p.cached {
		n := 0
		for b := first; b != nil; b = b.twin {
			n++
		}
		if n != found[h] {
			t.Errorf("(3) %d copies can be found of a block with %d", n, found[h])
		}
	}
	for h, n := range copies {
		if n != found[h] {
			t.Errorf("events say %d copies of a block with %d", n, found[h])
		}
	}
	if len(found) > len(copies) {
		t.Errorf("%d blocks can be found, events say %d", len(found), len(copies))
	}
}

func BenchmarkDecodeStep(b *testing.B) {
	cfg := testConfig()
	cfg.BlockSize, cfg.Blocks, cfg.MaxModelLen, cfg.MaxRunning = 16, 1<<17, 1<<20, 64
	e, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	next := uint64(0)
	top := func() {
		for len(e.running)+len(e.waiting) < 64 {
			next++
			if err := e.Submit(e.at, request(next, tokens(int(next)*64, 32), 20000)); err != nil {
				b.Fatal(err)
			}
		}
	}
	top()
	for range 50 {
		e.Step()
	}
	b.ReportAllocs()
	for b.Loop() {
		e.Step()
		top()
	}
}
