package kvindex

import (
	"fmt"
	"math"
	"sync"

	"github.com/zeebo/xxh3"
)

const (
	// recentFrames is how far back a repeated sequence number can be told from
	// a restarted engine's by its payload. Batches carry a timestamp, so no two
	// lives of an engine send the same bytes.
	recentFrames = 1024

	// Live frames kept while a replay runs. More are dropped; the gap they
	// leave asks for another replay. An engine at full speed sends some tens of
	// frames a second.
	maxLiveFrames = 1 << 13
	maxLiveBytes  = 64 << 20
)

// GapCause says why frames of a feed are missing.
type GapCause uint8

// The causes of gaps.
const (
	GapMissed     GapCause = iota // not received live; a replay may bring them
	GapReplayRing                 // the engine no longer keeps them; blocks cleared
	GapNoReplay                   // they could not be asked for; blocks cleared
	numGapCauses
)

func (c GapCause) String() string {
	switch c {
	case GapMissed:
		return "missed"
	case GapReplayRing:
		return "replay_ring"
	default:
		return "no_replay"
	}
}

// FeedStats are figures of a Feed.
type FeedStats struct {
	Connected   bool // the live subscription is up
	Synced      bool // every frame the engine is known to have sent is applied, or given up and its blocks cleared
	Next        uint64
	Frames      uint64 // frames applied
	Duplicates  uint64 // frames that were there already
	Undecodable uint64 // frames that could not be read; blocks cleared
	Overflow    uint64 // live frames dropped while a replay ran
	Malformed   uint64 // messages that are no frame of an event stream
	Connections uint64
	Restarts    uint64 // times the engine was seen to have started again; blocks cleared
	Replays     uint64
	Gaps        [numGapCauses]uint64 // by GapCause
	LastError   string               // of the last frame that could not be read, or connection that failed
}

// Feed merges the live and the replayed frames of one engine rank by sequence
// number and applies them to an index in order, each once. It does no I/O and
// keeps no clock; the owner of the sockets calls it:
//
//	Connected        the subscription is made
//	NextReplay       is there a replay to ask for? from where?
//	ReplayFrame ...  its frames as they come
//	ReplayEnd        or ReplayFailed, when there is no replay, or it broke off
//	Live ...         frames of the subscription, at any time
//	Recheck          nothing came for a while
//	Lost             the subscription is gone
//
// Its rules:
//
//  1. Each subscription starts with a replay from 0: frames sent before the
//     engine took notice of it are not on the live socket.
//  2. Frames are applied in sequence; while any before them may still come by
//     replay, live ones wait, in bounded number.
//  3. Frames that nobody can bring any more, and frames that cannot be read,
//     clear the endpoint: what they removed is not known.
//  4. A sequence number seen before with another payload, a live one below
//     the expected that is not known to be a repeat, and a replay that ends
//     below the expected one, are of an engine that started again: its cache is
//     empty, and its frames are taken from 0.
//  5. A subscription made again, without a replay to compare, clears the
//     endpoint: it may be another life of the engine.
//
// Methods may be called at once. A feed is for the endpoint that is attached
// when it is made; after Detach it has no effect.
type Feed struct {
	x  *Index
	ep *endpoint

	mu      sync.Mutex
	stats   FeedStats
	next    uint64 // sequence number expected next
	low     uint64 // digests are known from here up to next, at most recentFrames
	digests [recentFrames]uint64
	blind   bool // the next frame may have any number: what precedes it is given up

	replay    replayState
	from      uint64 // where the replay wanted or running starts
	got       bool   // it has brought a frame
	last      uint64 // the last frame it brought
	verifies  bool   // it starts below next, to tell whether the engine is still the one we know
	gapKnown  bool   // live frames waited for it when it was asked for
	abandoned bool   // it runs, and what it brings is no longer of use
	failures  int    // replays in a row that broke off
	asked     uint64 // frame that was asked for in vain; never when none

	live      []frame
	liveBytes int
}

type frame struct {
	seq     uint64
	payload []byte
}

type replayState uint8

const (
	replayIdle replayState = iota
	replayWanted
	replayRunning
)

const (
	never = math.MaxUint64

	// maxSeq is the largest sequence number: engines count in a signed 64-bit
	// integer, and -1 marks the end of a replay.
	maxSeq = math.MaxInt64

	// maxReplayFailures is how many replays in a row may break off half way
	// before the feed goes on without.
	maxReplayFailures = 3
)

