package server

import (
	"context"
	"sync"
	"time"

	"github.com/warmroute/warmroute/cmd/enginesim/engine"
)

// minSleep keeps the loop from waking for every step at a high time scale: what
// fell due meanwhile is stepped through at its own simulated times.
const minSleep = time.Millisecond

// loop runs an engine in wall time, scale simulated seconds to the second.
type loop struct {
	scale   float64
	start   time.Time
	publish func(seconds float64, events []engine.Event)
	wake    chan struct{} // capacity 1: an idle engine got work

	mu     sync.Mutex
	engine *engine.Engine
	live   map[uint64]*generation
	nextID uint64
}

// generation is a request in the engine, seen by the handler that waits for it.
type generation struct {
	id      uint64
	prompt  int
	arrived time.Duration // simulated
	first   chan struct{} // closed with the first token
	done    chan struct{} // closed with the last token

	mu      sync.Mutex
	tokens  int           // generated so far
	cached  int           // prompt tokens that came from the cache
	firstAt time.Duration // simulated
	endAt   time.Duration
}

func newLoop(e *engine.Engine, scale float64, start time.Time, publish func(float64, []engine.Event)) *loop {
	return &loop{
		scale: scale, start: start, publish: publish, engine: e,
		wake: make(chan struct{}, 1), live: make(map[uint64]*generation),
	}
}

// now is simulated time.
func (l *loop) now() time.Duration {
	return time.Duration(float64(time.Since(l.start)) * l.scale)
}

// wall is the wall time of a simulated time, as Unix seconds.
func (l *loop) wall(at time.Duration) float64 {
	return float64(l.start.Add(time.Duration(float64(at)/l.scale)).UnixNano()) / 1e9
}

// run steps the engine until ctx ends. It sleeps while nothing is due.
func (l *loop) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-timer.C:
		}
		l.mu.Lock()
		now := l.now()
		l.advanceLocked(now)
		next, busy := l.engine.Next()
		l.mu.Unlock()
		if busy {
			timer.Reset(max(minSleep, time.Duration(float64(next-now)/l.scale)))
		} else {
			timer.Stop()
		}
	}
}

// submit hands a request to the engine.
func (l *loop) submit(r *engine.Request) (*generation, error) {
	g := &generation{prompt: len(r.Tokens), first: make(chan struct{}), done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.advanceLocked(now)
	_, busy := l.engine.Next()
	l.nextID++
	r.ID, g.id, g.arrived = l.nextID, l.nextID, now
	if err := l.engine.Submit(now, r); err != nil {
		return nil, err
	}
	l.live[g.id] = g
	if !busy {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return g, nil
}

// cancel drops a request that nobody waits for any more.
func (l *loop) cancel(g *generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.engine.Cancel(g.id)
	delete(l.live, g.id)
}

// reset empties the prefix cache if nothing runs.
func (l *loop) reset() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advanceLocked(l.now())
	return l.engine.Reset()
}

func (l *loop) stats() engine.Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advanceLocked(l.now())
	return l.engine.Stats()
}

// advanceLocked steps through everything due at or before now.
func (l *loop) advanceLocked(now time.Duration) {
	for {
		next, busy := l.engine.Next()
		if !busy || next > now {
			return
		}
		out := l.engine.Step()
		if len(out.Events) > 0 {
			l.publish(l.wall(out.At), out.Events)
		}
		for i := range out.Updates {
			u := &out.Updates[i]
			g := l.live[u.ID]
			if g == nil {
				continue
			}
			g.apply(u, out.At)
			if u.Done {
				delete(l.live, u.ID)
			}
		}
	}
}

func (g *generation) apply(u *engine.Update, at time.Duration) {
	g.mu.Lock()
	g.tokens = u.Index + 1
	if u.Index == 0 {
		g.cached, g.firstAt = u.Cached, at
	}
	if u.Done {
		g.endAt = at
	}
	g.mu.Unlock()
	// Tokens between the first and the last wake nobody: the handler looks when
	// it has something to send anyway.
	if u.Index == 0 {
		close(g.first)
	}
	if u.Done {
		close(g.done)
	}
}

// progress is how many tokens there are, and whether they are all.
func (g *generation) progress() (tokens, cached int, done bool) {
	select {
	case <-g.done:
		done = true
	default:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tokens, g.cached, done
}
