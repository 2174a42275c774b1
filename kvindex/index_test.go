package kvindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// checkInvariants checks the numbered invariants of Index that one look at a
// resting index can check.
func checkInvariants(tb testing.TB, x *Index) {
	tb.Helper()
	type member struct {
		own  BlockHash
		e    EndpointID
		tier Tier
	}
	want := make(map[member]bool)
	for _, ep := range *x.endpoints.Load() {
		if ep == nil {
			continue
		}
		groups := make(map[member]uint32)
		var blocks [numTiers]int
		unresolved := 0
		for _, g := range ep.groups {
			owned := make(map[BlockHash]uint64)
			for hash, b := range g.blocks.all() {
				if !b.exists() {
					tb.Fatalf("endpoint %d keeps %x without a copy", ep.id, hash)
				}
				if b.maybe() > b.gpu {
					tb.Fatalf("endpoint %d: %x has %d copies, of them %d in doubt", ep.id, hash, b.gpu, b.maybe())
				}
				if !b.resolved() {
					unresolved++
				} else if other, ok := owned[b.own]; ok {
					tb.Fatalf("invariant 4: endpoint %d: %x and %x are both %x", ep.id, hash, other, b.own)
				} else {
					owned[b.own] = hash
				}
				for t := range numTiers {
					if !b.in(t) {
						continue
					}
					blocks[t]++
					if b.resolved() {
						groups[member{b.own, ep.id, t}] |= g.bit
					}
				}
			}
		}
		for m, bits := range groups {
			if bits == ep.proving {
				want[m] = true
			}
		}
		if blocks != ep.stats.Blocks || unresolved != ep.stats.Unresolved {
			tb.Fatalf("endpoint %d counts %v blocks, %d unresolved, has %v, %d", ep.id, ep.stats.Blocks, ep.stats.Unresolved, blocks, unresolved)
		}
		waiting, tokens := 0, 0
		for _, spans := range ep.waiting {
			waiting += len(spans)
			for _, sp := range spans {
				tokens += len(sp.tokens)
			}
		}
		if waiting != ep.stats.Waiting || tokens != ep.waitingTokens || waiting > maxWaiting || tokens > maxWaitingTokens {
			tb.Fatalf("endpoint %d counts %d waiting, %d tokens, has %d, %d", ep.id, ep.stats.Waiting, ep.waitingTokens, waiting, tokens)
		}
	}
	got := make(map[member]bool)
	refs := make(map[setID]uint32)
	eps := len(*x.endpoints.Load())
	for i := range x.table.shards {
		p := x.table.shards[i].buckets.Load()
		if p == nil {
			continue
		}
		used := 0
		for _, b := range *p {
			for j, key := range b.keys {
				if key == 0 {
					continue
				}
				used++
				if b.sets[j] == 0 {
					tb.Fatalf("invariant 3: %x is kept without a holder", key)
				}
				if id := x.table.shards[i].find(key); id != setID(b.sets[j]) {
					tb.Fatalf("a look-up of %x finds set %d, want %d", key, id, b.sets[j])
				}
				refs[setID(b.sets[j])]++
				for e := range eps {
					for t := range numTiers {
						if x.table.sets.get(setID(b.sets[j])).has(EndpointID(e), t) {
							got[member{BlockHash(key), EndpointID(e), t}] = true
						}
					}
				}
			}
		}
		if used != x.table.shards[i].used {
			tb.Fatalf("shard %d counts %d blocks, has %d", i, x.table.shards[i].used, used)
		}
	}
	if diff := cmp.Diff(got, want); diff != "" {
		tb.Fatalf("invariant 2: holders (-got +want):\n%s", diff)
	}
	if len(refs) != x.table.sets.live {
		tb.Fatalf("invariant 3: %d holder sets live, %d in use", x.table.sets.live, len(refs))
	}
	for id, n := range refs {
		if x.table.sets.refs[id] != n {
			tb.Fatalf("holder set %d counts %d users, has %d", id, x.table.sets.refs[id], n)
		}
	}
}

// twin is a naive paged cache of one engine. It knows what it really holds, and
// tells it as vLLM does.
type twin struct {
	rnd    *rand.Rand
	blocks map[string]*twinBlock // by namespace and all tokens up to the block's end
	cpu    bool                  // it offloads
}

type twinBlock struct {
	gpu int
	cpu bool
}

const twinBlockSize = 2

type twinPrompt struct {
	ns     Namespace
	tokens []uint32
	paths  []string // of the blocks: what each is and everything before it
	hashes []uint64 // the engine's
	own    []BlockHash
}