// NewFeed returns the feed of e, which must be attached.
func NewFeed(x *Index, e EndpointID) *Feed {
	ep := x.endpoint(e)
	if ep == nil {
		ep = newEndpoint(e, "")
		ep.detached = true
	}
	return &Feed{x: x, ep: ep, asked: never}
}

// Connected says that the live subscription is made, for the first time or
// again.
func (f *Feed) Connected() {
	f.mu.Lock()
	defer f.publish()
	f.stats.Connected, f.stats.Synced = true, false
	f.stats.Connections++
	f.dropLive()
	f.want(0)
}

// Lost says that the live subscription is gone, or could not be made, and why;
// err may be nil. The blocks stay until the next one tells whether they still
// hold.
func (f *Feed) Lost(err error) {
	f.mu.Lock()
	defer f.publish()
	f.stats.Connected, f.stats.Synced = false, false
	if err != nil {
		f.stats.LastError = err.Error()
	}
	f.dropLive()
	f.replay, f.abandoned = replayIdle, false
}

// Malformed counts a message of the engine that is no frame of an event stream.
func (f *Feed) Malformed() {
	f.mu.Lock()
	defer f.publish()
	f.stats.Malformed++
}

// Recheck asks for whatever the engine has sent beyond what was received, as
// when the last frames before a pause were lost: no later frame shows the gap.
func (f *Feed) Recheck() {
	f.mu.Lock()
	defer f.publish()
	if f.stats.Connected && f.replay == replayIdle && !f.blind {
		f.want(f.next)
	}
}

// NextReplay returns the sequence number to replay from, when a replay is
// wanted. The caller then brings its frames and ends it, or says it failed.
func (f *Feed) NextReplay() (from uint64, ok bool) {
	f.mu.Lock()
	defer f.publish()
	if f.replay != replayWanted || !f.stats.Connected {
		return 0, false
	}
	f.replay, f.got, f.abandoned = replayRunning, false, false
	f.verifies, f.gapKnown = f.from < f.next, len(f.live) > 0
	f.stats.Replays++
	return f.from, true
}

// Live takes a frame of the live subscription. It keeps no reference to
// payload.
func (f *Feed) Live(seq uint64, payload []byte) {
	f.mu.Lock()
	defer f.publish()
	if seq > maxSeq {
		f.stats.Undecodable++
		return
	}
	if f.replay == replayIdle && f.takeLive(seq, payload) {
		return
	}
	if len(f.live) == maxLiveFrames || f.liveBytes+len(payload) > maxLiveBytes {
		f.stats.Overflow++
		return
	}
	f.live = append(f.live, frame{seq, append([]byte(nil), payload...)})
	f.liveBytes += len(payload)
}

// ReplayFrame takes a frame of the replay that NextReplay announced. It keeps
// no reference to payload.
func (f *Feed) ReplayFrame(seq uint64, payload []byte) {
	f.mu.Lock()
	defer f.publish()
	if f.replay != replayRunning || f.abandoned {
		return
	}
	if seq > maxSeq {
		f.stats.Undecodable++
		return
	}
	first := !f.got
	f.got, f.last = true, seq
	switch {
	case f.blind:
		f.blind = false
		f.skipTo(seq)
	case seq > f.next || seq == f.next && first && f.verifies:
		// Frames are missing, or none overlaps that would show whether this is
		// still the same life of the engine.
		f.giveUp(GapReplayRing)
		f.skipTo(seq)
	case seq < f.next && f.repeats(seq, payload) != different:
		f.stats.Duplicates++
		return
	case seq < f.next:
		f.restarted()
		if seq != 0 && !first {
			// Frames of the new life went by unrecognized: take them again.
			f.abandoned = true
			return
		}
		f.skipTo(seq)
	}
	f.apply(seq, payload)
}

// ReplayEnd says that the replay is complete.
func (f *Feed) ReplayEnd() {
	f.mu.Lock()
	defer f.publish()
	if f.replay != replayRunning {
		return
	}
	f.replay, f.failures = replayIdle, 0
	switch {
	case f.abandoned:
		f.want(0)
		return
	case f.got && f.last < f.next-1:
		f.restarted()
		f.want(0)
		return
	case !f.got && f.verifies:
		f.restarted()
	}
	if !f.got && f.gapKnown {
		f.asked = f.next
	}
	f.blind = false
	f.drain()
}

