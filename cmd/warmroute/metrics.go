package main

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/warmroute/warmroute/kvindex"
	"github.com/warmroute/warmroute/scheduler"
)

// telemetry is the one way metrics leave the program: OpenTelemetry
// instruments, read when Prometheus collects.
type telemetry struct {
	registry *prometheus.Registry
	provider *sdkmetric.MeterProvider
	meter    metric.Meter
}

func newTelemetry() (*telemetry, error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	return &telemetry{registry, provider, provider.Meter("github.com/warmroute/warmroute")}, nil
}

// series is one metric of the list below.
type series struct {
	name, help string
	labels     string                            // their names, with the values of a closed set
	gauge      bool                              // a value that goes both ways; otherwise a total
	read       func(p *picker, r *reading, o to) // reports every point of the series
}

// reading is one collection: the state all series of a scrape are read from.
type reading struct {
	now       time.Time
	endpoints []endpointReading
	picks     scheduler.Stats
}

type endpointReading struct {
	*scheduler.Endpoint
	label  attribute.KeyValue
	blocks kvindex.EndpointStats
}

// to reports one point.
type to func(value float64, labels ...attribute.KeyValue)

// exported is the list of the gauges and counters of the program. The latency
// histograms are in extproc, where the latency is.
func exported() []series {
	return []series{
		{"warmroute_decisions_total", "Picks, by model and the one reason that decided.", "model, reason", false, decisions},
		{"warmroute_no_endpoint_total", "Requests answered 503 because no endpoint could serve them, by what left none.", "cause: none_known, none_up, model_not_served, subset", false, noEndpoint},
		{"warmroute_prompt_tokens_total", "Tokens of the prompts placed.", "model", false, promptTokens},
		{"warmroute_predicted_cached_tokens_total", "Of those, tokens the chosen endpoint held according to the index.", "model", false, predicted},
		{"warmroute_tokenize_total", "Prompts given to a tokenizer, by outcome: ok, or why there are no tokens.", "model, method: native, outcome", false, tokenizeOutcomes},
		{"warmroute_tokenizer_bytes", "Memory of the model's tokenizer: by how much the process grew while it was loaded.", "model", true, tokenizerBytes},
		{"warmroute_token_cache_bytes", "Approximate memory of the tokens kept of prompts already seen.", "", true, cacheBytes},
		{"warmroute_token_cache_text_bytes_total", "Prompt text looked up among those, by whether its tokens were there.", "result: hit, miss", false, cacheText},
		{"warmroute_untokenized_total", "Requests placed without tokens, by reason.", "reason", false, untokenized},
		{"warmroute_requests_total", "Requests shown by Envoy, by how they ended for us.", "outcome: routed, rejected, failed, aborted, observed, passed", false, requests},
		{"warmroute_extproc_streams", "Streams with Envoy open now.", "", true, streams},
		{"warmroute_extproc_panics_total", "Streams lost to a defect of ours.", "", false, panics},
		{"warmroute_extproc_deadlines_total", "Picks made on load because the deadline passed.", "", false, deadlines},
		{"warmroute_endpoint_up", "Whether the endpoint may be picked.", "endpoint", true, up},
		{"warmroute_endpoint_waiting", "Requests queued, as the engine last reported.", "endpoint", true, waiting},
		{"warmroute_endpoint_running", "Requests running, as the engine last reported.", "endpoint", true, running},
		{"warmroute_endpoint_kv_usage", "Share of KV blocks in use, as the engine last reported.", "endpoint", true, kvUsage},
		{"warmroute_load_age_seconds", "Age of the load report that picks rest on.", "endpoint", true, loadAge},
		{"warmroute_observed_cached_tokens_total", "Prompt tokens each engine found in its cache, by its own count.", "endpoint", false, observed},
		{"warmroute_observed_prompt_tokens_total", "Prompt tokens each engine looked up in its cache, by its own count.", "endpoint", false, queried},
		{"warmroute_index_blocks", "Blocks the endpoint is believed to hold, by tier.", "endpoint, tier: gpu, cpu, other", true, indexBlocks},
		{"warmroute_index_bytes", "Approximate memory of the index.", "", true, indexBytes},
		{"warmroute_kv_events_total", "KV events applied, by type.", "endpoint, type: stored, removed, cleared, unknown", false, kvEvents},
		{"warmroute_kv_event_faults_total", "Parts of KV events that could not be used, by cause.", "endpoint, cause: other_group, sparse, unknown_parent, unknown_removal, superseded, dropped, undecodable", false, kvFaults},
		{"warmroute_kv_event_gaps_total", "Times frames of KV events were missing, by cause.", "endpoint, cause: missed, replay_ring, no_replay, restart", false, kvGaps},
		{"warmroute_kv_event_age_seconds", "Age of the last KV event batch by the engine's clock.", "endpoint", true, kvAge},
		{"warmroute_kv_events_synced", "Whether every event batch the engine is known to have sent is accounted for.", "endpoint", true, kvSynced},
	}
}