func newTwinPrompt(ns Namespace, tokens []uint32) *twinPrompt {
	p := &twinPrompt{ns: ns, tokens: tokens, own: AppendHashes(nil, ns.Root(twinBlockSize), tokens, twinBlockSize)}
	for i := range p.blocks() {
		p.paths = append(p.paths, fmt.Sprint(ns, tokens[:(i+1)*twinBlockSize]))
		h := fnv.New64a()
		_, _ = h.Write([]byte(p.paths[i]))
		p.hashes = append(p.hashes, h.Sum64())
	}
	return p
}

func (p *twinPrompt) blocks() int       { return len(p.tokens) / twinBlockSize }
func (p *twinPrompt) path(i int) string { return p.paths[i] }
func (p *twinPrompt) hash(i int) uint64 { return p.hashes[i] }

func (tw *twin) block(path string) *twinBlock {
	b := tw.blocks[path]
	if b == nil {
		b = &twinBlock{}
		tw.blocks[path] = b
	}
	return b
}

// depth is how many leading blocks of p the cache can give.
func (tw *twin) depth(p *twinPrompt) int {
	i := 0
	for i < p.blocks() && tw.block(p.path(i)).gpu > 0 {
		i++
	}
	for i < p.blocks() && tw.block(p.path(i)).cpu {
		i++
	}
	return i
}

func (tw *twin) stored(p *twinPrompt, from, to int) BlockStored {
	ev := BlockStored{
		Tokens: p.tokens[from*twinBlockSize : to*twinBlockSize], BlockSize: twinBlockSize, LoraName: p.ns.Adapter,
		Medium: "GPU", HasExtras: true, SpecKind: "full_attention",
	}
	for i := from; i < to; i++ {
		ev.Hashes = append(ev.Hashes, p.hash(i))
		var keys []ExtraKey
		if p.ns.Adapter != "" {
			keys = append(keys, ExtraKey{Text: p.ns.Adapter})
		}
		if p.ns.Salt != "" && i == 0 {
			keys = append(keys, ExtraKey{Text: p.ns.Salt})
		}
		if keys != nil {
			ev.Extras = append(ev.Extras, BlockExtras{i - from, keys})
		}
	}
	if from > 0 {
		ev.Parent, ev.HasParent = p.hash(from-1), true
	}
	return ev
}

// serve computes p from block from on, and tells it in one event or two, the
// second of which may come first.
func (tw *twin) serve(p *twinPrompt, from int) []Event {
	if from == p.blocks() {
		return nil
	}
	for i := from; i < p.blocks(); i++ {
		tw.block(p.path(i)).gpu++
	}
	if p.blocks()-from < 2 || tw.rnd.IntN(3) > 0 {
		return []Event{tw.stored(p, from, p.blocks())}
	}
	cut := from + 1 + tw.rnd.IntN(p.blocks()-from-1)
	first, second := tw.stored(p, from, cut), tw.stored(p, cut, p.blocks())
	if from == 0 && tw.rnd.IntN(2) == 0 {
		return []Event{second, first} // the other way round it could be the report of a hit
	}
	return []Event{first, BlockRemoved{}, second}
}

// step does one random thing and returns what is told about it.
func (tw *twin) step(p *twinPrompt) []Event {
	switch tw.rnd.IntN(12) {
	case 0, 1, 2, 3: // a request
		hit := 0
		for hit < p.blocks() && tw.block(p.path(hit)).gpu > 0 {
			hit++
		}
		if hit == p.blocks() {
			hit-- // the last token is always computed
		}
		return tw.serve(p, hit)
	case 4: // a request that does not read the cache
		return tw.serve(p, 0)
	case 5, 6, 7, 8: // eviction of a copy
		for i := p.blocks() - 1; i >= 0; i-- {
			if b := tw.block(p.path(i)); b.gpu > 0 {
				b.gpu--
				return []Event{BlockRemoved{Hashes: []uint64{p.hash(i)}, Medium: []string{"", "GPU"}[tw.rnd.IntN(2)]}}
			}
		}
	case 9: // offload, in any order, with or without tokens
		if !tw.cpu {
			return nil
		}
		var evs []Event
		for _, i := range tw.rnd.Perm(p.blocks()) {
			b := tw.block(p.path(i))
			if b.gpu == 0 {
				continue
			}
			b.cpu = true
			ev := tw.stored(p, i, i+1)
			ev.Medium, ev.LoraName, ev.Extras, ev.HasExtras = "CPU", "", nil, false
			if tw.rnd.IntN(2) == 0 {
				ev.Tokens, ev.BlockSize, ev.HasParent, ev.Parent = nil, 0, false, 0
			}
			evs = append(evs, ev)
		}
		return evs
	case 10: // eviction from the CPU tier, also of blocks that are not there
		i := tw.rnd.IntN(p.blocks())
		tw.block(p.path(i)).cpu = false
		return []Event{BlockRemoved{Hashes: []uint64{p.hash(i)}, Medium: "cpu"}}
	case 11:
		if tw.rnd.IntN(20) > 0 {
			return nil
		}
		for _, b := range tw.blocks {
			b.gpu = 0
		}
		return []Event{AllBlocksCleared{}}
	}
	return nil
}

