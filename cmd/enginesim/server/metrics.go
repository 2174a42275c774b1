package server

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
)

// Bucket bounds of vLLM's latency histograms, in seconds.
var (
	ttftBounds = []float64{
		.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
	}
	e2eBounds = []float64{
		.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
	}
)

// histogram counts simulated seconds.
type histogram struct {
	bounds []float64
	counts []uint64 // beside bounds; what is above the last is in total only
	total  uint64
	sum    float64
}

func (h *histogram) observe(v float64) {
	if h.counts == nil {
		h.counts = make([]uint64, len(h.bounds))
	}
	for i, b := range h.bounds {
		if v <= b {
			h.counts[i]++
			break
		}
	}
	h.total++
	h.sum += v
}

// metrics is vLLM 0.32's page, with the series that a simulated engine has.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	st := s.loop.stats()
	s.mu.Lock()
	o := s.outcomes
	o.ttft.counts = append([]uint64(nil), o.ttft.counts...)
	o.e2e.counts = append([]uint64(nil), o.e2e.counts...)
	s.mu.Unlock()

	p := page{labels: fmt.Sprintf(`engine="%d",model_name=%q`, s.cfg.Events.Rank, s.cfg.Model)}
	p.head("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
	p.raw("process_start_time_seconds", "", float64(s.start.UnixNano())/1e9)
	p.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", float64(st.Running))
	p.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", float64(st.Waiting))
	p.head("vllm:num_requests_waiting_by_reason", "gauge", "Number of waiting requests by reason.")
	p.line("vllm:num_requests_waiting_by_reason", `,reason="capacity"`, float64(st.Waiting))
	p.line("vllm:num_requests_waiting_by_reason", `,reason="deferred"`, 0)
	p.head("vllm:engine_sleep_state", "gauge", "Engine sleep state.")
	for _, state := range []string{"awake", "weights_offloaded", "discard_all"} {
		p.line("vllm:engine_sleep_state", `,sleep_state="`+state+`"`, map[bool]float64{true: 1}[state == "awake"])
	}
	p.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", st.KVUsage())
	p.counter("vllm:prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", st.QueriedTokens)
	p.counter("vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", st.HitTokens)
	p.counter("vllm:num_preemptions", "Cumulative number of preemption from the engine.", st.Preemptions)
	p.counter("vllm:prompt_tokens", "Number of prefill tokens processed.", st.PromptTokens)
	p.head("vllm:prompt_tokens_by_source_total", "counter", "Number of prompt tokens by source.")
	p.line("vllm:prompt_tokens_by_source_total", `,source="local_compute"`, float64(st.PromptTokens-st.HitTokens))
	p.line("vllm:prompt_tokens_by_source_total", `,source="local_cache_hit"`, float64(st.HitTokens))
	p.line("vllm:prompt_tokens_by_source_total", `,source="external_kv_transfer"`, 0)
	p.counter("vllm:prompt_tokens_cached", "Number of cached prompt tokens (local + external).", st.HitTokens)
	p.counter("vllm:generation_tokens", "Number of generation tokens processed.", st.OutputTokens)
	p.head("vllm:request_success_total", "counter", "Count of successfully processed requests.")
	p.line("vllm:request_success_total", `,finished_reason="stop"`, float64(o.stop))
	p.line("vllm:request_success_total", `,finished_reason="length"`, float64(o.length))
	p.line("vllm:request_success_total", `,finished_reason="abort"`, float64(o.abort))
	p.histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", &o.ttft)
	p.histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", &o.e2e)
	p.head("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
	c := s.cfg.Engine
	p.raw("vllm:cache_config_info", fmt.Sprintf(`_block_size_resolved="True",block_size="%d",cache_dtype="auto",effective_attention_block_size="%d",`+
		`enable_prefix_caching="True",engine="%d",hash_block_size="None",kv_cache_size_tokens="%d",num_cpu_blocks="None",num_gpu_blocks="%d",`+
		`num_gpu_blocks_override="%d",prefix_caching_hash_algo="sha256_cbor",prefix_match_unit="None",sliding_window="None",user_specified_block_size="True"`,
		c.BlockSize, c.BlockSize, s.cfg.Events.Rank, c.BlockSize*c.Blocks, c.Blocks, c.Blocks), 1)

	w.Header().Set("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(p.Len()))
	_, _ = w.Write(p.Bytes()) // a scraper that is gone has nothing to be told
}

// page writes the Prometheus text format as Python's client does.
type page struct {
	bytes.Buffer
	labels string // on every series, alphabetical
}

func (p *page) head(name, kind, help string) {
	p.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n")
}

// line writes a series with the page's labels and more after them.
func (p *page) line(name, more string, v float64) { p.raw(name, p.labels+more, v) }

func (p *page) raw(name, labels string, v float64) {
	p.WriteString(name)
	if labels != "" {
		p.WriteString("{" + labels + "}")
	}
	p.WriteString(" " + pyFloat(v) + "\n")
}

func (p *page) gauge(name, help string, v float64) {
	p.head(name, "gauge", help)
	p.line(name, "", v)
}

func (p *page) counter(name, help string, v uint64) {
	p.head(name+"_total", "counter", help)
	p.line(name+"_total", "", float64(v))
}

func (p *page) histogram(name, help string, h *histogram) {
	p.head(name, "histogram", help)
	n := uint64(0)
	for i, b := range h.bounds {
		if h.counts != nil {
			n += h.counts[i]
		}
		p.line(name+"_bucket", `,le="`+pyFloat(b)+`"`, float64(n))
	}
	p.line(name+"_bucket", `,le="+Inf"`, float64(h.total))
	p.line(name+"_count", "", float64(h.total))
	p.line(name+"_sum", "", h.sum)
}

// pyFloat is a number as Python's repr writes it: always with a point or an exponent.
func pyFloat(v float64) string {
	s := strconv.FormatFloat(v, 'g', -1, 64)
	if bytes.ContainsAny([]byte(s), ".e") {
		return s
	}
	return s + ".0"
}
