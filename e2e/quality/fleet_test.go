package quality

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/warmroute/warmroute/cmd/enginesim/engine"
	"github.com/warmroute/warmroute/e2e/replay"
)

// units say how recorded tokens and seconds become those that engines and
// picker see. The picker knows neither number: its constants are in the seconds
// and tokens that it sees.
type units struct {
	shrink int     // recorded tokens that one sent token stands for
	scale  float64 // recorded seconds per second of the picker's clock
	block  int     // sent tokens per KV block
}

// load is a trace at a rate against a number of engines.
type load struct {
	trace   []replay.Record
	engines int
	rate    float64 // 2 replays the arrivals in half their time
}

// Every engine, in recorded tokens and seconds: the engines of the demo.
const (
	cacheTokens = 1_000_000
	prefillRate = 8000.0
	stepBase    = 15 * time.Millisecond
	stepPerSeq  = 250 * time.Microsecond
)

// engine is the configuration of one engine in the picker's units.
func (u units) engine() engine.Config {
	time := func(d time.Duration) time.Duration {
		return time.Duration(float64(d) * float64(u.shrink) / u.scale)
	}
	blocks := cacheTokens / u.shrink / u.block
	return engine.Config{
		BlockSize: u.block, Blocks: blocks, MaxModelLen: min((blocks-1)*u.block, 131072),
		MaxRunning: 64, TokenBudget: 2048,
		PrefillRate: prefillRate / float64(u.shrink) * u.scale,
		StepBase:    time(stepBase), StepPerSeq: time(stepPerSeq),
	}
}

// request is one request of the trace, in the picker's units.
type request struct {
	at     time.Duration
	tokens []uint32
	output int

	ttft, e2e time.Duration
	cached    int
	engine    int
}

// requests turns the trace into token ids: equal hash ids at equal positions
// are equal tokens.
func (u units) requests(l load) ([]request, error) {
	// The times alone are wanted of the plan: one word stands for a block.
	calls, err := replay.Plan(l.trace, replay.Config{
		Words: []string{"x"}, Shrink: replay.BlockTokens, Rate: l.rate, Scale: u.scale, Seed: 1,
	})
	if err != nil {
		return nil, err
	}
	rs := make([]request, len(calls))
	for i, rec := range l.trace {
		r := &rs[i]
		r.at = calls[i].At
		r.output = max(1, (rec.Output+u.shrink-1)/u.shrink)
		r.tokens = make([]uint32, 0, (rec.Input+u.shrink-1)/u.shrink)
		for _, id := range rec.HashIDs {
			random := rand.NewPCG(uint64(id), 1)
			for range min(replay.BlockTokens/u.shrink, cap(r.tokens)-len(r.tokens)) {
				r.tokens = append(r.tokens, uint32(random.Uint64()>>48))
			}
		}
	}
	return rs, nil
}

// policy places requests. Besides being asked it is told what happens, at the
// time it would learn of it or, if it wants to cheat, at once.
type policy interface {
	pick(now time.Duration, r *request) (int, error)
	stepped(now time.Duration, engine int, out *engine.Output) error // an engine ended a step
	finished(engine int, r *request)                                 // an answer ended
}

// fleet is a set of engines in virtual time.
type fleet struct {
	engines []*engine.Engine
	policy  policy
	live    map[uint64]*request
	timers  []timer
}

// timer is something a policy waits for.
type timer struct {
	at time.Duration
	do func(now time.Duration) error
}

func newFleet(cfg engine.Config, n int) (*fleet, error) {
	f := &fleet{live: map[uint64]*request{}}
	for range n {
		e, err := engine.New(cfg)
		if err != nil {
			return nil, err
		}
		f.engines = append(f.engines, e)
	}
	return f, nil
}

// after calls do at a time, after everything that was asked for earlier for the
// same time.
func (f *fleet) after(at time.Duration, do func(now time.Duration) error) {
	i := len(f.timers)
	for i > 0 && f.timers[i-1].at > at {
		i--
	}
	f.timers = slices.Insert(f.timers, i, timer{at, do})
}

// run serves the requests, which are in order of arrival, to the last token.
func (f *fleet) run(requests []request) error {
	next := 0
	for next < len(requests) || len(f.live) > 0 {
		at, who := time.Duration(1<<62), -1
		for i, e := range f.engines {
			if t, ok := e.Next(); ok && t < at {
				at, who = t, i
			}
		}
		arrival := next < len(requests) && requests[next].at < at
		if arrival {
			at = requests[next].at
		}
		switch {
		case len(f.timers) > 0 && f.timers[0].at <= at:
			t := f.timers[0]
			f.timers = slices.Delete(f.timers, 0, 1)
			if err := t.do(t.at); err != nil {
				return err
			}
		case arrival:
			if err := f.place(at, uint64(next), &requests[next]); err != nil {
				return err
			}
			next++
		case who >= 0:
			if err := f.step(who); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *fleet) place(now time.Duration, id uint64, r *request) (err error) {
	if r.engine, err = f.policy.pick(now, r); err != nil {
		return err
	}
	f.live[id] = r
	return f.engines[r.engine].Submit(now, &engine.Request{
		ID: id, Tokens: r.tokens, MaxTokens: r.output,
		// No answer repeats another, nor a prompt.
		Output: func(i int) uint32 { return uint32(1<<16 + id<<12 + uint64(i)) },
	})
}

func (f *fleet) step(who int) error {
	out := f.engines[who].Step()
	for i := range out.Updates {
		u := &out.Updates[i]
		r := f.live[u.ID]
		if u.Index == 0 {
			r.ttft, r.cached = out.At-u.Arrived, u.Cached
		}
		if u.Done {
			r.e2e = out.At - u.Arrived
			delete(f.live, u.ID)
			f.policy.finished(who, r)
		}
	}
	return f.policy.stepped(out.At, who, &out)
}

// play runs one policy and summarizes it in recorded seconds.
func play(u units, l load, with func(*fleet) (policy, error)) (replay.Summary, error) {
	requests, err := u.requests(l)
	if err != nil {
		return replay.Summary{}, err
	}
	f, err := newFleet(u.engine(), l.engines)
	if err != nil {
		return replay.Summary{}, err
	}
	if f.policy, err = with(f); err != nil {
		return replay.Summary{}, err
	}
	if err := f.run(requests); err != nil {
		return replay.Summary{}, err
	}
	results := make([]replay.Result, len(requests))
	for i, r := range requests {
		results[i] = replay.Result{
			Engine: strconv.Itoa(r.engine), TTFT: r.ttft, E2E: r.e2e,
			Prompt: len(r.tokens), Cached: r.cached, Completed: r.output,
		}
	}
	return replay.Summarize(results, u.scale), nil
}