// TestIndexAgainstMap drives several engines at random and compares every
// answer with what the engines really hold.
func TestIndexAgainstMap(t *testing.T) {
	const engines = 5
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var prompts []*twinPrompt
		for range 12 {
			ns := Namespace{Model: "m", Adapter: []string{"", "", "a"}[rnd.IntN(3)], Salt: []string{"", "", "s", "a"}[rnd.IntN(4)]}
			var tokens []uint32
			if len(prompts) > 0 && rnd.IntN(2) == 0 { // shares a prefix, perhaps in another namespace
				other := prompts[rnd.IntN(len(prompts))]
				tokens = append(tokens, other.tokens[:rnd.IntN(len(other.tokens))]...)
			}
			for range 2 + rnd.IntN(10) {
				tokens = append(tokens, rnd.Uint32N(3))
			}
			prompts = append(prompts, newTwinPrompt(ns, tokens))
		}
		x := New()
		twins := make([]*twin, engines)
		attach := func(e int) {
			twins[e] = &twin{rnd: rnd, blocks: make(map[string]*twinBlock), cpu: e%2 == 0}
			x.Attach(EndpointID(e), "m")
		}
		for e := range engines {
			attach(e)
		}
		depth := make([]int, engines)
		for step := range 1500 {
			e := rnd.IntN(engines)
			switch rnd.IntN(500) {
			case 0:
				attach(e)
			case 1:
				x.Clear(EndpointID(e))
				twins[e].blocks = make(map[string]*twinBlock)
			}
			evs := twins[e].step(prompts[rnd.IntN(len(prompts))])
			if err := x.Apply(EndpointID(e), EventBatch{Events: evs}); err != nil {
				t.Fatal(err)
			}
			for _, p := range prompts {
				x.Match(p.own, depth)
				for e, got := range depth {
					if want := twins[e].depth(p); got != want {
						t.Fatalf("seed %d, step %d: endpoint %d holds %d blocks of %v %v, want %d", seed, step, e, got, p.ns, p.tokens, want)
					}
				}
			}
			if step%100 == 0 {
				checkInvariants(t, x)
			}
		}
		for e := range engines {
			x.Detach(EndpointID(e))
		}
		checkInvariants(t, x)
		if s := x.Stats(); s.Blocks != 0 || s.HolderSets != 0 {
			t.Fatalf("seed %d: %+v remain when all are detached", seed, s)
		}
	}
}

// stored is a GPU event of one block of one token each, on tokens.
func stored(parent uint64, hashes []uint64, tokens ...uint32) BlockStored {
	return BlockStored{
		Hashes: hashes, Parent: parent, HasParent: parent != 0, Tokens: tokens, BlockSize: 1, Medium: "GPU", HasExtras: true,
	}
}

func with(ev BlockStored, change func(*BlockStored)) BlockStored {
	change(&ev)
	return ev
}

func removed(medium string, hashes ...uint64) BlockRemoved {
	return BlockRemoved{Hashes: hashes, Medium: medium}
}

