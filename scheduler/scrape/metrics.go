package scrape

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/warmroute/scheduler"
)

// maxPage bounds a metrics page. A vLLM engine that serves many adapters
// writes a few hundred kilobytes.
const maxPage = 16 << 20

// lineSize is the longest line that is read whole. The longest of interest,
// cache_config_info, has about 1,500 bytes; of longer lines the rest is
// skipped.
const lineSize = 64 << 10

// page is what a metrics page says that we use.
type page struct {
	readable bool    // it was a page; otherwise the engine answered, but serves none
	started  float64 // process_start_time_seconds, 0 when absent (several API server processes)
	model    string  // first served model name
	engines  []engine
}

// engine holds the figures of one data-parallel rank, NaN when absent.
type engine struct {
	label                  int // the engine label: the rank, 0 when absent (vLLM V0)
	waiting, running       float64
	kvUsage, oldKVUsage    float64 // kv_cache_usage_perc, and gpu_cache_usage_perc of older releases
	queries, hits          float64
	blockSize, totalBlocks int // totalBlocks is the sum over the ranks of the page
}

// fetchMetrics reads the metrics page of an engine. An answer other than 200
// that is no server error is a page that is not readable: the engine is there.
func fetchMetrics(ctx context.Context, client *http.Client, addr netip.AddrPort) (*page, error) {
	resp, err := get(ctx, client, addr, "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusInternalServerError {
		return nil, fmt.Errorf("scrape: GET /metrics: status %d", resp.StatusCode)
	}
	if resp.StatusCode != http.StatusOK {
		return &page{}, nil
	}
	p, err := parseMetrics(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("scrape: GET /metrics: %w", err)
	}
	return p, nil
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, lineSize) }}

// parseMetrics reads a page in the Prometheus text format line by line and
// keeps the few series of interest.
func parseMetrics(r io.Reader) (*page, error) {
	limited := &io.LimitedReader{R: r, N: maxPage + 1}
	in := readers.Get().(*bufio.Reader)
	defer readers.Put(in)
	in.Reset(limited)

	p := &page{readable: true}
	rest := false // the line goes on from the previous read
	for {
		line, err := in.ReadSlice('\n')
		if !rest {
			p.line(line)
		}
		rest = errors.Is(err, bufio.ErrBufferFull)
		switch {
		case err == nil || rest:
		case limited.N == 0:
			return nil, fmt.Errorf("page is longer than %d bytes", maxPage)
		case errors.Is(err, io.EOF):
			return p, nil
		default:
			return nil, err
		}
	}
}

var (
	vllmPrefix  = []byte("vllm:")
	startedName = []byte("process_start_time_seconds")
)

// line takes in one line of a page; most are not for us.
func (p *page) line(line []byte) {
	if tail, ok := bytes.CutPrefix(line, startedName); ok {
		if v, ok := sampleValue(tail); ok {
			p.started = v
		}
		return
	}
	tail, ok := bytes.CutPrefix(line, vllmPrefix)
	if !ok {
		return
	}
	end := bytes.IndexAny(tail, "{ ")
	if end < 0 {
		return
	}
	name, tail := tail[:end], tail[end:]
	// The conversions below do not allocate.
	switch string(name) {
	case "num_requests_waiting", "num_requests_running", "kv_cache_usage_perc", "gpu_cache_usage_perc",
		"prefix_cache_queries_total", "prefix_cache_hits_total",
		"gpu_prefix_cache_queries_total", "gpu_prefix_cache_hits_total", "cache_config_info":
	default:
		return
	}

	var labels []byte
	if tail[0] == '{' {
		end := labelsEnd(tail)
		if end < 0 {
			return // cut off
		}
		labels, tail = tail[1:end], tail[end+1:]
	}
	v, ok := sampleValue(tail)
	if !ok {
		return
	}
	e := p.engine(labels)
	switch string(name) {
	case "num_requests_waiting":
		e.waiting = larger(e.waiting, v)
		if p.model == "" {
			p.model, _ = label(labels, "model_name")
		}
	case "num_requests_running":
		e.running = larger(e.running, v)
	case "kv_cache_usage_perc":
		e.kvUsage = larger(e.kvUsage, v)
	case "gpu_cache_usage_perc":
		e.oldKVUsage = larger(e.oldKVUsage, v)
	case "prefix_cache_queries_total", "gpu_prefix_cache_queries_total":
		e.queries = larger(e.queries, v)
	case "prefix_cache_hits_total", "gpu_prefix_cache_hits_total":
		e.hits = larger(e.hits, v)
	case "cache_config_info":
		e.blockSize = labelNumber(labels, "block_size")
		e.totalBlocks = labelNumber(labels, "num_gpu_blocks")
	}
}

