package scheduler

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// ledgerSize bounds the picks remembered for one endpoint. An engine whose
	// queue is longer than this has lost the race whatever the sum says.
	ledgerSize = 256

	// ledgerAge bounds how long a pick is remembered: no prompt waits longer
	// than a minute and still matters to the next choice.
	ledgerAge = time.Minute

	// settleTime is how long a pick takes to reach the engine's queue: the
	// gateway forwards the body and the engine's front end tokenizes it.
	settleTime = 100 * time.Millisecond

	// stepTime bounds how long an engine works before it reports again. vLLM
	// refreshes its gauges after each step, and a step that computes a long
	// prompt chunk takes its time: until then the gauges show the state before.
	stepTime = time.Second
)

// reservation is one pick of ours.
type reservation struct {
	at     time.Duration // since the pool's epoch
	work   time.Duration // expected prefill time
	tokens int64         // prompt tokens, cached ones included
}

// ledger keeps what we sent to one endpoint, because answers do not pass
// through us and engines report late. Its invariants:
//
// (1) busyUntil is when the prefill work we reserved ends, if the engine
// computes as fast as assumed;
// (2) unseen picks are those that the newest load sample need not include:
// those after it, and those so shortly before it that the engine may not have
// counted them;
// (3) after a load sample, the work before busyUntil is within what the sample
// allows. At least, all picks before it are included, and as many of the newest
// as the engine says are waiting have their work before them. At most, none of
// the unseen ones is: their work comes on top of the waiting ones' and of one
// more, which is being computed. Engines queue first come, first served, so this
// corrects a wrong assumed speed in both ways.
//
// Picks read the atomics; reserve and observe change them under the lock. All
// times are durations since the pool's epoch.
type ledger struct {
	busyUntil    atomic.Int64 // a time.Duration, never before the first pick
	unseen       atomic.Int64 // picks
	unseenTokens atomic.Int64 // prompt tokens of those

	mu    sync.Mutex
	picks []reservation // oldest first, at most ledgerSize
}

// never is before every pick.
const never = math.MinInt64 / 2

func newLedger() *ledger {
	l := &ledger{}
	l.busyUntil.Store(never)
	return l
}

// pending returns how much of the reserved prefill work is left at now.
func (l *ledger) pending(now time.Duration) time.Duration {
	return max(0, time.Duration(l.busyUntil.Load())-now)
}

// reserve enters a pick made at now.
func (l *ledger) reserve(now, work time.Duration, tokens int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busyUntil.Store(int64(max(time.Duration(l.busyUntil.Load()), now) + work))
	l.forgetLocked(now - ledgerAge)
	if len(l.picks) == ledgerSize {
		l.picks = append(l.picks[:0], l.picks[1:]...)
	}
	l.picks = append(l.picks, reservation{at: now, work: work, tokens: int64(tokens)})
	l.unseen.Add(1)
	l.unseenTokens.Add(int64(tokens))
}

// forgetLocked drops the picks made before oldest.
func (l *ledger) forgetLocked(oldest time.Duration) {
	n := 0
	for n < len(l.picks) && l.picks[n].at < oldest {
		n++
	}
	if n > 0 {
		l.picks = append(l.picks[:0], l.picks[n:]...)
	}
}

// observe corrects the ledger by a complete load sample taken at that time.
func (l *ledger) observe(at time.Duration, load *Load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetLocked(at - ledgerAge)

	var unseen, unseenTokens int64
	var atLeast, atMost time.Duration
	seen, perhaps := 0, 0 // picks the sample includes, and may include
	for _, r := range slices.Backward(l.picks) {
		if r.at > at {
			unseen++
			unseenTokens += r.tokens
			atLeast += r.work
			atMost += r.work
			continue
		}
		if perhaps < load.Waiting {
			atLeast += r.work
		}
		perhaps++
		switch {
		case r.at+settleTime+min(r.work, stepTime) > at:
			unseen++
			unseenTokens += r.tokens
			atMost += r.work
			continue
		case seen < load.Waiting || seen == load.Waiting && load.Running > 0:
			atMost += r.work
		}
		seen++
	}
	l.unseen.Store(unseen)
	l.unseenTokens.Store(unseenTokens)
	if seen < load.Waiting && len(l.picks) == ledgerSize {
		atMost = math.MaxInt64 / 4 // more waits than we remember
	}

	left := min(max(time.Duration(l.busyUntil.Load())-at, atLeast), atMost)
	l.busyUntil.Store(int64(at + max(left, 0)))
}

// restart forgets everything: the engine lost its queue.
func (l *ledger) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.picks = l.picks[:0]
	l.busyUntil.Store(never)
	l.unseen.Store(0)
	l.unseenTokens.Store(0)
}