func TestWhatIsHeldAfter(t *testing.T) {
	lora := func(ev BlockStored) BlockStored {
		return with(ev, func(ev *BlockStored) {
			ev.LoraName = "a"
			for i := range ev.Hashes {
				ev.Extras = append(ev.Extras, BlockExtras{i, []ExtraKey{{Text: "a"}}})
			}
		})
	}
	cpu := func(ev BlockStored) BlockStored {
		return with(ev, func(ev *BlockStored) { ev.Medium, ev.HasExtras, ev.Extras, ev.LoraName = "CPU", false, nil, "" })
	}
	group := func(ev BlockStored, g int, kind string) BlockStored {
		return with(ev, func(ev *BlockStored) { ev.Group, ev.SpecKind = g, kind })
	}
	base, adapter, salted := Namespace{Model: "m"}, Namespace{Model: "m", Adapter: "a"}, Namespace{Model: "m", Salt: "s"}
	run := []uint64{11, 12, 13}
	tests := []struct {
		name    string
		batches [][]Event
		ns      Namespace
		want    int // leading blocks of tokens 1, 2, 3
		stats   func(EndpointStats) any
		wantSt  any
	}{
		{"a run of three", [][]Event{{stored(0, run, 1, 2, 3)}}, base, 3, nil, nil},
		{"another model is another namespace", [][]Event{{stored(0, run, 1, 2, 3)}}, Namespace{Model: "n"}, 0, nil, nil},
		{"the middle removed", [][]Event{{stored(0, run, 1, 2, 3), removed("GPU", 12)}}, base, 1, nil, nil},
		{
			"stored twice and removed once is still held",
			[][]Event{{stored(0, run, 1, 2, 3)}, {stored(12, []uint64{13}, 3)}, {removed("", 13)}},
			base, 3, nil, nil,
		},
		{
			"stored twice and removed twice is gone",
			[][]Event{{stored(0, run, 1, 2, 3)}, {stored(12, []uint64{13}, 3)}, {removed("", 13), removed("", 13)}},
			base, 2, nil, nil,
		},
		{
			"a prompt of one block computed again is a further copy",
			[][]Event{{stored(0, run[:1], 1)}, {stored(0, run[:1], 1)}, {removed("", 11)}},
			base, 1, nil, nil,
		},
		{
			"the report of a hit is none",
			[][]Event{{stored(0, run[:2], 1, 2)}, {stored(0, run[:2], 1, 2), stored(12, []uint64{13}, 3)}, {removed("", 12)}},
			base, 1, nil, nil,
		},
		{
			"nor were those before, once the engine is seen to report hits",
			[][]Event{{stored(0, run[:2], 1, 2)}, {stored(0, run[:2], 1, 2)}, {stored(0, run[:2], 1, 2), stored(12, []uint64{13}, 3)}, {removed("", 11)}},
			base, 0, nil, nil,
		},
		{
			"an unknown parent gives no credit",
			[][]Event{{stored(10, run, 1, 2, 3)}},
			base, 0, func(s EndpointStats) any { return []int{s.Waiting, s.Unresolved, s.Blocks[TierGPU]} },
			[]int{1, 3, 3},
		},
		{"a parent that comes later gives it", [][]Event{{stored(12, run[2:], 3)}, {stored(11, run[1:2], 2)}, {stored(0, run[:1], 1)}}, base, 3, nil, nil},
		{
			"a block removed while it waits is not held",
			[][]Event{{stored(12, run[2:], 3)}, {stored(11, run[1:2], 2)}, {removed("", 12)}, {stored(0, run[:1], 1)}},
			base, 1, func(s EndpointStats) any { return s.Waiting }, 0,
		},
		{
			"sparse hashes are not guessed at",
			[][]Event{{stored(0, run[:2], 1, 2, 3)}},
			base, 0, func(s EndpointStats) any { return s.Sparse }, uint64(1),
		},
		{"a removal of nothing is counted", [][]Event{{removed("GPU", 5, 6)}}, base, 0, func(s EndpointStats) any { return s.UnknownRemovals }, uint64(2)},
		{"a reset clears the GPU", [][]Event{{stored(0, run, 1, 2, 3)}, {AllBlocksCleared{}}}, base, 0, nil, nil},
		{
			"and not the CPU tier",
			[][]Event{{stored(0, run, 1, 2, 3), cpu(stored(11, run[1:2], 2)), cpu(stored(0, run[:1], 1))}, {AllBlocksCleared{}}},
			base, 2, func(s EndpointStats) any { return s.Blocks },
			[numTiers]int{0, 2, 0},
		},
		{
			"a CPU copy alone does not tell its namespace",
			[][]Event{{cpu(stored(0, run, 1, 2, 3))}},
			base, 0, func(s EndpointStats) any { return s.Unresolved }, 3,
		},
		{"a CPU copy told first counts when the GPU tells the namespace", [][]Event{{cpu(stored(0, run, 1, 2, 3))}, {stored(0, run, 1, 2, 3)}, {AllBlocksCleared{}}}, base, 3, nil, nil},
		{
			"a placeholder adds a tier",
			[][]Event{{stored(0, run, 1, 2, 3), BlockStored{Hashes: run, Medium: "CPU"}}, {removed("GPU", run...)}},
			base, 3, nil, nil,
		},
		{
			"a CPU copy is one, however often it is told",
			[][]Event{{stored(0, run, 1, 2, 3), BlockStored{Hashes: run, Medium: "CPU"}, BlockStored{Hashes: run, Medium: "CPU"}}, {AllBlocksCleared{}, removed("CPU", run...)}},
			base, 0, nil, nil,
		},
		{
			"the GPU is not read again after the CPU tier",
			[][]Event{{stored(0, run, 1, 2, 3), BlockStored{Hashes: run[1:2], Medium: "CPU"}}, {removed("GPU", 12)}},
			base, 2, nil, nil,
		},
		{
			"a disk copy is counted and not credited",
			[][]Event{{stored(0, run, 1, 2, 3), BlockStored{Hashes: run, Medium: "DISK"}}, {AllBlocksCleared{}}},
			base, 0, func(s EndpointStats) any { return s.Blocks },
			[numTiers]int{0, 0, 3},
		},
		{"a sliding-window group proves nothing", [][]Event{{group(stored(0, run, 1, 2, 3), 0, "sliding_window")}}, base, 0, func(s EndpointStats) any { return s.OtherGroups }, uint64(1)},
		{
			"a removal in another group takes nothing from this",
			[][]Event{{group(stored(0, run, 1, 2, 3), 0, "full_attention"), group(stored(0, run, 1, 2, 3), 1, "sliding_window")}, {BlockRemoved{Hashes: run, Group: 1}}},
			base, 3, nil, nil,
		},
		{
			"two full groups prove together",
			[][]Event{{group(stored(0, run, 1, 2, 3), 0, "full_attention"), group(stored(0, run[:2], 1, 2), 1, "full_attention")}},
			base, 2, nil, nil,
		},
		{
			"and both must keep a block",
			[][]Event{
				{group(stored(0, run, 1, 2, 3), 0, "full_attention"), group(stored(0, run, 1, 2, 3), 1, "mla_attention")},
				{BlockRemoved{Hashes: run[2:], Group: 1}},
				{BlockRemoved{Hashes: run[1:2], Group: 0}},
				{group(stored(11, run[1:2], 2), 0, "full_attention")},
			},
			base, 2, nil, nil,
		},
		{"an adapter is a namespace", [][]Event{{lora(stored(0, run, 1, 2, 3))}}, base, 0, nil, nil},
		{"of its name", [][]Event{{lora(stored(0, run, 1, 2, 3))}}, adapter, 3, nil, nil},
		{
			"an adapter without a name is one nobody asks for",
			[][]Event{{with(stored(0, run, 1, 2, 3), func(ev *BlockStored) { ev.LoraID = 1 })}},
			base, 0, nil, nil,
		},
		{
			"a salt is a namespace, inherited by what follows",
			[][]Event{{with(stored(0, run[:1], 1), func(ev *BlockStored) { ev.Extras = []BlockExtras{{0, []ExtraKey{{Text: "s"}}}} })}, {stored(11, run[1:], 2, 3)}},
			salted, 3, nil, nil,
		},
		{
			"a block with an image is not the block with its tokens",
			[][]Event{{with(stored(0, run, 1, 2, 3), func(ev *BlockStored) { ev.Extras = []BlockExtras{{1, []ExtraKey{{Text: "image"}}}} })}},
			base, 1, nil, nil,
		},
		{
			"an adapter loaded again: its new hash holds",
			[][]Event{{lora(stored(0, run, 1, 2, 3))}, {lora(stored(0, []uint64{21, 22}, 1, 2))}},
			adapter, 2, nil, nil,
		},
		{
			"and what becomes of the old ones does not matter",
			[][]Event{{lora(stored(0, run, 1, 2, 3))}, {lora(stored(0, []uint64{21, 22}, 1, 2))}, {removed("GPU", run...)}},
			adapter, 2, nil, nil,
		},
		{
			"nor is anything of it left under the name",
			[][]Event{{lora(stored(0, run, 1, 2, 3)), lora(stored(0, []uint64{14}, 9))}, {lora(stored(0, []uint64{24}, 9))}},
			adapter, 0, func(s EndpointStats) any { return s.Superseded }, uint64(4),
		},
		{
			"while the base model keeps what it has",
			[][]Event{{stored(0, run, 1, 2, 3), lora(stored(0, []uint64{14}, 9))}, {lora(stored(0, []uint64{24}, 9))}},
			base, 3, nil, nil,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := New()
			x.Attach(0, "m")
			for _, evs := range tt.batches {
				if err := x.Apply(0, EventBatch{Events: evs}); err != nil {
					t.Fatal(err)
				}
				checkInvariants(t, x)
			}
			depth := []int{0}
			x.Match(AppendHashes(nil, tt.ns.Root(1), []uint32{1, 2, 3}, 1), depth)
			if depth[0] != tt.want {
				t.Errorf("%d blocks held, want %d", depth[0], tt.want)
			}
			if tt.stats != nil {
				if diff := cmp.Diff(tt.stats(x.EndpointStats(0)), tt.wantSt); diff != "" {
					t.Errorf("stats (-got +want):\n%s", diff)
				}
			}
		})
	}
}