// export registers every series of the list.
func (t *telemetry) export(p *picker) error {
	all := exported()
	instruments := make([]metric.Observable, len(all))
	observers := make([]metric.Float64Observable, len(all))
	for i, s := range all {
		var err error
		if s.gauge {
			observers[i], err = t.meter.Float64ObservableGauge(s.name, metric.WithDescription(s.help))
		} else {
			observers[i], err = t.meter.Float64ObservableCounter(s.name, metric.WithDescription(s.help))
		}
		if err != nil {
			return fmt.Errorf("metrics: %s: %w", s.name, err)
		}
		instruments[i] = observers[i]
	}
	_, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		r := p.read()
		for i, s := range all {
			s.read(p, r, func(value float64, labels ...attribute.KeyValue) {
				o.ObserveFloat64(observers[i], value, metric.WithAttributes(labels...))
			})
		}
		return nil
	}, instruments...)
	return err
}

func (p *picker) read() *reading {
	r := &reading{now: time.Now(), picks: p.sched.Stats()}
	for _, e := range p.pool.Snapshot() {
		r.endpoints = append(r.endpoints, endpointReading{
			e, attribute.String("endpoint", e.Spec().String()), p.index.EndpointStats(e.ID),
		})
	}
	return r
}

func decisions(_ *picker, r *reading, report to) {
	for _, m := range r.picks.Models {
		for _, n := range m.Picks {
			report(float64(n.Count), attribute.String("model", m.Model), attribute.String("reason", string(n.Reason)))
		}
	}
}

func noEndpoint(_ *picker, r *reading, report to) {
	for cause, n := range map[string]uint64{
		"none_known": r.picks.NoneKnown, "none_up": r.picks.NoneUp,
		"model_not_served": r.picks.NoneServes, "subset": r.picks.NoneInSubset,
	} {
		report(float64(n), attribute.String("cause", cause))
	}
}

func promptTokens(_ *picker, r *reading, report to) {
	for _, m := range r.picks.Models {
		report(float64(m.PromptTokens), attribute.String("model", m.Model))
	}
}

func predicted(_ *picker, r *reading, report to) {
	for _, m := range r.picks.Models {
		report(float64(m.PredictedTokens), attribute.String("model", m.Model))
	}
}

func tokenizeOutcomes(p *picker, _ *reading, report to) {
	for l, n := range p.extproc.Stats().Tokenize {
		report(float64(n), attribute.String("model", l.Model), attribute.String("method", "native"), attribute.String("outcome", l.Outcome))
	}
}

func tokenizerBytes(p *picker, _ *reading, report to) {
	for name, tok := range p.loaded {
		_, bytes := tok.Engine()
		report(float64(bytes), attribute.String("model", name))
	}
}

func cacheBytes(p *picker, _ *reading, report to) { report(float64(p.cache.Stats().Bytes)) }

func cacheText(p *picker, _ *reading, report to) {
	s := p.cache.Stats()
	report(float64(s.HitBytes), attribute.String("result", "hit"))
	report(float64(s.MissBytes), attribute.String("result", "miss"))
}

func untokenized(p *picker, _ *reading, report to) {
	for reason, n := range p.extproc.Stats().Untokenized {
		report(float64(n), attribute.String("reason", reason))
	}
}