// ReplayFailed says that there is no replay, or that it broke off.
func (f *Feed) ReplayFailed() {
	f.mu.Lock()
	defer f.publish()
	if f.replay != replayRunning {
		return
	}
	f.replay = replayIdle
	f.failures++
	if f.got && f.failures < maxReplayFailures {
		from := f.from
		if !f.verifies && !f.abandoned {
			from = f.next // keep what it brought
		}
		f.want(from)
		return
	}
	f.failures = 0
	switch {
	case f.verifies || f.abandoned:
		f.giveUp(GapNoReplay) // rule 5
		f.blind = true
	case f.next == 0:
		f.blind = true // nothing to clear, and nothing known of what came before
	}
	if f.gapKnown {
		f.asked = f.next
	}
	f.drain()
}

// Stats returns the feed's figures.
func (f *Feed) Stats() FeedStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	s.Next = f.next
	return s
}

// publish ends a method: the figures go where EndpointStats finds them.
func (f *Feed) publish() {
	f.stats.Next = f.next
	s := f.stats
	f.ep.mu.Lock()
	f.ep.stats.Feed = s
	f.ep.mu.Unlock()
	f.mu.Unlock()
}

func (f *Feed) want(from uint64) { f.replay, f.from = replayWanted, from }

// drain applies the live frames that waited for a replay.
func (f *Feed) drain() {
	for i, fr := range f.live {
		if !f.takeLive(fr.seq, fr.payload) {
			f.live = append([]frame(nil), f.live[i:]...)
			f.liveBytes = 0
			for _, fr := range f.live {
				f.liveBytes += len(fr.payload)
			}
			return
		}
	}
	f.dropLive()
	f.stats.Synced = f.stats.Connected
}

func (f *Feed) dropLive() { f.live, f.liveBytes = nil, 0 }

// takeLive applies a live frame while no replay is under way. It returns false
// when the frame has to wait for one.
func (f *Feed) takeLive(seq uint64, payload []byte) bool {
	switch {
	case f.blind:
		f.blind = false
		f.skipTo(seq)
	case seq > f.next && f.asked == f.next:
		// Frames before this one were asked for and did not come.
		f.giveUp(GapNoReplay)
		f.skipTo(seq)
	case seq > f.next:
		f.stats.Gaps[GapMissed]++
		f.stats.Synced = false
		f.want(f.next)
		return false
	case seq < f.next && f.repeats(seq, payload) == same:
		f.stats.Duplicates++
		return true
	case seq < f.next:
		f.restarted()
		if seq != 0 {
			f.stats.Synced = false
			f.want(0)
			return false
		}
	}
	f.apply(seq, payload)
	return true
}

// apply takes in frame seq, which is the one expected.
func (f *Feed) apply(seq uint64, payload []byte) {
	f.digests[seq%recentFrames] = xxh3.Hash(payload)
	f.next = seq + 1
	f.asked = never
	batch, err := DecodeBatch(payload)
	if err != nil {
		f.stats.Undecodable++
		f.stats.LastError = fmt.Sprintf("frame %d: %v", seq, err)
		f.x.clear(f.ep)
		return
	}
	f.stats.Frames++
	_ = f.x.apply(f.ep, &batch) // a detached endpoint has no use for it
}

type repeat uint8

const (
	unknown repeat = iota
	same
	different
)

// repeats says whether frame seq, below the expected one, was applied before.
func (f *Feed) repeats(seq uint64, payload []byte) repeat {
	switch {
	case seq < f.low || f.next-seq > recentFrames:
		return unknown
	case f.digests[seq%recentFrames] == xxh3.Hash(payload):
		return same
	default:
		return different
	}
}

// skipTo expects seq next, with no memory of the frames before it.
func (f *Feed) skipTo(seq uint64) { f.next, f.low = seq, seq }

func (f *Feed) giveUp(cause GapCause) {
	f.stats.Gaps[cause]++
	f.x.clear(f.ep)
}

func (f *Feed) restarted() {
	f.stats.Restarts++
	f.x.clear(f.ep)
	f.skipTo(0)
	f.asked = never
}