func TestWaitingIsBounded(t *testing.T) {
	x := New()
	x.Attach(0, "m")
	var evs []Event
	for i := range uint64(maxWaiting + 10) {
		evs = append(evs, stored(1<<60|i, []uint64{1<<50 | i}, 1))
	}
	if err := x.Apply(0, EventBatch{Events: evs}); err != nil {
		t.Fatal(err)
	}
	checkInvariants(t, x)
	if got := x.EndpointStats(0); got.Waiting != maxWaiting || got.UnknownParents != 10 {
		t.Errorf("%d wait, %d given up; want %d, 10", got.Waiting, got.UnknownParents, maxWaiting)
	}
	big := make([]uint32, maxWaitingTokens+1)
	if err := x.Apply(0, EventBatch{Events: []Event{stored(5, make([]uint64, len(big)), big...)}}); err != nil {
		t.Fatal(err)
	}
	checkInvariants(t, x)
	if got := x.EndpointStats(0).Waiting; got != 0 {
		t.Errorf("%d wait beside a run that is too large, want 0", got)
	}
}

func TestUnresolvedIsBounded(t *testing.T) {
	x := New()
	x.Attach(0, "m")
	hashes := make([]uint64, maxUnresolved+7)
	for i := range hashes {
		hashes[i] = uint64(i) + 1
	}
	if err := x.Apply(0, EventBatch{Events: []Event{BlockStored{Hashes: hashes, Medium: "CPU"}}}); err != nil {
		t.Fatal(err)
	}
	checkInvariants(t, x)
	if got := x.EndpointStats(0); got.Unresolved != maxUnresolved || got.Dropped != 7 {
		t.Errorf("%d unresolved, %d dropped; want %d, 7", got.Unresolved, got.Dropped, maxUnresolved)
	}
}

