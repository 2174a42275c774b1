// Package scrape asks engines over HTTP who they are and how busy they are.
//
// What an engine is, is told by the content of its answers, not by
// configuration. A figure that is missing, not a number or out of range is
// reported as unknown, never as zero. Answers are bounded in size and time.
// All I/O goes through the given http.Client; nothing here logs.
package scrape

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"time"

	"github.com/warmroute/warmroute/scheduler"
)

// Config says how often and how patiently engines are asked. The zero value of
// a field means its default.
type Config struct {
	// Client makes the requests. Nil means NewClient.
	Client *http.Client

	// Interval is the time between two load samples. Default 200 ms: own picks
	// are counted in between, so that a sample corrects rather than leads; a
	// page of a vLLM engine is 70 KB and costs its front end a few milliseconds.
	Interval time.Duration

	// IdentifyEvery is the time after which an engine is asked again who it
	// is, since adapters are loaded at run time. Default 15 s.
	IdentifyEvery time.Duration

	// Timeout bounds a sample, and an identification. Default 2 s: an engine's front end is busy
	// for a second at times, and must not be taken for dead.
	Timeout time.Duration

	// DownAfter is the number of failures in a row after which an engine is
	// down. Default 3.
	DownAfter int

	// MaxBackoff bounds the time between two attempts at an engine that fails;
	// it doubles from Interval. Default 5 s.
	MaxBackoff time.Duration
}

func (c Config) withDefaults() Config {
	if c.Client == nil {
		c.Client = NewClient()
	}
	if c.DownAfter <= 0 {
		c.DownAfter = 3
	}
	for _, d := range []struct {
		value     *time.Duration
		byDefault time.Duration
	}{
		{&c.Interval, 200 * time.Millisecond},
		{&c.IdentifyEvery, 15 * time.Second},
		{&c.Timeout, 2 * time.Second},
		{&c.MaxBackoff, 5 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.byDefault
		}
	}
	return c
}

// NewClient returns an HTTP client for engines: connections are kept, nothing
// is compressed (the engine would pay for it), no proxy and no redirect is
// followed, because we talk to the address we were given.
func NewClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: time.Second}).DialContext,
			MaxIdleConns:          0, // one or two for each engine
			MaxIdleConnsPerHost:   2,
			IdleConnTimeout:       time.Minute,
			DisableCompression:    true,
			ResponseHeaderTimeout: 5 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Report is what one look at an engine found.
type Report struct {
	Addr netip.AddrPort
	Up   bool
	Err  error // why it is not up

	// Loads has one sample for each data-parallel rank; a sample whose figures
	// are unknown when the engine answered without them. Nil when it is not up.
	Loads []RankLoad

	// Identity is set when the engine was identified and differs from before,
	// or has restarted.
	Identity *Identity

	// Restarted says that the engine process is another one than before: its
	// cache and its queue are empty.
	Restarted bool
}

// RankLoad is the load of one data-parallel rank.
type RankLoad struct {
	Rank int // -1 when the address has only one
	Load scheduler.Load
}

// Run looks at the engine at addr until ctx ends and calls report, always from
// the calling goroutine, for each load sample, for the first failure of an
// engine that was never up, and once when it goes down.
func Run(ctx context.Context, cfg Config, addr netip.AddrPort, report func(Report)) {
	w := watch{cfg: cfg.withDefaults(), addr: addr}
	// Many engines found at once must not be asked at the same instants ever after.
	delay := rand.N(w.cfg.Interval)
	for sleep(ctx, delay) {
		r, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			w.failures = 0
			w.wasUp = true
			report(r)
			delay = jitter(w.cfg.Interval)
		default:
			w.failures++
			if w.failures == w.cfg.DownAfter || w.failures == 1 && !w.wasUp {
				w.identifiedAt = time.Time{}
				report(Report{Addr: addr, Err: err})
			}
			delay = jitter(w.backoff())
		}
	}
}

// watch is what Run remembers of one engine.
type watch struct {
	cfg  Config
	addr netip.AddrPort

	identity     *Identity // the last one; nil before the first
	identifiedAt time.Time // zero when it must be asked anew
	last         *page     // the last readable metrics page

	failures int
	wasUp    bool
}

// look samples the engine once, and asks who it is when that is due.
func (w *watch) look(ctx context.Context) (Report, error) {
	r := Report{Addr: w.addr, Up: true}
	at := time.Now()
	p, err := w.metrics(ctx)
	if err != nil {
		return Report{}, err
	}
	if r.Restarted = w.last != nil && restarted(w.last, p); r.Restarted {
		w.identifiedAt = time.Time{}
	}
	if w.identifiedAt.IsZero() || len(p.engines) > w.identity.Ranks || at.Sub(w.identifiedAt) >= w.cfg.IdentifyEvery {
		id, err := w.identify(ctx, p)
		if err != nil {
			return Report{}, err
		}
		w.identifiedAt = at
		if r.Restarted || w.identity == nil || !reflect.DeepEqual(*w.identity, id) {
			r.Identity = &id
		}
		w.identity = &id
	}
	if p.readable {
		w.last = p
	}
	r.Loads = p.loads(at, w.identity.Ranks)
	return r, nil
}

func (w *watch) metrics(ctx context.Context) (*page, error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	return fetchMetrics(ctx, w.cfg.Client, w.addr)
}

func (w *watch) identify(ctx context.Context, p *page) (Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	return identify(ctx, w.cfg.Client, w.addr, p)
}

// backoff returns the time to wait after that many failures.
func (w *watch) backoff() time.Duration {
	d := w.cfg.Interval
	for i := 1; i < w.failures && d < w.cfg.MaxBackoff; i++ {
		d *= 2
	}
	return min(d, max(w.cfg.MaxBackoff, w.cfg.Interval))
}

// jitter returns d, up to a tenth longer or shorter.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

// sleep waits for d and reports whether ctx is still going.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}

// get requests path from the engine. The caller closes the body of an answer
// with any status.
func get(ctx context.Context, client *http.Client, addr netip.AddrPort, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr.String()+path, nil)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	return resp, nil
}