func requests(p *picker, _ *reading, report to) {
	for outcome, n := range p.extproc.Stats().Requests {
		report(float64(n), attribute.String("outcome", outcome))
	}
}

func streams(p *picker, _ *reading, report to) { report(float64(p.extproc.Stats().Streams)) }

func panics(p *picker, _ *reading, report to) { report(float64(p.extproc.Stats().Panics)) }

func deadlines(p *picker, _ *reading, report to) { report(float64(p.extproc.Stats().Deadlines)) }

func up(_ *picker, r *reading, report to) {
	for _, e := range r.endpoints {
		report(truth(e.Up), e.label)
	}
}

// figure reports one number of every endpoint's load; a number the engine did
// not report is negative and left out.
func figure(r *reading, report to, of func(scheduler.Load) float64) {
	for _, e := range r.endpoints {
		if v := of(e.Load); !e.Load.At.IsZero() && v >= 0 {
			report(v, e.label)
		}
	}
}

func waiting(_ *picker, r *reading, report to) {
	figure(r, report, func(l scheduler.Load) float64 { return float64(l.Waiting) })
}

func running(_ *picker, r *reading, report to) {
	figure(r, report, func(l scheduler.Load) float64 { return float64(l.Running) })
}

func kvUsage(_ *picker, r *reading, report to) {
	figure(r, report, func(l scheduler.Load) float64 { return l.KVUsage })
}

func loadAge(_ *picker, r *reading, report to) {
	figure(r, report, func(l scheduler.Load) float64 { return r.now.Sub(l.At).Seconds() })
}

func observed(_ *picker, r *reading, report to) {
	figure(r, report, func(l scheduler.Load) float64 { return l.PrefixHits })
}

func queried(_ *picker, r *reading, report to) {
	figure(r, report, func(l scheduler.Load) float64 { return l.PrefixQueries })
}

func indexBlocks(_ *picker, r *reading, report to) {
	for _, e := range r.endpoints {
		for tier, n := range e.blocks.Blocks {
			report(float64(n), e.label, attribute.String("tier", kvindex.Tier(tier).String())) //nolint:gosec // three tiers
		}
	}
}

func indexBytes(p *picker, _ *reading, report to) { report(float64(p.index.Stats().Bytes)) }

func kvEvents(_ *picker, r *reading, report to) {
	for _, e := range r.endpoints {
		for kind, n := range map[string]uint64{
			"stored": e.blocks.Stored, "removed": e.blocks.Removed, "cleared": e.blocks.Cleared, "unknown": e.blocks.UnknownEvents,
		} {
			report(float64(n), e.label, attribute.String("type", kind))
		}
	}
}

func kvFaults(_ *picker, r *reading, report to) {
	for _, e := range r.endpoints {
		for cause, n := range map[string]uint64{
			"other_group": e.blocks.OtherGroups, "sparse": e.blocks.Sparse, "unknown_parent": e.blocks.UnknownParents,
			"unknown_removal": e.blocks.UnknownRemovals, "superseded": e.blocks.Superseded, "dropped": e.blocks.Dropped,
			"undecodable": e.blocks.Feed.Undecodable,
		} {
			report(float64(n), e.label, attribute.String("cause", cause))
		}
	}
}

func kvGaps(_ *picker, r *reading, report to) {
	for _, e := range r.endpoints {
		for cause, n := range e.blocks.Feed.Gaps {
			report(float64(n), e.label, attribute.String("cause", kvindex.GapCause(cause).String())) //nolint:gosec // a handful of causes
		}
		report(float64(e.blocks.Feed.Restarts), e.label, attribute.String("cause", "restart"))
	}
}

func kvAge(_ *picker, r *reading, report to) {
	for _, e := range r.endpoints {
		if e.blocks.LastTimestamp > 0 {
			report(float64(r.now.UnixMicro())/1e6-e.blocks.LastTimestamp, e.label)
		}
	}
}

func kvSynced(_ *picker, r *reading, report to) {
	for _, e := range r.endpoints {
		report(truth(e.blocks.Feed.Synced), e.label)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
