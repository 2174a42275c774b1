package scrape

import (
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/warmroute/scheduler"
)

// answers is a fake engine: a body for each path. A body that starts with a
// number answers with that status; a path that is not there, with 404.
type answers map[string]string

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body, ok := a[r.URL.Path]
	status := http.StatusOK
	switch {
	case !ok:
		status, body = http.StatusNotFound, `{"detail":"Not Found"}`
	case body == "500":
		status = http.StatusInternalServerError
	case body == "401":
		status = http.StatusUnauthorized
	case body == "dead":
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

var engineAddr = netip.MustParseAddrPort("10.0.0.1:8000")

// lookOnce identifies the engine that gives those answers.
func lookOnce(t *testing.T, a answers) (Identity, error) {
	t.Helper()
	client := &http.Client{Transport: a}
	p, err := fetchMetrics(t.Context(), client, engineAddr)
	if err != nil {
		return Identity{}, err
	}
	return identify(t.Context(), client, engineAddr, p)
}

func TestIdentify(t *testing.T) {
	load, dp2 := string(fixture(t, "metrics-load.txt")), string(fixture(t, "metrics-dp2.txt"))
	models, version := string(fixture(t, "models.json")), string(fixture(t, "version.json"))
	tiny := []scheduler.Model{{Name: "tiny"}, {Name: "tiny-alias"}, {Name: "adapter-a", Adapter: "adapter-a"}}
	for _, tt := range []struct {
		name    string
		answers answers
		want    Identity
	}{
		{
			"vLLM 0.32 with an alias and an adapter",
			answers{"/metrics": load, "/v1/models": models, "/version": version, "/kv_event_sources": string(fixture(t, "kv_event_sources.json"))},
			Identity{
				Identity: scheduler.Identity{Base: "tiny", Models: tiny, BlockSize: 32, KVBlocks: 40},
				Engine:   "vllm", Version: "0.32.0", Ranks: 1,
				Events: []EventSource{{Rank: -1, Events: "10.0.0.1:5557", Replay: "10.0.0.1:5558", Topic: "kv@127.0.0.1:8101@tiny"}},
			},
		},
		{
			"two ranks behind one port share the blocks",
			answers{
				"/metrics": dp2, "/v1/models": string(fixture(t, "models-dp2.json")), "/version": version,
				"/kv_event_sources": string(fixture(t, "kv_event_sources-dp2.json")),
			},
			Identity{
				Identity: scheduler.Identity{Base: "tiny2", Models: []scheduler.Model{{Name: "tiny2"}}, BlockSize: 32, KVBlocks: 40},
				Engine:   "vllm", Version: "0.32.0", Ranks: 2,
				Events: []EventSource{
					{Rank: 0, Events: "10.0.0.1:5567", Replay: "10.0.0.1:5577", Topic: "kv@127.0.0.1:8102@tiny2"},
					{Rank: 1, Events: "10.0.0.1:5568", Replay: "10.0.0.1:5578", Topic: "kv@127.0.0.1:8102@tiny2"},
				},
			},
		},
		{
			"a release that announces no event sources",
			answers{"/metrics": string(fixture(t, "metrics-v0.23.txt")), "/v1/models": models, "/version": version},
			Identity{
				Identity: scheduler.Identity{Base: "tiny", Models: tiny, BlockSize: 32, KVBlocks: 40},
				Engine:   "vllm", Version: "0.32.0", Ranks: 1, Unknown: []string{"GET /kv_event_sources: status 404"},
			},
		},
		{
			"an engine behind an API key tells its model in its metrics",
			answers{"/metrics": load, "/v1/models": "401", "/version": version, "/kv_event_sources": "{}"},
			Identity{
				Identity: scheduler.Identity{Base: "tiny", BlockSize: 32, KVBlocks: 40},
				Version:  "0.32.0", Ranks: 1, Unknown: []string{"GET /v1/models: status 401"},
			},
		},
		{
			"another program altogether",
			answers{"/metrics": "<html>", "/v1/models": "<html>", "/version": `{"version":7}`, "/kv_event_sources": `"no"`},
			Identity{Ranks: 1, Unknown: []string{
				"GET /metrics: no cache_config_info",
				"GET /v1/models: answer is not the JSON expected: invalid character '<' looking for beginning of value",
				"GET /version: answer is not the JSON expected: json: cannot unmarshal number into Go struct field .version of type string",
				"GET /kv_event_sources: answer is not the JSON expected: json: cannot unmarshal string into Go value of type map[int]scrape.source",
			}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := lookOnce(t, tt.answers)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("identity differs (-got +want):\n%s", diff)
			}
		})
	}
}

func TestIdentifyErrors(t *testing.T) {
	for _, tt := range []struct {
		answers answers
		want    string
	}{
		{answers{"/metrics": "500"}, "scrape: GET /metrics: status 500"},
		{answers{"/metrics": "", "/v1/models": "500"}, "scrape: GET /v1/models: status 500"},
		{answers{"/metrics": "dead"}, `scrape: Get "http://10.0.0.1:8000/metrics": unexpected EOF`},
	} {
		_, err := lookOnce(t, tt.answers)
		if err == nil || err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}

func TestEventSources(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answer  string
		events  []EventSource
		unknown []string
	}{
		{"a list that names ranks", `[{"data_parallel_rank":1,"endpoint":"tcp://*:5558"},{"data_parallel_rank":0,"endpoint":"tcp://node-7:5557","topic":"t"}]`, []EventSource{
			{Rank: 0, Events: "node-7:5557", Topic: "t"}, {Rank: 1, Events: "10.0.0.1:5558"},
		}, nil},
		{"IPv6", `{"0":{"endpoint":"tcp://[::]:1","replay_endpoint":"tcp://[fd00::2]:2"}}`, []EventSource{{Rank: -1, Events: "10.0.0.1:1", Replay: "[fd00::2]:2"}}, nil},
		{"events switched off", `{"0":{"enable_kv_cache_events":false,"endpoint":"tcp://*:1"},"1":{"publisher":"null","endpoint":"tcp://*:1"}}`, nil, []string{
			"GET /kv_event_sources: rank 0 publishes no events", "GET /kv_event_sources: rank 1 publishes no events",
		}},
		{"endpoints nobody can reach", `{"0":{"endpoint":"ipc:///tmp/x"},"1":{},"2":{"endpoint":"tcp://*"},"3":{"endpoint":"tcp://*:0"}}`, nil, []string{
			`GET /kv_event_sources: rank 0: endpoint "ipc:///tmp/x" cannot be reached from here, only tcp:// can`,
			"GET /kv_event_sources: rank 1: endpoint is missing",
			`GET /kv_event_sources: rank 2: endpoint "tcp://*" has no port`,
			`GET /kv_event_sources: rank 3: endpoint "tcp://*:0" has no port that can be dialled`,
		}},
	} {
		var id Identity
		id.addSources(engineAddr.Addr(), []byte(tt.answer))
		if diff := cmp.Diff(id.Events, tt.events); diff != "" {
			t.Errorf("%s: events (-got +want):\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(id.Unknown, tt.unknown); diff != "" {
			t.Errorf("%s: unknown (-got +want):\n%s", tt.name, diff)
		}
	}
}
