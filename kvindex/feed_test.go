package kvindex

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// batchAt is a batch of life and sequence number that adds one block to a
// chain, so that any batch left out breaks the chain: block n has token n.
func batchAt(tb testing.TB, life, n uint64) []byte {
	tb.Helper()
	var parent any
	if n > 0 {
		parent = life<<32 | n
	}
	return pack(tb, []any{float64(life), []any{[]any{"BlockStored", []any{life<<32 | (n + 1)}, parent, []any{n}, int64(1), nil, "GPU", nil, []any{nil}}}, nil})
}

// heldByFeed is how long the chain of the endpoint is.
func heldByFeed(x *Index) int {
	tokens := make([]uint32, 4096)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	depth := []int{0}
	x.Match(AppendHashes(nil, Namespace{Model: "m"}.Root(1), tokens, 1), depth)
	return depth[0]
}

func TestFeed(t *testing.T) {
	type call = func(t *testing.T, f *Feed)
	connect := func(_ *testing.T, f *Feed) { f.Connected() }
	lose := func(_ *testing.T, f *Feed) { f.Lost(nil) }
	live := func(life uint64, seqs ...uint64) call {
		return func(t *testing.T, f *Feed) {
			t.Helper()
			for _, n := range seqs {
				f.Live(n, batchAt(t, life, n))
			}
		}
	}
	frames := func(t *testing.T, f *Feed, from, life uint64, seqs []uint64) {
		t.Helper()
		if got, ok := f.NextReplay(); got != from || !ok {
			t.Fatalf("asks for a replay from %d, %t; want %d", got, ok, from)
		}
		for _, n := range seqs {
			f.ReplayFrame(n, batchAt(t, life, n))
		}
	}
	replay := func(from, life uint64, seqs ...uint64) call {
		return func(t *testing.T, f *Feed) { t.Helper(); frames(t, f, from, life, seqs); f.ReplayEnd() }
	}
	broken := func(from, life uint64, seqs ...uint64) call {
		return func(t *testing.T, f *Feed) { t.Helper(); frames(t, f, from, life, seqs); f.ReplayFailed() }
	}
	garbage := func(n uint64) call { return func(_ *testing.T, f *Feed) { f.Live(n, []byte("junk")) } }
	recheck := func(_ *testing.T, f *Feed) { f.Recheck() }

	tests := []struct {
		name  string
		calls []call
		held  int
		want  FeedStats // Connections, Replays and LastError aside
	}{
		{
			"a fresh engine",
			[]call{connect, replay(0, 1), live(1, 0, 1, 2)},
			3,
			FeedStats{Connected: true, Synced: true, Next: 3, Frames: 3},
		},
		{
			"what was sent before comes by replay, what is sent meanwhile waits",
			[]call{connect, live(1, 3, 4), replay(0, 1, 0, 1, 2, 3), live(1, 5)},
			6,
			FeedStats{Connected: true, Synced: true, Next: 6, Frames: 6, Duplicates: 1},
		},
		{
			"a frame lost between replay and live is asked for",
			[]call{connect, replay(0, 1, 0, 1), live(1, 3), replay(2, 1, 2, 3), live(1, 4)},
			5,
			FeedStats{Connected: true, Synced: true, Next: 5, Frames: 5, Duplicates: 1, Gaps: [3]uint64{1}},
		},
		{
			"frames that came out of a repeated socket are dropped",
			[]call{connect, replay(0, 1, 0, 1, 2), live(1, 0, 1, 2, 3, 2)},
			4,
			FeedStats{Connected: true, Synced: true, Next: 4, Frames: 4, Duplicates: 4},
		},
		{
			"a ring that no longer reaches back",
			[]call{connect, replay(0, 1, 0, 1), live(1, 7), replay(2, 1, 5, 6, 7)},
			0,
			FeedStats{Connected: true, Synced: true, Next: 8, Frames: 5, Duplicates: 1, Gaps: [3]uint64{1, 1}},
		},
		{
			"joining after the ring",
			[]call{connect, replay(0, 1, 5, 6), live(1, 7)},
			0,
			FeedStats{Connected: true, Synced: true, Next: 8, Frames: 3, Gaps: [3]uint64{0, 1}},
		},
		{
			"a replay that does not have what is missing",
			[]call{connect, replay(0, 1), live(1, 0, 3), replay(1, 1), live(1, 4)},
			0,
			FeedStats{Connected: true, Synced: true, Next: 5, Frames: 3, Gaps: [3]uint64{1, 0, 1}},
		},
		{
			"a replay asked for before the gap was known is not the last word on it",
			[]call{connect, replay(0, 1), live(1, 1), replay(0, 1, 0, 1)},
			2,
			FeedStats{Connected: true, Synced: true, Next: 2, Frames: 2, Duplicates: 1, Gaps: [3]uint64{1}},
		},
		{
			"a hole inside a replay",
			[]call{connect, replay(0, 1, 0, 1, 3)},
			0,
			FeedStats{Connected: true, Synced: true, Next: 4, Frames: 3, Gaps: [3]uint64{0, 1}},
		},
		{
			"a restart seen live",
			[]call{connect, replay(0, 1), live(1, 0, 1, 2), live(2, 0, 1)},
			2,
			FeedStats{Connected: true, Synced: true, Next: 2, Frames: 5, Restarts: 1},
		},
		{
			"a restart whose first frames were lost",
			[]call{connect, replay(0, 1), live(1, 0, 1, 2), live(2, 1), replay(0, 2, 0, 1)},
			2,
			FeedStats{Connected: true, Synced: true, Next: 2, Frames: 5, Duplicates: 1, Restarts: 1},
		},
		{
			"connected again to the same engine",
			[]call{connect, replay(0, 1), live(1, 0, 1, 2), lose, connect, replay(0, 1, 0, 1, 2, 3, 4)},
			5,
			FeedStats{Connected: true, Synced: true, Next: 5, Frames: 5, Duplicates: 3},
		},
		{
			"connected again to an engine that has sent nothing since it started",
			[]call{connect, replay(0, 1), live(1, 0, 1, 2), lose, connect, replay(0, 2)},
			0,
			FeedStats{Connected: true, Synced: true, Next: 0, Frames: 3, Restarts: 1},
		},
		{
			"connected again to one that has sent less",
			[]call{connect, replay(0, 1), live(1, 0, 1, 2), lose, connect, replay(0, 2, 0, 1)},
			2,
			FeedStats{Connected: true, Synced: true, Next: 2, Frames: 5, Restarts: 1},
		},
		{
			"connected again to one that has sent more",
			[]call{connect, replay(0, 1), live(1, 0, 1, 2), lose, connect, live(2, 6), replay(0, 2, 0, 1, 2, 3, 4, 5)},
			7,
			FeedStats{Connected: true, Synced: true, Next: 7, Frames: 10, Restarts: 1},
		},
		{
			"and whose ring starts in the middle of what we know",
			[]call{connect, replay(0, 1), live(1, 0, 1, 2), lose, connect, replay(0, 2, 1, 2, 3)},
			0,
			FeedStats{Connected: true, Synced: true, Next: 4, Frames: 6, Restarts: 1},
		},
		{
			"and whose ring starts where ours ends, so that nothing shows whose it is",
			[]call{connect, replay(0, 1), live(1, 0, 1, 2), lose, connect, replay(0, 2, 3, 4)},
			0,
			FeedStats{Connected: true, Synced: true, Next: 5, Frames: 5, Gaps: [3]uint64{0, 1}},
		},
		{
			"without a replay socket a gap clears",
			[]call{connect, broken(0, 1), live(1, 0, 1), live(1, 3), broken(2, 1), live(1, 4)},
			0,
			FeedStats{Connected: true, Synced: true, Next: 5, Frames: 4, Gaps: [3]uint64{1, 0, 1}},
		},
		{
			"without a replay socket any frame is a start",
			[]call{connect, live(1, 4), broken(0, 1), live(1, 5)},
			0,
			FeedStats{Connected: true, Synced: true, Next: 6, Frames: 2},
		},
		{
			"without a replay socket a new connection clears",
			[]call{connect, broken(0, 1), live(1, 0, 1, 2), lose, connect, broken(0, 1)},
			0,
			FeedStats{Connected: true, Synced: true, Next: 3, Frames: 3, Gaps: [3]uint64{0, 0, 1}},
		},
		{
			"a replay that breaks off is taken up again",
			[]call{connect, broken(0, 1, 0, 1), replay(2, 1, 2, 3)},
			4,
			FeedStats{Connected: true, Synced: true, Next: 4, Frames: 4},
		},
		{
			"one that compares is taken from its start",
			[]call{connect, replay(0, 1, 0, 1, 2), lose, connect, broken(0, 1, 0, 1), replay(0, 1, 0, 1, 2, 3)},
			4,
			FeedStats{Connected: true, Synced: true, Next: 4, Frames: 4, Duplicates: 5},
		},
		{
			"a frame that cannot be read clears, and the stream goes on",
			[]call{connect, replay(0, 1), live(1, 0, 1), garbage(2), live(1, 3)},
			0,
			FeedStats{Connected: true, Synced: true, Next: 4, Frames: 3, Undecodable: 1},
		},
		{
			"a check finds what no later frame shows",
			[]call{connect, replay(0, 1, 0), recheck, replay(1, 1, 1), recheck, replay(2, 1)},
			2,
			FeedStats{Connected: true, Synced: true, Next: 2, Frames: 2},
		},
		{
			"a lost connection keeps the blocks",
			[]call{connect, replay(0, 1, 0, 1), lose},
			2,
			FeedStats{Next: 2, Frames: 2},
		},
		{
			"numbers that no engine counts to are refused",
			[]call{connect, replay(0, 1), live(1, 0, math.MaxUint64), live(1, 1)},
			2,
			FeedStats{Connected: true, Synced: true, Next: 2, Frames: 2, Undecodable: 1},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := New()
			x.Attach(0, "m")
			f := NewFeed(x, 0)
			for _, call := range tt.calls {
				call(t, f)
			}
			got := f.Stats()
			got.Connections, got.Replays, got.LastError = 0, 0, ""
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("stats (-got +want):\n%s", diff)
			}
			if held := heldByFeed(x); held != tt.held {
				t.Errorf("%d blocks held, want %d", held, tt.held)
			}
			if from, ok := f.NextReplay(); ok {
				t.Errorf("a replay from %d is still wanted", from)
			}
			if published := x.EndpointStats(0).Feed; published != f.Stats() {
				t.Errorf("the index shows %+v, the feed %+v", published, f.Stats())
			}
			checkInvariants(t, x)
		})
	}
}

