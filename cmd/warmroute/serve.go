package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/goccy/go-yaml"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/warmroute/warmroute/extproc"
	"github.com/warmroute/warmroute/kvindex"
	"github.com/warmroute/warmroute/scheduler"
	"github.com/warmroute/warmroute/tokenize"
)

// stopGrace is how long open streams may finish after a signal to stop. A
// stream lives for the milliseconds of one pick.
const stopGrace = 5 * time.Second

// serve runs the picker until ctx ends.
func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, check, err := effectiveConfig(args, stderr)
	if err != nil {
		return err
	}
	if check {
		_, loaded, err := loadModels(ctx, cfg.Models, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		closeTokenizers(loaded)
		text, err := yaml.Marshal(cfg)
		if err != nil {
			return err
		}
		_, err = stdout.Write(text)
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Telemetry.LogLevel)); err != nil {
		return fmt.Errorf("config: telemetry.log_level: %w", err)
	}
	log := slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: level}))
	p, err := newPicker(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer p.close()
	return p.run(ctx)
}

// picker is the running program: the four nouns and the servers around them.
type picker struct {
	cfg    config
	log    *slog.Logger
	index  *kvindex.Index
	pool   *scheduler.Pool
	sched  *scheduler.Scheduler
	models *tokenize.Models
	fleet  *fleet
	health *health.Server

	loaded map[string]*tokenize.Tokenizer // those of models, by name; closed last
	cache  *tokenize.Cache                // of all of them

	telemetry *telemetry
	extproc   *extproc.Server
}

func newPicker(ctx context.Context, cfg config, log *slog.Logger) (*picker, error) {
	p := &picker{cfg: cfg, log: log, index: kvindex.New(), pool: scheduler.NewPool(), health: newHealth()}
	p.cache = tokenize.NewCache(int64(cfg.Tokenize.CacheBytes))
	var err error
	if p.models, p.loaded, err = loadModels(ctx, cfg.Models, p.cache, log); err != nil {
		return nil, err
	}
	p.sched = scheduler.New(cfg.Scheduling.scheduler(), p.pool, p.index)
	if p.fleet, err = newFleet(ctx, cfg, p); err != nil {
		return nil, err
	}
	if p.telemetry, err = newTelemetry(); err != nil {
		return nil, err
	}
	p.extproc = extproc.NewServer(extproc.Config{
		Picker:       &firstLook{picker: p.sched, done: p.fleet.probed, serves: p.served, wait: cfg.ExtProc.Deadline},
		Tokenizer:    p.models,
		Logger:       log,
		Meter:        p.telemetry.meter,
		DebugHeaders: cfg.ExtProc.DebugHeaders,
		Deadline:     cfg.ExtProc.Deadline,
		MaxBody:      cfg.ExtProc.MaxBodyBytes,
	})
	return p, p.telemetry.export(p)
}

// close frees the tokenizers; no request may be running any more.
func (p *picker) close() {
	closeTokenizers(p.loaded)
}

// run listens on the three addresses, serves until ctx ends, then stops
// within stopGrace. An address that cannot be had is reported before any
// server starts.
func (p *picker) run(ctx context.Context) error {
	var listeners [3]net.Listener
	for i, l := range []struct{ service, addr string }{
		{"extproc", p.cfg.ExtProc.Listen},
		{"health", p.cfg.Health.Listen},
		{"admin", p.cfg.Admin.Listen},
	} {
		var err error
		if listeners[i], err = (&net.ListenConfig{}).Listen(ctx, "tcp", l.addr); err != nil {
			return errors.Join(fmt.Errorf("%s.listen: %w", l.service, err), closeAll(listeners[:i]))
		}
		p.log.LogAttrs(ctx, slog.LevelInfo, "listening",
			slog.String("service", l.service), slog.String("address", listeners[i].Addr().String()))
	}

	processor := p.newGRPC()
	probes := healthOnly(p.health)
	admin := &http.Server{Handler: p.adminHandler(), ReadHeaderTimeout: 5 * time.Second}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return closed(processor.Serve(listeners[0])) })
	g.Go(func() error { return closed(probes.Serve(listeners[1])) })
	g.Go(func() error { return closed(admin.Serve(listeners[2])) })
	g.Go(func() error { return p.fleet.run(ctx) })
	g.Go(func() error { return p.announceReady(ctx) })
	g.Go(func() error {
		<-ctx.Done()
		p.log.LogAttrs(context.WithoutCancel(ctx), slog.LevelInfo, "stopping")
		p.health.Shutdown()
		stopGracefully(processor, stopGrace)
		probes.Stop()
		return admin.Close()
	})
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// newGRPC is the server Envoy talks to. It answers health checks too, since
// Envoy checks a cluster on the port it uses.
func (p *picker) newGRPC() *grpc.Server {
	s := grpc.NewServer(
		grpc.MaxRecvMsgSize(max(2*p.cfg.ExtProc.MaxBodyBytes, leastReceive)),
		grpc.MaxConcurrentStreams(maxStreams),
		// Envoy keeps its connections busy with pings; the default enforcement
		// of one in five minutes would cut them.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	extprocv3.RegisterExternalProcessorServer(s, p.extproc)
	healthv1.RegisterHealthServer(s, p.health)
	return s
}

const (
	// leastReceive keeps the receive limit above any sensible
	// per_connection_buffer_limit_bytes: Envoy sends a buffered body as one
	// message, and one above the limit fails the request.
	leastReceive = 64 << 20
	// maxStreams is per Envoy connection; one stream is one request in flight.
	maxStreams = 16384
)

// announceReady turns the health services to SERVING once every endpoint has
// been asked who it is.
func (p *picker) announceReady(ctx context.Context) error {
	select {
	case <-p.fleet.probed:
		setReady(p.health)
		p.log.LogAttrs(ctx, slog.LevelInfo, "ready", slog.Int("endpoints", len(p.pool.Snapshot())))
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stopGracefully lets open streams finish for at most grace.
func stopGracefully(s *grpc.Server, grace time.Duration) {
	hard := time.AfterFunc(grace, s.Stop)
	defer hard.Stop()
	s.GracefulStop()
}

// closed makes the error of a server that was closed on purpose nil, even
// before it began to serve.
func closed(err error) error {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

func closeAll(listeners []net.Listener) error {
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
