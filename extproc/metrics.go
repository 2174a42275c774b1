package extproc

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// outcome is how a request ended for us.
type outcome uint8

const (
	outcomeNone     outcome = iota // not known yet
	outcomeRouted                  // a pick was sent
	outcomeRejected                // an error was sent in Envoy's place
	outcomeFailed                  // the stream ended with an error of ours or of the transport
	outcomeAborted                 // the client or Envoy left before a pick was due
	outcomeObserved                // observability mode: nothing was asked
	outcomePassed                  // only its response was shown to us
	outcomes
)

// names of the outcomes, as label values.
func (o outcome) String() string {
	return [outcomes]string{"none", "routed", "rejected", "failed", "aborted", "observed", "passed"}[o]
}

// maxLabels bounds the label values of one counter; what comes later counts
// under the zero label, whose fields are empty.
const maxLabels = 256

// labelOther stands for the label values that are not counted by name.
const labelOther = "other"

// TokenizeLabels name one tokenization counter.
type TokenizeLabels struct {
	Model   string // as the client wrote it, once it was tokenized; else "other"
	Outcome string // "ok", or the reason why there are no tokens
}

// Stats are the counters of a Server since it was made.
type Stats struct {
	Streams     int64                     // streams open now
	Requests    map[string]uint64         // ended, by outcome: routed, rejected, failed, aborted, observed, passed
	Tokenize    map[TokenizeLabels]uint64 // prompts given to the tokenizer
	Untokenized map[string]uint64         // picks without tokens, by reason
	Panics      uint64                    // defects that cost at most one stream
	Deadlines   uint64                    // picks sent on load because Config.Deadline passed
}

// Stats returns the counters by value.
func (s *Server) Stats() Stats {
	m := s.metrics
	stats := Stats{
		Streams:     m.streams.Load(),
		Requests:    make(map[string]uint64, outcomes),
		Tokenize:    m.tokenize.snapshot(),
		Untokenized: m.untokenized.snapshot(),
		Panics:      m.panics.Load(),
		Deadlines:   m.deadlines.Load(),
	}
	for o := outcomeRouted; o < outcomes; o++ {
		stats.Requests[o.String()] = m.requests[o].Load()
	}
	return stats
}

// metrics are the counters and latency histograms of a Server.
type metrics struct {
	streams   atomic.Int64
	requests  [outcomes]atomic.Uint64
	panics    atomic.Uint64
	deadlines atomic.Uint64

	tokenize    counters[TokenizeLabels]
	untokenized counters[string]

	pick  metric.Float64Histogram // from the complete request to the pick
	stage metric.Float64Histogram

	// Prepared once: an option built per request would be an allocation.
	parseStage, tokenizeStage, pickStage []metric.RecordOption
}

// newMetrics makes the instruments. The buckets reach from a do-nothing answer
// to the default message_timeout of our Envoy configurations, 2 s.
// A meter that refuses one costs the histogram, not the service.
func newMetrics(meter metric.Meter, logger *slog.Logger) *metrics {
	buckets := metric.WithExplicitBucketBoundaries(
		0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2)
	pick, pickErr := meter.Float64Histogram("warmroute_pick_duration_seconds", metric.WithUnit("s"), buckets,
		metric.WithDescription("Time from the complete request to the pick."))
	stage, stageErr := meter.Float64Histogram("warmroute_stage_duration_seconds", metric.WithUnit("s"), buckets,
		metric.WithDescription("Time a request spends in one stage of the pick."))
	if err := errors.Join(pickErr, stageErr); err != nil {
		logger.LogAttrs(context.Background(), slog.LevelWarn, "latency is not measured", slog.String("error", err.Error()))
		pick, stage = noop.Float64Histogram{}, noop.Float64Histogram{}
	}
	of := func(name string) []metric.RecordOption {
		return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attribute.String("stage", name)))}
	}
	return &metrics{
		pick: pick, stage: stage,
		parseStage: of("parse"), tokenizeStage: of("tokenize"), pickStage: of("pick"),
	}
}

func (m *metrics) parsed(ctx context.Context, d time.Duration) {
	m.stage.Record(ctx, d.Seconds(), m.parseStage...)
}

// tokenized counts a prompt given to the tokenizer; an empty reason is success.
// A model's name becomes a label only once it was tokenized, so that clients
// cannot invent labels.
func (m *metrics) tokenized(ctx context.Context, model, reason string, d time.Duration) {
	m.stage.Record(ctx, d.Seconds(), m.tokenizeStage...)
	if reason == "" {
		m.tokenize.add(TokenizeLabels{model, "ok"})
		return
	}
	if !m.tokenize.has(TokenizeLabels{model, "ok"}) {
		model = labelOther
	}
	m.tokenize.add(TokenizeLabels{model, reason})
}

// picked records one pick: how long it took by itself and since the request was complete.
func (m *metrics) picked(ctx context.Context, self, total time.Duration) {
	m.stage.Record(ctx, self.Seconds(), m.pickStage...)
	m.pick.Record(ctx, total.Seconds())
}

// counters is a set of counters made on first use. The zero value is ready.
type counters[L comparable] struct {
	mu sync.Mutex
	n  map[L]uint64
}

// add counts one; beyond maxLabels different labels it counts under the empty one.
func (c *counters[L]) add(label L) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[L]uint64)
	}
	if _, ok := c.n[label]; !ok && len(c.n) >= maxLabels {
		var rest L
		label = rest
	}
	c.n[label]++
}

// has reports whether label was counted.
func (c *counters[L]) has(label L) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.n[label]
	return ok
}

// snapshot copies the counters.
func (c *counters[L]) snapshot() map[L]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}