func TestApplyToNobody(t *testing.T) {
	x := New()
	if err := x.Apply(3, EventBatch{}); !errors.Is(err, ErrDetached) {
		t.Errorf("got %v, want %v", err, ErrDetached)
	}
	x.Attach(3, "m")
	x.Detach(3)
	x.Detach(3)
	x.Clear(3)
	if err := x.Apply(3, EventBatch{}); !errors.Is(err, ErrDetached) {
		t.Errorf("got %v, want %v", err, ErrDetached)
	}
	if got := x.BlockSize(3); got != 0 {
		t.Errorf("block size %d, want 0", got)
	}
}

func TestBlockSizeFollowsTheEngine(t *testing.T) {
	x := New()
	x.Attach(0, "m")
	apply := func(ev Event) {
		t.Helper()
		if err := x.Apply(0, EventBatch{Events: []Event{ev}}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, want int) {
		t.Helper()
		if got := x.BlockSize(0); got != want {
			t.Errorf("%s: %d, want %d", when, got, want)
		}
	}
	check("before the first block", 0)
	apply(stored(0, []uint64{1}, 1))
	check("after it", 1)
	x.Clear(0)
	check("after a clear", 1)
	apply(with(stored(0, []uint64{1}, 1, 2), func(ev *BlockStored) { ev.BlockSize = 2 }))
	check("when the engine came back with another", 2)
	x.Attach(0, "m")
	check("when the ID is used again", 0)
}

// TestReadersAndWriters is for the race detector, and checks that a block that
// is held all the time is always found while others around it come and go.
func TestReadersAndWriters(t *testing.T) {
	const writers, rounds = 4, 200
	x := New()
	stay := make([]uint32, 64)
	for e := range EndpointID(writers) {
		x.Attach(e, "m")
		if err := x.Apply(e, EventBatch{Events: []Event{stored(0, seq(1<<40, len(stay)), stay...)}}); err != nil {
			t.Fatal(err)
		}
	}
	hashes := AppendHashes(nil, Namespace{Model: "m"}.Root(1), stay, 1)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for e := range EndpointID(writers) {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(e), 2))
			for range rounds {
				tokens := make([]uint32, 100)
				for i := range tokens {
					tokens[i] = 1 + rnd.Uint32N(3)
				}
				run := seq(1<<41|rnd.Uint64N(8)<<10, len(tokens))
				for _, ev := range []Event{stored(0, run, tokens...), removed("GPU", run...)} {
					if err := x.Apply(e, EventBatch{Events: []Event{ev}}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			depth := make([]int, writers)
			for {
				select {
				case <-done:
					return
				default:
				}
				x.Match(hashes, depth)
				for e, d := range depth {
					if d != len(hashes) {
						t.Errorf("endpoint %d: depth %d, want %d", e, d, len(hashes))
						return
					}
				}
			}
		})
	}
	wg.Wait()
	close(done)
	readers.Wait()
	checkInvariants(t, x)
}