func TestFeedOfADetachedEndpoint(t *testing.T) {
	x := New()
	x.Attach(0, "m")
	f := NewFeed(x, 0)
	f.Connected()
	x.Detach(0)
	x.Attach(0, "m") // the ID has another owner now
	if _, ok := f.NextReplay(); !ok {
		t.Fatal("no replay wanted")
	}
	f.ReplayFrame(0, batchAt(t, 1, 0))
	f.ReplayEnd()
	f.Live(1, batchAt(t, 1, 1))
	if held := heldByFeed(x); held != 0 {
		t.Errorf("%d blocks held by the new owner, want 0", held)
	}
	if got := x.EndpointStats(0); got != (EndpointStats{}) {
		t.Errorf("the new owner has figures %+v", got)
	}
}

func TestLiveFramesWaitInBoundedNumber(t *testing.T) {
	x := New()
	x.Attach(0, "m")
	f := NewFeed(x, 0)
	f.Connected()
	for n := range uint64(maxLiveFrames + 5) {
		f.Live(n+1, batchAt(t, 1, n+1))
	}
	if got := f.Stats().Overflow; got != 5 {
		t.Errorf("%d frames dropped, want 5", got)
	}
	f.NextReplay()
	f.ReplayFrame(0, batchAt(t, 1, 0))
	f.ReplayEnd()
	if got := f.Stats(); got.Next != maxLiveFrames+1 || !got.Synced {
		t.Errorf("the feed is at %d, synced: %t; want %d", got.Next, got.Synced, maxLiveFrames+1)
	}
	f.Live(maxLiveFrames+6, batchAt(t, 1, maxLiveFrames+6))
	if from, ok := f.NextReplay(); from != maxLiveFrames+1 || !ok {
		t.Errorf("asks from %d, %t, want %d", from, ok, maxLiveFrames+1)
	}
}

