package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

const tiny = "../../examples/models/tiny"

// program is a running serve, known by what it logs.
type program struct {
	addresses map[string]string // of each service
	stop      func() error      // ends run and returns its result
}

// start runs serve on free ports until the test ends, and returns once it says
// that it is ready.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan struct{})
	var result error
	p := &program{addresses: make(map[string]string), stop: func() error {
		cancel()
		<-done
		return result
	}}
	args = append([]string{
		"serve", "--extproc-listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
	}, args...)
	go func() {
		defer close(done)
		result = run(ctx, args, nil, io.Discard, w)
		_ = w.Close() // ends the reader below
	}()
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Errorf("serve ended with %v, want a clean stop", err)
		}
	})
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var line struct{ Msg, Service, Address string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("log line %q: %v", lines.Text(), err)
		}
		if line.Msg == "listening" {
			p.addresses[line.Service] = line.Address
		}
		if line.Msg == "ready" {
			go func() { _, _ = io.Copy(io.Discard, r) }()
			return p
		}
	}
	t.Fatal("serve ended before it was ready")
	return nil
}

// fakeEngine answers what an idle vLLM answers, as far as the picker asks.
func fakeEngine(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	for path, body := range map[string]string{
		"/version":   `{"version":"0.32.0"}`,
		"/v1/models": `{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm","root":"/m","parent":null}]}`,
		"/metrics": `vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0
`,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url) //nolint:gosec,noctx // the program under test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestServeTellsWhatItKnows(t *testing.T) {
	engine := fakeEngine(t)
	p := start(t, "--endpoints", engine, "--tokenizer", "m="+tiny)
	admin := "http://" + p.addresses["admin"]

	for path, want := range map[string]string{
		"/healthz": "ok\n",
		"/readyz":  "ok\n",
		"/metrics": `warmroute_endpoint_waiting{endpoint="` + engine + `"} 2`,
	} {
		if status, body := get(t, admin+path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: got %d %q, want 200 with %q", path, status, body, want)
		}
	}
	_, metrics := get(t, admin+"/metrics")
	for _, s := range exported() {
		// A counter with labels has no line before its first event.
		if s.gauge && s.name != "warmroute_kv_event_age_seconds" && !strings.Contains(metrics, "\n"+s.name) {
			t.Errorf("/metrics lacks %s", s.name)
		}
	}

	resp, err := http.Post(admin+"/warmroute.v1.AdminService/ListEndpoints", "application/json", strings.NewReader("{}")) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct {
		Endpoints []struct {
			Address   string
			Up        bool
			BaseModel string
			BlockSize int
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || len(list.Endpoints) != 1 {
		t.Fatalf("ListEndpoints: %+v, error %v", list, err)
	}
	if e := list.Endpoints[0]; e.Address != engine || !e.Up || e.BaseModel != "m" || e.BlockSize != 16 {
		t.Errorf("ListEndpoints: got %+v", e)
	}

	for _, service := range []string{"health", "extproc"} {
		conn, err := grpc.NewClient(p.addresses[service], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, name := range healthServices() {
			got, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: name})
			if err != nil || got.GetStatus() != healthv1.HealthCheckResponse_SERVING {
				t.Errorf("health of %q on %s: %v, error %v", name, service, got, err)
			}
		}
	}
}

func TestServeWithoutEndpointsIsReady(t *testing.T) {
	p := start(t)
	if status, _ := get(t, "http://"+p.addresses["admin"]+"/readyz"); status != http.StatusOK {
		t.Errorf("/readyz: got %d, want 200", status)
	}
}

func TestServeRefusesWhatCannotWork(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"port in use", []string{"--extproc-listen", taken.Addr().String()}, "extproc.listen"},
		{"no such tokenizer", []string{"--tokenizer", "m=/nowhere"}, `model "m"`},
		{"tokenizer without a name", []string{"--tokenizer", "/models/m"}, "want NAME=DIR"},
		{"endpoint without a port", []string{"--endpoints", "10.0.0.1"}, "10.0.0.1"},
		{"no such file", []string{"--config", "/nowhere.yaml"}, "/nowhere.yaml"},
		{"log level nobody knows", []string{"--log-level", "loud"}, "telemetry.log_level"},
		{"stray argument", []string{"now"}, `unexpected argument "now"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := run(t.Context(), append([]string{"serve", "--admin-listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"}, tt.args...), nil, io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestCheckPrintsTheEffectiveConfiguration(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"serve", "--check", "--endpoints", "10.0.0.1:8000"}, nil, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"listen: :9002", "- 10.0.0.1:8000", "uncached_weight: 4"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("--check printed no %q:\n%s", want, out.String())
		}
	}
}

func TestTokenizeAndRenderPrintOneObjectARequest(t *testing.T) {
	chat := `{"model":"m","messages":[{"role":"user","content":"hello"}]}`
	tests := []struct {
		name  string
		args  []string
		stdin string
		want  []string
	}{
		{"chat", []string{"tokenize", "--tokenizer", tiny}, chat, []string{`"text":"<|im_start|>`, `"exact":true`, `"reason":""`}},
		{"completion", []string{"tokenize", "--tokenizer", tiny, "--path", "/v1/completions"}, `{"prompt":[1,2,3]}`, []string{`"text":null`, `"tokens":[1,2,3]`}},
		{"a request that has no tokens", []string{"tokenize", "--tokenizer", tiny}, `{"messages":1}`, []string{`"tokens":[]`, `"exact":false`}},
		{
			"lines",
			[]string{"tokenize", "--tokenizer", tiny, "--jsonl"},
			`{"path":"/v1/completions","body":{"prompt":[7]}}` + "\n" + `{"path":"/v1/chat/completions","body":` + chat + "}\n",
			[]string{`"tokens":[7]`, "\n{\"text\":\"<|im_start|>"},
		},
		{"render", []string{"render", "--template", tiny + "/chat_template.jinja"}, `{"messages":[{"role":"user","content":"a<b"}]}`, []string{`a<b`}},
		{"render what fails", []string{"render", "--template", tiny + "/chat_template.jinja"}, "{}\n[]\n", []string{"\n{\"error\":"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			if err := run(t.Context(), tt.args, strings.NewReader(tt.stdin), &out, io.Discard); err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("got %s, want it to hold %s", out.String(), want)
				}
			}
		})
	}
}

func TestAServerStoppedBeforeItServesIsNoFailure(t *testing.T) {
	s := grpc.NewServer()
	s.Stop()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	if err := closed(s.Serve(listener)); err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
}
