package quality

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/warmroute/warmroute/cmd/enginesim/engine"
	"github.com/warmroute/warmroute/cmd/enginesim/kvevents"
	"github.com/warmroute/warmroute/kvindex"
	"github.com/warmroute/warmroute/scheduler"
)

// blind is the part of a policy that learns nothing from engines.
type blind struct{}

func (blind) stepped(time.Duration, int, *engine.Output) error { return nil }
func (blind) finished(int, *request)                           {}

// roundRobin takes the engines in turn.
type roundRobin struct {
	blind
	engines, next int
}

func newRoundRobin(f *fleet) (policy, error) { return &roundRobin{engines: len(f.engines)}, nil }

func (p *roundRobin) pick(time.Duration, *request) (int, error) {
	p.next++
	return (p.next - 1) % p.engines, nil
}

// leastRequests takes the engine with the fewest unanswered requests, of equals
// the one that had to wait longest for its turn.
type leastRequests struct {
	blind
	inFlight []int
	turn     int
}

func newLeastRequests(f *fleet) (policy, error) {
	return &leastRequests{inFlight: make([]int, len(f.engines))}, nil
}

func (p *leastRequests) pick(time.Duration, *request) (int, error) {
	n := len(p.inFlight)
	best := p.turn % n
	for i := range n {
		if at := (p.turn + i) % n; p.inFlight[at] < p.inFlight[best] {
			best = at
		}
	}
	p.inFlight[best]++
	p.turn = best + 1
	return best, nil
}

func (p *leastRequests) finished(engine int, _ *request) { p.inFlight[engine]-- }

const model = "m"

// news is how late a picker learns of things, by its clock.
type news struct {
	interval time.Duration // between two load samples of an engine
	report   time.Duration // from a load sample to its report
	event    time.Duration // from the end of a step to the index
}

// prompt is what a healthy picker gets; the interval is the default of
// scheduler/scrape.
var prompt = news{interval: 200 * time.Millisecond, report: 5 * time.Millisecond, event: time.Millisecond}

// start is the origin of virtual time; nothing depends on the date.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// warmroute is the real scheduler with the real index.
type warmroute struct {
	blind
	fleet     *fleet
	news      news
	specs     []scheduler.Spec
	endpoints []*scheduler.Endpoint // beside specs
	pool      *scheduler.Pool
	index     *kvindex.Index
	scheduler *scheduler.Scheduler

	identity scheduler.Identity
	bytes    []byte
}

// newWarmroute is a picker with a configuration.
func newWarmroute(u units, n news, cfg scheduler.Config) func(*fleet) (policy, error) {
	return func(f *fleet) (policy, error) {
		e := u.engine()
		p := &warmroute{fleet: f, news: n, pool: scheduler.NewPool(), index: kvindex.New()}
		p.identity = scheduler.Identity{
			Base: model, Models: []scheduler.Model{{Name: model}}, BlockSize: e.BlockSize, KVBlocks: e.Blocks,
		}
		for i := range f.engines {
			addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 8000)
			p.specs = append(p.specs, scheduler.Spec{Addr: addr, Rank: -1})
		}
		p.endpoints, _ = p.pool.Set(p.specs)
		p.scheduler = scheduler.New(cfg, p.pool, p.index)
		for i, e := range p.endpoints {
			p.index.Attach(e.ID, model)
			f.after(n.interval*time.Duration(i)/time.Duration(len(p.specs)), p.scrape(i))
		}
		return p, nil
	}
}

// scrape samples engine i, and again after the interval.
func (p *warmroute) scrape(i int) func(time.Duration) error {
	return func(now time.Duration) error {
		st := p.fleet.engines[i].Stats()
		r := scheduler.Report{Up: true, Identity: &p.identity, Load: scheduler.Load{
			Waiting: st.Waiting, Running: st.Running, KVUsage: st.KVUsage(),
			PrefixQueries: float64(st.QueriedTokens), PrefixHits: float64(st.HitTokens),
			At: start.Add(now),
		}}
		delay := p.news.report
		if now < p.news.interval {
			delay = 0 // a picker is ready when it has seen every engine once
		}
		p.fleet.after(now+delay, func(time.Duration) error {
			p.pool.Report(p.specs[i], r)
			return nil
		})
		p.fleet.after(now+p.news.interval, p.scrape(i))
		return nil
	}
}

// stepped carries an engine's events to the index as the engine sends them.
func (p *warmroute) stepped(now time.Duration, i int, out *engine.Output) error {
	if len(out.Events) == 0 {
		return nil
	}
	p.bytes = appendEvents(p.bytes[:0], now, out)
	batch, err := kvindex.DecodeBatch(p.bytes)
	if err != nil {
		return err
	}
	p.fleet.after(now+p.news.event, func(time.Duration) error {
		return p.index.Apply(p.endpoints[i].ID, batch)
	})
	return nil
}

func (p *warmroute) pick(now time.Duration, r *request) (int, error) {
	d, err := p.scheduler.Pick(context.Background(), &scheduler.Request{
		Model: model, Tokens: r.tokens, Now: start.Add(now),
	})
	if err != nil {
		return 0, err
	}
	for i, s := range p.specs {
		if s.Addr == d.Endpoint {
			return i, nil
		}
	}
	return 0, fmt.Errorf("quality: picked %v, which is no engine", d.Endpoint)
}

// appendEvents appends the message of one step.
func appendEvents(dst []byte, now time.Duration, out *engine.Output) []byte {
	return kvevents.AppendBatch(dst, kvevents.Maps, now.Seconds(), 0, out.Events)
}
