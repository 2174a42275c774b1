package quality

import (
	"cmp"
	"slices"
	"time"

	"github.com/warmroute/warmroute/cmd/enginesim/engine"
	"github.com/warmroute/warmroute/kvindex"
)

// reference is the joint rule on the engines' true state: their speed, queues,
// caches and the lengths of answers are known exactly and at once. No picker
// can know that; it is what a picker is measured against, and not a bound.
type reference struct {
	*warmroute // its index, without the delay of events
	cfg        engine.Config
	weight     float64 // of the uncached tokens; 1 is the least time to first token
	slowdown   bool    // count what the requests that decode there cost this one
	states     []state
	hashes     []kvindex.BlockHash
	depth      []int
}

// state is what one engine has before it.
type state struct {
	queue     []*request       // without a first token, in order of arrival
	expected  map[*request]int // of those, prompt tokens not cached, as expected when placed
	decoding  map[*request]int // output tokens left of those with a first token
	computed  int              // prompt tokens computed of the queue
	computing int              // prompt tokens of the step under way
}

// newReference is the reference with a weight.
func newReference(u units, weight float64, slowdown bool) func(*fleet) (policy, error) {
	return func(f *fleet) (policy, error) {
		p := &reference{
			warmroute: &warmroute{fleet: f, index: kvindex.New()},
			cfg:       u.engine(), weight: weight, slowdown: slowdown,
			states: make([]state, len(f.engines)), depth: make([]int, len(f.engines)),
		}
		for i := range f.engines {
			p.index.Attach(kvindex.EndpointID(i), model)
			p.states[i] = state{expected: map[*request]int{}, decoding: map[*request]int{}}
		}
		return p, nil
	}
}

func (p *reference) finished(i int, r *request) { delete(p.states[i].decoding, r) }

func (p *reference) stepped(now time.Duration, i int, out *engine.Output) error {
	s := &p.states[i]
	s.computed += s.computing
	for _, u := range out.Updates {
		r := p.fleet.live[u.ID]
		switch {
		case r == nil: // finished
			continue
		case u.Index > 0:
			s.decoding[r] = r.output - u.Index - 1
			continue
		}
		s.started(r)
		s.decoding[r] = r.output - 1
	}
	if len(out.Events) > 0 {
		p.bytes = appendEvents(p.bytes[:0], now, out)
		batch, err := kvindex.DecodeBatch(p.bytes)
		if err != nil {
			return err
		}
		if err := p.index.Apply(kvindex.EndpointID(i), batch); err != nil {
			return err
		}
	}
	p.look(now, i)
	return nil
}

// started takes a request with its first token off the queue.
func (s *state) started(r *request) {
	if at := slices.Index(s.queue, r); at >= 0 {
		s.queue = slices.Delete(s.queue, at, at+1)
		s.computed -= len(r.tokens) - r.cached
		delete(s.expected, r)
	}
}

// look reads from the length of the step under way what it computes.
func (p *reference) look(now time.Duration, i int) {
	s := &p.states[i]
	s.computing = 0
	if next, busy := p.fleet.engines[i].Next(); busy && next > now {
		prefill := next - now - p.cfg.StepBase - time.Duration(len(s.decoding))*p.cfg.StepPerSeq
		s.computing = max(0, int(prefill.Seconds()*p.cfg.PrefillRate+0.5))
	}
}

func (p *reference) pick(now time.Duration, r *request) (int, error) {
	root := kvindex.Namespace{Model: model}.Root(p.cfg.BlockSize)
	p.hashes = kvindex.AppendHashes(p.hashes[:0], root, r.tokens[:len(r.tokens)-1], p.cfg.BlockSize)
	p.index.Match(p.hashes, p.depth)
	best, lowest, expected := 0, 0.0, 0
	for i := range p.states {
		uncached := len(r.tokens) - p.held(i, r)
		if cost := p.cost(now, i, r, uncached); i == 0 || cost < lowest {
			best, lowest, expected = i, cost, uncached
		}
	}
	s := &p.states[best]
	s.queue = append(s.queue, r)
	s.expected[r] = expected
	return best, nil
}

// held is how many leading tokens of r engine i holds, or will when it comes to
// r: prompts that are queued there count.
func (p *reference) held(i int, r *request) int {
	blocks := min(p.depth[i], len(p.hashes))
	for _, q := range p.states[i].queue {
		n := 0
		for n < min(len(q.tokens), len(r.tokens)) && q.tokens[n] == r.tokens[n] {
			n++
		}
		blocks = max(blocks, min(n/p.cfg.BlockSize, len(p.hashes)))
	}
	return blocks * p.cfg.BlockSize
}

// cost is the expected time to first token of r on engine i, with uncached
// prompt tokens weighted, and the time by which its answer is slowed down.
func (p *reference) cost(now time.Duration, i int, r *request, uncached int) float64 {
	s := &p.states[i]
	ahead := -s.computed - s.computing
	for _, n := range s.expected {
		ahead += n
	}
	ahead = max(0, ahead)
	step := p.cfg.StepBase + time.Duration(len(s.decoding))*p.cfg.StepPerSeq
	steps := (ahead + uncached + p.cfg.TokenBudget - 1) / p.cfg.TokenBudget

	cost := (float64(ahead) + p.weight*float64(uncached)) / p.cfg.PrefillRate
	cost += (time.Duration(steps) * step).Seconds()
	if next, busy := p.fleet.engines[i].Next(); busy {
		cost += (next - now).Seconds()
	}
	cost += p.wait(s, r, step)
	if p.slowdown {
		others := len(s.decoding) + len(s.queue)
		cost += float64(r.output) * float64(others) * p.cfg.StepPerSeq.Seconds()
	}
	return cost
}

// wait is the time until enough answers have ended for r to be admitted.
func (p *reference) wait(s *state, r *request, step time.Duration) float64 {
	slots := len(s.decoding) + len(s.queue) + 1 - p.cfg.MaxRunning
	tokens := len(r.tokens) - (p.cfg.Blocks-1)*p.cfg.BlockSize
	for _, q := range s.queue {
		tokens += len(q.tokens)
	}
	ends := make([]*request, 0, len(s.decoding))
	for d := range s.decoding {
		tokens += len(d.tokens) + d.output
		ends = append(ends, d)
	}
	slices.SortFunc(ends, func(a, b *request) int {
		return cmp.Or(s.decoding[a]-s.decoding[b], cmp.Compare(a.at, b.at))
	})
	left := 0
	for _, d := range ends {
		if slots <= 0 && tokens <= 0 {
			break
		}
		slots, tokens, left = slots-1, tokens-len(d.tokens)-d.output, s.decoding[d]
	}
	return float64(left) * step.Seconds()
}
