package scrape

import (
	"bytes"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/warmroute/scheduler"
)

var (
	start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	nan   = math.NaN()
)

func fixture(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// sameNaN compares pages; absent figures are equal.
var sameNaN = cmp.Options{
	cmp.AllowUnexported(page{}, engine{}),
	cmp.Comparer(func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }),
}

func TestParseMetrics(t *testing.T) {
	for _, tt := range []struct {
		name string
		page string
		want page
	}{
		{"vLLM 0.32 under load", string(fixture(t, "metrics-load.txt")), page{
			readable: true, started: 1.79607775856e+09, model: "tiny",
			engines: []engine{{
				running: 8, kvUsage: 0.41025641025641024, oldKVUsage: nan, queries: 7741, hits: 1952, blockSize: 32, totalBlocks: 40,
			}},
		}},
		{"vLLM 0.23 idle", string(fixture(t, "metrics-v0.23.txt")), page{
			readable: true, started: 1.79607909183e+09, model: "tiny",
			engines: []engine{{oldKVUsage: nan, queries: 5556, hits: 448, blockSize: 32, totalBlocks: 40}},
		}},
		{"two ranks behind one port", string(fixture(t, "metrics-dp2.txt")), page{
			readable: true, model: "tiny2",
			engines: []engine{
				{label: 0, oldKVUsage: nan, queries: 1026, hits: 192, blockSize: 32, totalBlocks: 80},
				{label: 1, oldKVUsage: nan, queries: 1122, hits: 192, blockSize: 32, totalBlocks: 80},
			},
		}},
		{"an older release without engine label", `vllm:num_requests_waiting{model_name="m"} 2
vllm:num_requests_running{model_name="m"} 3
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
`, page{readable: true, model: "m", engines: []engine{{waiting: 2, running: 3, kvUsage: nan, oldKVUsage: 0.5, queries: nan, hits: nan}}}},
		{
			"several processes report one engine",
			"vllm:num_requests_running{engine=\"0\",pid=\"7\"} 3\nvllm:num_requests_running{engine=\"0\",pid=\"8\"} 5\nvllm:num_requests_running{engine=\"0\",pid=\"9\"} 4\n",
			page{readable: true, engines: []engine{{waiting: nan, running: 5, kvUsage: nan, oldKVUsage: nan, queries: nan, hits: nan}}},
		},
		{
			"labels with braces, quotes and commas",
			`vllm:num_requests_waiting{a="},\"{",model_name="x\\y, \"z\"",engine="1"} 4 1700000000`,
			page{readable: true, model: `x\y, "z"`, engines: []engine{{label: 1, waiting: 4, running: nan, kvUsage: nan, oldKVUsage: nan, queries: nan, hits: nan}}},
		},
		{"NaN and infinity are absent", "vllm:num_requests_waiting NaN\nvllm:kv_cache_usage_perc +Inf\n", page{readable: true}},
		{"lines cut off", "vllm:num_requests_waiting{engine=\"0\nvllm:num_requests_running\nvllm:kv_cache_usage_perc{} \nprocess_start_time_seconds", page{readable: true}},
		{
			"a line longer than the buffer hides no other",
			"vllm:cache_config_info{x=\"" + strings.Repeat("y", 3*lineSize) + "\"} 1\nvllm:num_requests_waiting 1\n",
			page{readable: true, engines: []engine{{waiting: 1, running: nan, kvUsage: nan, oldKVUsage: nan, queries: nan, hits: nan}}},
		},
		{"another program's page", "# HELP go_goroutines x\ngo_goroutines 5\n", page{readable: true}},
		{"nothing", "", page{readable: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseMetrics(strings.NewReader(tt.page))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(*got, tt.want, sameNaN); diff != "" {
				t.Errorf("page differs (-got +want):\n%s", diff)
			}
		})
	}
}

func TestParseMetricsRefusesHalfAPage(t *testing.T) {
	broken := errors.New("connection reset")
	if _, err := parseMetrics(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if _, err := parseMetrics(&endless{}); err == nil {
		t.Error("a page without end was read")
	}
}

// endless is a page that never stops.
type endless struct{}

func (*endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '#'
	}
	return len(b), nil
}

func TestLoads(t *testing.T) {
	unknown := scheduler.UnknownLoad(start)
	with := func(change func(*scheduler.Load)) scheduler.Load {
		l := unknown
		change(&l)
		return l
	}
	empty := engine{waiting: nan, running: nan, kvUsage: nan, oldKVUsage: nan, queries: nan, hits: nan}
	some := empty
	some.label, some.waiting, some.running, some.kvUsage, some.oldKVUsage, some.queries, some.hits = 3, 1, 2, 0.5, 0.9, 10, 5
	wrong := empty
	wrong.waiting, wrong.running, wrong.kvUsage = -1, 1e300, 41
	old := empty
	old.oldKVUsage = 0.25
	for _, tt := range []struct {
		name  string
		page  page
		ranks int
		want  []RankLoad
	}{
		{"one engine has no rank, whatever its label", page{engines: []engine{some}}, 1, []RankLoad{
			{-1, scheduler.Load{Waiting: 1, Running: 2, KVUsage: 0.5, PrefixQueries: 10, PrefixHits: 5, At: start}},
		}},
		{"figures out of range are unknown", page{engines: []engine{wrong}}, 1, []RankLoad{{-1, unknown}}},
		{"the older usage stands in", page{engines: []engine{old}}, 1, []RankLoad{{-1, with(func(l *scheduler.Load) { l.KVUsage = 0.25 })}}},
		{"no figures at all", page{}, 1, []RankLoad{{-1, unknown}}},
		{"no figures of any rank", page{}, 2, []RankLoad{{0, unknown}, {1, unknown}}},
	} {
		if diff := cmp.Diff(tt.page.loads(start, tt.ranks), tt.want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", tt.name, diff)
		}
	}
}

func TestRestarted(t *testing.T) {
	for _, tt := range []struct {
		name        string
		before, now page
		want        bool
	}{
		{"the same process", page{started: 5}, page{started: 5}, false},
		{"another start time", page{started: 5}, page{started: 6}, true},
		{"a counter that grows", page{engines: []engine{{queries: 5}}}, page{engines: []engine{{queries: 6}}}, false},
		{"a counter that went back", page{engines: []engine{{queries: 5}}}, page{engines: []engine{{queries: 0}}}, true},
		{"counters of two ranks", page{engines: []engine{{queries: 5}}}, page{engines: []engine{{label: 1, queries: 0}}}, false},
		{"a counter that is not there", page{engines: []engine{{queries: nan}}}, page{engines: []engine{{queries: 0}}}, false},
	} {
		if got := restarted(&tt.before, &tt.now); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add([]byte("vllm:num_requests_waiting{engine=\"0\"} 1\nvllm:cache_config_info{block_size=\"16\"} 1\n"))
	f.Add([]byte("vllm:kv_cache_usage_perc{x=\"\\"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseMetrics(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range p.loads(start, 1) {
			if u := l.Load.KVUsage; u != -1 && !(u >= 0 && u <= 1) {
				t.Fatalf("KV usage %v", u)
			}
		}
	})
}

func BenchmarkParseMetrics(b *testing.B) {
	raw := fixture(b, "metrics-load.txt")
	in := bytes.NewReader(raw)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		in.Reset(raw)
		if _, err := parseMetrics(in); err != nil {
			b.Fatal(err)
		}
	}
}
