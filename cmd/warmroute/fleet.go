package main

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/warmroute/warmroute/kvindex"
	"github.com/warmroute/warmroute/kvindex/zmq"
	warmroutev1 "github.com/warmroute/warmroute/proto/warmroute/v1"
	"github.com/warmroute/warmroute/scheduler"
	"github.com/warmroute/warmroute/scheduler/discover/static"
	"github.com/warmroute/warmroute/scheduler/scrape"
	"github.com/warmroute/warmroute/tokenize"
)

// fleet watches every engine: it asks who it is and how loaded it is, and
// keeps a subscription to the KV events of each of its ranks.
type fleet struct {
	cfg    config
	log    *slog.Logger
	pool   *scheduler.Pool
	index  *kvindex.Index
	models *tokenize.Models
	addrs  []netip.AddrPort

	probed chan struct{} // closed once every engine has answered, or failed to

	mu      sync.Mutex
	engines map[netip.AddrPort]*engine
	unasked int // engines that have done neither
}

// engine is one address and the ranks behind it. Its fields are guarded by
// fleet.mu.
type engine struct {
	addr  netip.AddrPort
	asked bool
	up    bool
	ranks []int                 // -1 alone when the address has only one
	base  string                // model its blocks are indexed under
	feeds map[int]*subscription // by rank
}

// subscription is one running zmq.Subscribe.
type subscription struct {
	source zmq.Source
	feed   *kvindex.Feed
	stop   func() // returns when no more events will be applied
}

func newFleet(ctx context.Context, cfg config, p *picker) (*fleet, error) {
	addrs, err := static.Parse(ctx, net.DefaultResolver, cfg.Endpoints.Static...)
	if err != nil {
		return nil, err
	}
	f := &fleet{
		cfg: cfg, log: p.log, pool: p.pool, index: p.index, models: p.models, addrs: addrs,
		probed:  make(chan struct{}),
		engines: make(map[netip.AddrPort]*engine, len(addrs)),
	}
	for _, addr := range addrs {
		f.engines[addr] = &engine{addr: addr, ranks: []int{-1}, feeds: make(map[int]*subscription)}
	}
	f.unasked = len(f.engines)
	return f, nil
}

// run watches the engines until ctx ends and every watcher has returned.
func (f *fleet) run(ctx context.Context) error {
	f.mu.Lock()
	f.publishLocked()
	if len(f.addrs) == 0 {
		close(f.probed)
		f.log.LogAttrs(ctx, slog.LevelWarn, "no endpoints: every request is answered 503; give --endpoints HOST:PORT,…")
	}
	f.mu.Unlock()

	cfg := scrape.Config{Client: scrape.NewClient(), Interval: f.cfg.Endpoints.ScrapeInterval}
	var g errgroup.Group
	for _, addr := range f.addrs {
		g.Go(func() error {
			scrape.Run(ctx, cfg, addr, func(r scrape.Report) { f.report(ctx, r) })
			return nil
		})
	}
	_ = g.Wait() // watchers return no error
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.engines {
		f.unsubscribeLocked(e)
	}
	return ctx.Err()
}

// publishLocked makes the ranks of all engines the endpoints of the pool.
func (f *fleet) publishLocked() {
	var specs []scheduler.Spec
	for _, addr := range f.addrs {
		for _, rank := range f.engines[addr].ranks {
			specs = append(specs, scheduler.Spec{Addr: addr, Rank: rank})
		}
	}
	_, removed := f.pool.Set(specs)
	for _, e := range removed {
		f.index.Detach(e.ID)
	}
}

// report takes one look at an engine into the pool and the index.
func (f *fleet) report(ctx context.Context, r scrape.Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.engines[r.Addr]
	f.logChange(ctx, e, r)
	if r.Restarted {
		f.unsubscribeLocked(e)
	}
	if r.Identity != nil {
		f.identifiedLocked(ctx, e, r.Identity)
	}
	for _, rank := range e.ranks {
		report := scheduler.Report{Up: r.Up, Restarted: r.Restarted}
		for _, l := range r.Loads {
			if l.Rank == rank {
				report.Load = l.Load
			}
		}
		if r.Identity != nil {
			id := r.Identity.Identity
			id.Base = e.base
			report.Identity = &id
		}
		f.pool.Report(scheduler.Spec{Addr: e.addr, Rank: rank}, report)
	}
	if !e.asked {
		e.asked = true
		if f.unasked--; f.unasked == 0 {
			close(f.probed)
		}
	}
}

// logChange tells when an engine comes or goes; a look that changes nothing is
// not worth a line.
func (f *fleet) logChange(ctx context.Context, e *engine, r scrape.Report) {
	addr := slog.String("endpoint", e.addr.String())
	switch {
	case r.Restarted:
		f.log.LogAttrs(ctx, slog.LevelWarn, "engine restarted, its blocks are forgotten", addr)
	case r.Up && !e.up:
		f.log.LogAttrs(ctx, slog.LevelInfo, "engine is up", addr)
	case !r.Up && (e.up || !e.asked):
		f.log.LogAttrs(ctx, slog.LevelWarn, "engine is down", addr, slog.Any("error", r.Err))
	}
	e.up = r.Up
}