// larger returns the larger of two figures of one series that several
// processes report, each with its own pid label, and v when there was none.
func larger(old, v float64) float64 {
	if math.IsNaN(old) || v > old {
		return v
	}
	return old
}

// engine returns the figures of the engine that labels name.
func (p *page) engine(labels []byte) *engine {
	n := 0
	if v, ok := label(labels, "engine"); ok {
		n, _ = strconv.Atoi(v)
	}
	i := slices.IndexFunc(p.engines, func(e engine) bool { return e.label == n })
	if i < 0 {
		nan := math.NaN()
		i = len(p.engines)
		p.engines = append(p.engines, engine{
			label: n, waiting: nan, running: nan, kvUsage: nan, oldKVUsage: nan, queries: nan, hits: nan,
		})
	}
	return &p.engines[i]
}

// labelsEnd returns the index of the brace that closes the labels at the start
// of s, -1 when there is none. A value may contain braces.
func labelsEnd(s []byte) int {
	quoted := false
	for i := 1; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '}' && !quoted:
			return i
		}
	}
	return -1
}

// label returns the value of the label called name.
func label(labels []byte, name string) (string, bool) {
	for len(labels) > 0 {
		eq := bytes.IndexByte(labels, '=')
		if eq < 0 || eq+1 >= len(labels) || labels[eq+1] != '"' {
			return "", false
		}
		key, tail := bytes.TrimSpace(labels[:eq]), labels[eq+2:]
		end := 0
		for end < len(tail) && tail[end] != '"' {
			if tail[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(tail) {
			return "", false
		}
		if string(key) == name {
			return unescape(string(tail[:end])), true
		}
		labels = bytes.TrimLeft(tail[end+1:], ", ")
	}
	return "", false
}

// unescape undoes the escapes of a label value.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(s)
}

// labelNumber returns a label that is a positive number, 0 for anything else:
// vLLM writes "None" where it has none.
func labelNumber(labels []byte, name string) int {
	v, _ := label(labels, name)
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// sampleValue parses the value behind name and labels; a timestamp may follow.
// NaN and infinities are values that say nothing.
func sampleValue(s []byte) (float64, bool) {
	s = bytes.TrimSpace(s)
	if i := bytes.IndexAny(s, " \t"); i >= 0 {
		s = s[:i]
	}
	v, err := strconv.ParseFloat(string(s), 64)
	return v, err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// loads returns the load of each rank. An engine that serves no figures has
// unknown ones for each of the ranks it is known to have.
func (p *page) loads(at time.Time, ranks int) []RankLoad {
	out := make([]RankLoad, 0, max(1, ranks))
	for _, e := range p.engines {
		out = append(out, RankLoad{Rank: e.label, Load: e.load(at)})
	}
	if len(out) == 0 {
		for r := range max(1, ranks) {
			out = append(out, RankLoad{Rank: r, Load: scheduler.UnknownLoad(at)})
		}
	}
	if len(out) == 1 && ranks <= 1 { // whatever its label says: nobody else is behind this port
		out[0].Rank = -1
	}
	return out
}

func (e *engine) load(at time.Time) scheduler.Load {
	l := scheduler.UnknownLoad(at)
	if e.waiting >= 0 && e.waiting < 1<<31 {
		l.Waiting = int(e.waiting)
	}
	if e.running >= 0 && e.running < 1<<31 {
		l.Running = int(e.running)
	}
	usage := e.kvUsage
	if math.IsNaN(usage) {
		usage = e.oldKVUsage
	}
	if usage >= 0 && usage <= 1 {
		l.KVUsage = usage
	}
	if e.queries >= 0 {
		l.PrefixQueries = e.queries
	}
	if e.hits >= 0 {
		l.PrefixHits = e.hits
	}
	return l
}

// restarted reports whether two pages, in this order, are of two processes:
// the start times differ, or a counter went back where there is none.
func restarted(before, now *page) bool {
	if before.started != 0 && now.started != 0 {
		return before.started != now.started
	}
	for _, e := range now.engines {
		for _, b := range before.engines {
			if e.label == b.label && e.queries < b.queries {
				return true
			}
		}
	}
	return false
}