func seq(from uint64, n int) []uint64 {
	s := make([]uint64, n)
	for i := range s {
		s[i] = from + uint64(i)
	}
	return s
}

func TestMatchAllocatesNothing(t *testing.T) {
	for _, endpoints := range []int{1, 16, 1024} {
		x, hashes := filled(t, endpoints, 256, 0)
		depth := make([]int, endpoints)
		if n := testing.AllocsPerRun(20, func() { x.Match(hashes, depth) }); n != 0 {
			t.Errorf("%d endpoints: %v allocations, want 0", endpoints, n)
		}
		if want := slices.Repeat([]int{256}, endpoints); !slices.Equal(depth, want) {
			t.Errorf("%d endpoints: depth %v, want all 256", endpoints, depth)
		}
	}
}

func TestMatchBeyondTheStack(t *testing.T) {
	x, hashes := filled(t, 2, 3, 0)
	x.Attach(3000, "m")
	if err := x.Apply(3000, EventBatch{Events: []Event{promptEvent(7, 2)}}); err != nil {
		t.Fatal(err)
	}
	depth := make([]int, 5000)
	for range 2 {
		x.Match(hashes, depth)
		want := make([]int, len(depth))
		want[0], want[1], want[3000] = 3, 3, 2
		if !slices.Equal(depth, want) {
			t.Errorf("got %d %d %d, want 3 3 2", depth[0], depth[1], depth[3000])
		}
	}
}

const benchSeed = 7

// promptEvent stores the first blocks, of 16 tokens, of prompt seed.
func promptEvent(seed uint64, blocks int) BlockStored {
	return BlockStored{
		Hashes: seq(seed<<32, blocks), Tokens: promptTokens(seed, blocks), BlockSize: 16, Medium: "GPU", HasExtras: true, SpecKind: "full_attention",
	}
}

func promptTokens(seed uint64, blocks int) []uint32 {
	tokens := make([]uint32, blocks*16)
	x := seed
	for i := range tokens {
		x = x*6364136223846793005 + 1442695040888963407
		tokens[i] = uint32(x>>40) % 150000
	}
	return tokens
}

// filled is an index in which every endpoint holds one prompt, and the hashes
// of that prompt; others holds so many more blocks, of single holders.
func filled(tb testing.TB, endpoints, blocks, others int) (*Index, []BlockHash) {
	tb.Helper()
	x := New()
	for e := range endpoints {
		x.Attach(EndpointID(e), "m")
		if err := x.Apply(EndpointID(e), EventBatch{Events: []Event{promptEvent(benchSeed, blocks)}}); err != nil {
			tb.Fatal(err)
		}
	}
	for i := 0; i < others; i += 256 {
		if err := x.Apply(EndpointID(i/256%endpoints), EventBatch{Events: []Event{promptEvent(1000+uint64(i), 256)}}); err != nil {
			tb.Fatal(err)
		}
	}
	return x, AppendHashes(nil, Namespace{Model: "m"}.Root(16), promptTokens(benchSeed, blocks), 16)
}

func BenchmarkMatch(b *testing.B) {
	for _, size := range []struct{ endpoints, blocks, others int }{{16, 256, 0}, {16, 256, 1 << 19}, {100, 6000, 0}} {
		name := fmt.Sprintf("endpoints=%d/blocks=%d", size.endpoints, size.blocks)
		if size.others > 0 {
			name += fmt.Sprintf("/others=%d", size.others)
		}
		b.Run(name, func(b *testing.B) {
			x, hashes := filled(b, size.endpoints, size.blocks, size.others)
			depth := make([]int, size.endpoints)
			b.ReportAllocs()
			for b.Loop() {
				x.Match(hashes, depth)
			}
		})
		if size.others > 0 {
			continue
		}
		b.Run(name+"/naive", func(b *testing.B) {
			naive := make(map[BlockHash]map[EndpointID]bool)
			_, hashes := filled(b, 1, size.blocks, 0)
			for _, h := range hashes {
				naive[h] = make(map[EndpointID]bool)
				for e := range size.endpoints {
					naive[h][EndpointID(e)] = true
				}
			}
			depth := make([]int, size.endpoints)
			b.ReportAllocs()
			for b.Loop() {
				clear(depth)
				for i, h := range hashes {
					for e := range naive[h] {
						if depth[e] == i {
							depth[e] = i + 1
						}
					}
				}
			}
		})
	}
}

