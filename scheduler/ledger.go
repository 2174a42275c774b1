package scheduler

import (
	"math"
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
	at     int64 // nanoseconds since the ledger's epoch
	work   int64 // expected prefill time, nanoseconds
	tokens int64 // prompt tokens, cached ones included
}

// ledger keeps what we sent to one endpoint, because answers do not pass
// through us and engines report late. Its invariants:
//
// (1) busyUntil is when the prefill work we reserved ends, if the engine
// computes as fast as assumed;
// (2) unseen picks are those the newest load sample cannot include;
// (3) after a load sample, the work before busyUntil is that of the unseen
// picks plus that of the newest seen ones: at least as many as the engine says
// are waiting, at most one more, which is being computed. Engines queue first
// come, first served, so this corrects a wrong assumed speed in both ways.
//
// Picks read the atomics; reserve and observe change them under the lock.
type ledger struct {
	epoch time.Time // origin of all times here; keeps the monotonic clock in use

	busyUntil    atomic.Int64 // nanoseconds since epoch
	unseen       atomic.Int64 // picks
	unseenTokens atomic.Int64 // prompt tokens of those

	mu    sync.Mutex
	picks []reservation // oldest first, at most ledgerSize
}

func newLedger(epoch time.Time) *ledger {
	l := &ledger{epoch: epoch}
	l.busyUntil.Store(math.MinInt64)
	return l
}

// pending returns the seconds of reserved prefill work left at now.
func (l *ledger) pending(now time.Time) float64 {
	left := l.busyUntil.Load()
	if left == math.MinInt64 {
		return 0
	}
	return max(0, time.Duration(left-int64(now.Sub(l.epoch))).Seconds())
}

// reserve enters a pick made at now.
func (l *ledger) reserve(now time.Time, work time.Duration, tokens int) {
	r := reservation{at: int64(now.Sub(l.epoch)), work: int64(work), tokens: int64(tokens)}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.busyUntil.Store(max(l.busyUntil.Load(), r.at) + r.work)
	l.forgetLocked(r.at - int64(ledgerAge))
	if len(l.picks) == ledgerSize {
		l.picks = append(l.picks[:0], l.picks[1:]...)
	}
	l.picks = append(l.picks, r)
	l.unseen.Add(1)
	l.unseenTokens.Add(r.tokens)
}

// forgetLocked drops the picks made before oldest.
func (l *ledger) forgetLocked(oldest int64) {
	n := 0
	for n < len(l.picks) && l.picks[n].at < oldest {
		n++
	}
	if n > 0 {
		l.picks = append(l.picks[:0], l.picks[n:]...)
	}
}

// observe corrects the ledger by a complete load sample.
func (l *ledger) observe(load Load) {
	at := int64(load.At.Sub(l.epoch))

	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetLocked(at - int64(ledgerAge))

	var unseen, unseenTokens, unseenWork int64
	var atLeast, atMost int64
	seen := 0
	for i := len(l.picks) - 1; i >= 0; i-- {
		r := l.picks[i]
		switch {
		case r.at+int64(settleTime)+min(r.work, int64(stepTime)) > at:
			unseen++
			unseenTokens += r.tokens
			unseenWork += r.work
			continue
		case seen < load.Waiting:
			atLeast += r.work
			atMost += r.work
		case seen == load.Waiting && load.Running > 0:
			atMost += r.work
		}
		seen++
	}
	l.unseen.Store(unseen)
	l.unseenTokens.Store(unseenTokens)
	if seen < load.Waiting && len(l.picks) == ledgerSize {
		atMost = math.MaxInt64 / 2 // more waits than we remember
	}

	left := l.busyUntil.Load() - at
	if l.busyUntil.Load() == math.MinInt64 {
		left = 0
	}
	if atLeast > 0 { // what the engine has not seen is queued behind
		left = max(left, atLeast+unseenWork)
	}
	left = min(left, atMost+unseenWork)
	l.busyUntil.Store(at + max(left, 0))
}

// restart forgets everything: the engine lost its queue.
func (l *ledger) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.picks = l.picks[:0]
	l.busyUntil.Store(math.MinInt64)
	l.unseen.Store(0)
	l.unseenTokens.Store(0)
}