// TestFeedAgainstFaults runs an engine with a replay ring behind a bad network
// and compares what the feed applied with what the engine sent, whenever the
// feed says that it is in step and the engine has told everything.
func TestFeedAgainstFaults(t *testing.T) {
	checked := 0
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		x := New()
		x.Attach(0, "m")
		f := NewFeed(x, 0)
		ring := []int{3, 8, 1000}[rnd.IntN(3)]
		withReplay := rnd.IntN(5) > 0
		life, sent := uint64(1), uint64(0)
		f.Connected()
		replaying := false
		var pending []uint64 // frames of the running replay not yet delivered
		for step := range 400 {
			switch rnd.IntN(20) {
			case 0:
				life, sent = life+1, 0
				f.Lost(nil) // the connection breaks with the process
				replaying = false
				f.Connected()
			case 1:
				f.Lost(nil)
				replaying = false
				if rnd.IntN(2) == 0 && sent > 0 {
					sent++ // unseen
				}
				f.Connected()
			case 2:
				f.Recheck()
			case 3, 4, 5, 6, 7, 8, 9, 10:
				if rnd.IntN(6) > 0 {
					f.Live(sent, batchAt(t, life, sent))
				}
				if rnd.IntN(10) == 0 {
					f.Live(sent, batchAt(t, life, sent))
				}
				sent++
			default:
				if !replaying {
					from, ok := f.NextReplay()
					if !ok {
						break
					}
					if !withReplay {
						f.ReplayFailed()
						break
					}
					replaying, pending = true, nil
					for n := max(from, sent-min(sent, uint64(ring))); n < sent; n++ {
						pending = append(pending, n)
					}
					break
				}
				for range min(len(pending), 1+rnd.IntN(4)) {
					f.ReplayFrame(pending[0], batchAt(t, life, pending[0]))
					pending = pending[1:]
				}
				if len(pending) > 0 && rnd.IntN(8) == 0 {
					f.ReplayFailed()
					replaying = false
				} else if len(pending) == 0 {
					f.ReplayEnd()
					replaying = false
				}
			}
			s := f.Stats()
			if s.Next > sent && s.Synced && !f.blind {
				t.Fatalf("seed %d, step %d: in step at %d, beyond the %d sent", seed, step, s.Next, sent)
			}
			// Whatever is held is of this life once the feed is in step, and
			// without a hole: either from the first frame on, or not at all.
			if s.Synced && !f.blind {
				checked++
				want := slices.Sorted(func(yield func(uint64) bool) {
					for n := f.firstApplied(t, x, life); n < s.Next; n++ {
						if !yield(life<<32 | (n + 1)) {
							return
						}
					}
				})
				var got []uint64
				for _, g := range x.endpoint(0).groups {
					for hash := range g.blocks.all() {
						got = append(got, hash)
					}
				}
				slices.Sort(got)
				if diff := cmp.Diff(got, want); diff != "" {
					t.Fatalf("seed %d, step %d: resident (-got +want):\n%s\n%+v", seed, step, diff, s)
				}
			}
		}
		checkInvariants(t, x)
	}
	if checked < 3000 {
		t.Errorf("in step at %d moments, want at least 3000", checked)
	}
}

// firstApplied is the lowest frame of this life whose block is resident, or
// the next expected when none is.
func (f *Feed) firstApplied(t *testing.T, x *Index, life uint64) uint64 {
	t.Helper()
	first := f.next
	for _, g := range x.endpoint(0).groups {
		for hash := range g.blocks.all() {
			if hash>>32 == life {
				first = min(first, hash&(1<<32-1)-1)
			}
		}
	}
	return first
}