func BenchmarkApply(b *testing.B) {
	for _, blocks := range []int{1, 16, 256} {
		b.Run("blocks="+strconv.Itoa(blocks), func(b *testing.B) {
			// A full cache: each prompt pushes out the one before the last 64.
			x := New()
			x.Attach(0, "m")
			prompts := make([]EventBatch, 128)
			for i := range prompts {
				store := promptEvent(uint64(i)+1, blocks)
				evict := BlockRemoved{Hashes: seq(uint64((i+64)%len(prompts)+1)<<32, blocks), Medium: "GPU"}
				prompts[i] = EventBatch{Events: []Event{evict, store}}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if err := x.Apply(0, prompts[i%len(prompts)]); err != nil {
					b.Fatal(err)
				}
				i++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*blocks), "ns/block")
		})
	}
}

// BenchmarkStore reports what a resident block costs: time to store it, and
// memory as the garbage collector counts it.
func BenchmarkStore(b *testing.B) {
	for _, holders := range []int{1, 4} {
		b.Run("blocks=262144/holders="+strconv.Itoa(holders), func(b *testing.B) {
			const blocks, run = 1 << 18, 256
			var perBlock float64
			for b.Loop() {
				var before, after runtime.MemStats
				b.StopTimer()
				runtime.GC()
				runtime.ReadMemStats(&before)
				x := New()
				for e := range holders {
					x.Attach(EndpointID(e), "m")
				}
				for i := range uint64(blocks / run) {
					batch := EventBatch{Events: []Event{promptEvent(i+1, run)}}
					b.StartTimer()
					for e := range holders {
						if err := x.Apply(EndpointID(e), batch); err != nil {
							b.Fatal(err)
						}
					}
					b.StopTimer()
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				perBlock = float64(after.HeapAlloc-before.HeapAlloc) / blocks
				runtime.KeepAlive(x)
				b.StartTimer()
			}
			b.ReportMetric(perBlock, "B/block")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*blocks*holders), "ns/store")
		})
	}
}

func FuzzApply(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Add(binary.BigEndian.AppendUint64(nil, 0x0102030401020304))
	f.Fuzz(func(t *testing.T, in []byte) {
		in = in[:min(len(in), 300)] // a long history finds what short ones do, later
		x := New()
		x.Attach(0, "m")
		x.Attach(1, "m")
		next := func() (v byte) {
			if len(in) > 0 {
				v, in = in[0], in[1:]
			}
			return v
		}
		medium := func() string { return []string{"", "GPU", "CPU", "DISK"}[next()%4] }
		for len(in) > 0 {
			e := EndpointID(next() % 2)
			var batch EventBatch
			for range next()%3 + 1 {
				var hashes []uint64
				for range next() % 4 {
					hashes = append(hashes, uint64(next()%8))
				}
				switch next() % 8 {
				case 0:
					batch.Events = append(batch.Events, AllBlocksCleared{})
				case 1, 2:
					batch.Events = append(batch.Events, BlockRemoved{Hashes: hashes, Medium: medium(), Group: int(next() % 3)})
				default:
					flags := next()
					ev := BlockStored{
						Hashes: hashes, Parent: uint64(next() % 8), HasParent: flags&1 != 0, BlockSize: int(flags >> 1 & 1),
						LoraName: []string{"", "a"}[flags>>2&1], Medium: medium(), HasExtras: flags&8 != 0, Group: int(next() % 3),
						SpecKind: []string{"", "full_attention", "sliding_window", "mla_attention"}[flags>>4&3],
					}
					for range hashes {
						ev.Tokens = append(ev.Tokens, uint32(next()%2))
					}
					if flags&64 != 0 {
						ev.Extras = []BlockExtras{{int(next() % 5), []ExtraKey{{Text: "s"}}}}
					}
					batch.Events = append(batch.Events, ev)
				}
			}
			if err := x.Apply(e, batch); err != nil {
				t.Fatal(err)
			}
			checkInvariants(t, x)
		}
	})
}