// identifiedLocked makes ranks, namespace and subscriptions what the engine
// says they are.
func (f *fleet) identifiedLocked(ctx context.Context, e *engine, id *scrape.Identity) {
	base := f.baseName(id)
	ranks := []int{-1}
	if id.Ranks > 1 {
		ranks = ranks[:0]
		for rank := range id.Ranks {
			ranks = append(ranks, rank)
		}
	}
	if base != e.base || !slices.Equal(ranks, e.ranks) {
		f.unsubscribeLocked(e)
		e.base, e.ranks = base, ranks
		f.publishLocked()
	}
	for _, m := range id.Models {
		if m.Name != base {
			f.models.Alias(m.Name, base)
		}
	}
	f.log.LogAttrs(ctx, slog.LevelInfo, "engine identified",
		slog.String("endpoint", e.addr.String()), slog.String("engine", id.Engine), slog.String("version", id.Version),
		slog.String("model", base), slog.Int("ranks", len(ranks)), slog.Int("block_size", id.BlockSize),
		slog.Int("kv_blocks", id.KVBlocks), slog.Any("unknown", id.Unknown))

	for _, ep := range f.pool.Snapshot() {
		if ep.Addr != e.addr {
			continue
		}
		source, announced := f.source(e.addr, ep.Rank, id)
		if s := e.feeds[ep.Rank]; s != nil && s.source == source {
			continue
		}
		if s := e.feeds[ep.Rank]; s != nil {
			s.stop()
			delete(e.feeds, ep.Rank)
		}
		f.index.Attach(ep.ID, base)
		if source.Events == "" {
			f.log.LogAttrs(ctx, slog.LevelWarn, "engine has no KV event source: its cache stays unknown", slog.String("endpoint", ep.Spec().String()))
			continue
		}
		f.log.LogAttrs(ctx, slog.LevelInfo, "subscribing to KV events", slog.String("endpoint", ep.Spec().String()),
			slog.String("events", source.Events), slog.String("replay", source.Replay), slog.Bool("announced", announced))
		e.feeds[ep.Rank] = f.subscribe(ctx, source, ep)
	}
}

// baseName is the name an engine's blocks are indexed under: the configured
// one where the engine answers to it or to an alias of it, so that engines
// that list their names in another order still share a namespace.
func (f *fleet) baseName(id *scrape.Identity) string {
	for _, m := range id.Models {
		if m.Adapter != "" {
			continue
		}
		for _, c := range f.cfg.Models {
			if m.Name == c.Name || slices.Contains(c.Aliases, m.Name) {
				return c.Name
			}
		}
	}
	return id.Base
}

// source is where rank publishes its events: where the engine says, else the
// configured ports, counted up by rank as vLLM does.
func (f *fleet) source(addr netip.AddrPort, rank int, id *scrape.Identity) (s zmq.Source, announced bool) {
	for _, e := range id.Events {
		if e.Rank == rank {
			return zmq.Source{Events: e.Events, Replay: e.Replay}, true
		}
	}
	at := func(port int) string {
		if port == 0 {
			return ""
		}
		return netip.AddrPortFrom(addr.Addr(), uint16(port+max(rank, 0))).String() //nolint:gosec // validated as a port
	}
	return zmq.Source{Events: at(f.cfg.Endpoints.EventsPort), Replay: at(f.cfg.Endpoints.ReplayPort)}, false
}

// subscribe follows the events of ep, which must be attached anew, until the
// subscription is stopped or ctx ends.
func (f *fleet) subscribe(ctx context.Context, source zmq.Source, ep *scheduler.Endpoint) *subscription {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	feed := kvindex.NewFeed(f.index, ep.ID)
	go func() {
		defer close(done)
		if err := zmq.Subscribe(ctx, source, feed); err != nil && ctx.Err() == nil {
			f.log.LogAttrs(ctx, slog.LevelError, "KV events cannot be read",
				slog.String("endpoint", ep.Spec().String()), slog.Any("error", err))
		}
	}()
	return &subscription{source, feed, func() { cancel(); <-done }}
}

// unsubscribeLocked ends the subscriptions of e; identifying it again starts
// them anew, over an empty index.
func (f *fleet) unsubscribeLocked(e *engine) {
	for _, rank := range slices.Collect(maps.Keys(e.feeds)) {
		e.feeds[rank].stop()
		delete(e.feeds, rank)
	}
}

// eventStreams describes the subscription behind ep.
func (f *fleet) eventStreams(ep *scheduler.Endpoint, now time.Time) []*warmroutev1.EventStream {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.engines[ep.Addr]
	if e == nil || e.feeds[ep.Rank] == nil {
		return nil
	}
	sub := e.feeds[ep.Rank]
	stats := sub.feed.Stats()
	out := &warmroutev1.EventStream{Source: sub.source.Events, Synced: stats.Synced}
	for _, n := range stats.Gaps {
		out.Gaps += n
	}
	if stats.Next > 0 {
		last := int64(stats.Next - 1) //nolint:gosec // engines count in signed 64 bits
		out.LastSequence = &last
	}
	if at := f.index.EndpointStats(ep.ID).LastTimestamp; at > 0 {
		out.Age = durationpb.New(now.Sub(time.UnixMicro(int64(at * 1e6))))
	}
	return []*warmroutev1.EventStream{out}
}
