package scheduler

import (
	"math"
	"time"
)

// cost is what sending one request to one endpoint is expected to cost, in
// seconds. The parts are kept apart so that a pick can be explained.
type cost struct {
	pending  float64 // prefill work we already sent there and that is not done
	uncached float64 // weighted prefill of the tokens the endpoint does not hold
	load     float64 // what its own report adds: a longer queue, slower decode, missing KV blocks
	known    bool    // load is the endpoint's own, not the mean of the others'
}

func (c cost) total() float64 { return c.pending + c.uncached + c.load }

// price costs every candidate for a prompt of that many tokens at now, a time
// since the pool's epoch. A load sample is believed when it is complete and not
// stale.
//
// Candidates without a believable load sample are given the mean load cost of
// those with one: neither a reward for being silent nor a ban. When nobody has
// one, only our own picks count.
func (s *Scheduler) price(cands []candidate, prompt int, now time.Duration) {
	var sum float64
	known := 0
	for i := range cands {
		c := &cands[i]
		c.cost = s.cost(c.endpoint, prompt, c.matched, now)
		if c.cost.known {
			sum += c.cost.load
			known++
		}
	}
	for i := range cands {
		c := &cands[i]
		switch {
		case c.cost.known:
		case known > 0:
			c.cost.load = sum / float64(known)
		default:
			c.cost.load = s.decode(float64(c.endpoint.own.unseen.Load()))
		}
	}
}

// cost is the joint rule: our own pending prefill and the weighted uncached
// tokens as time, the slowdown by requests that decode there, and the wait for
// KV blocks when they would not suffice.
func (s *Scheduler) cost(e *Endpoint, prompt, matched int, now time.Duration) cost {
	age := now - e.loadAt
	c := cost{
		pending:  e.own.pending(now).Seconds(),
		uncached: s.cfg.UncachedWeight * s.prefill(prompt-matched),
		known:    e.Load.complete() && age <= s.cfg.LoadStale,
	}
	if !c.known {
		return c
	}

	// Waiting requests nobody told us about, such as another replica's, still
	// have their prompts before them.
	queue := s.prefill(e.Load.Waiting*s.cfg.UnknownPrompt) - age.Seconds()
	c.load = max(0, queue-c.pending)

	ahead := float64(e.Load.Waiting+e.Load.Running) + float64(e.own.unseen.Load())
	c.load += s.decode(ahead)

	if e.KVBlocks > 0 && e.BlockSize > 0 {
		capacity := float64(e.KVBlocks) * float64(e.BlockSize)
		need := e.Load.KVUsage*capacity +
			float64(e.own.unseenTokens.Load()) +
			float64(e.Load.Waiting*s.cfg.UnknownPrompt) +
			float64(prompt+s.cfg.OutputTokens)
		c.load += s.cfg.HoldTime * max(0, need/capacity-1)
	}
	return c
}

// prefill returns the seconds an engine computes on that many prompt tokens.
func (s *Scheduler) prefill(tokens int) float64 {
	return float64(tokens) / s.cfg.PrefillSpeed
}

// decode returns the seconds by which that many requests in the batch delay
// the end of one more.
func (s *Scheduler) decode(requests float64) float64 {
	return requests * s.cfg.DecodeStep * float64(s.cfg.OutputTokens)
}

// tie is the difference in seconds below which two costs are equal: smaller
// than the prefill of one token, larger than the rounding of a sum.
const tie = 1e-6

// cheapest returns the index of the candidate with the lowest cost, and among
// equals the one that random picks, so that idle endpoints share the first
// requests. There is at least one candidate.
func cheapest(cands []candidate, random func() uint64) int {
	lowest := math.Inf(1)
	for i := range cands {
		lowest = min(lowest, cands[i].cost.total())
	}
	equals, last := uint64(0), 0
	for i := range cands {
		if cands[i].cost.total() <= lowest+tie {
			equals++
			last = i
		}
	}
	if equals <= 1 {
		return last
	}
	nth := random() % equals
	for i := range cands {
		if cands[i].cost.total() > lowest+tie {
			continue
		}
		if nth == 0 {
			return i
		}
		nth--
	}
	return last
}
