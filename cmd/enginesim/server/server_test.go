package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/warmroute/cmd/enginesim/engine"
	"github.com/warmroute/warmroute/cmd/enginesim/kvevents"
)

// fakeTokenizer has a token for each byte.
type fakeTokenizer struct{}

func (fakeTokenizer) Encode(text string, _ bool) ([]uint32, error) {
	var ids []uint32
	for _, b := range []byte(text) {
		ids = append(ids, uint32(b))
	}
	return ids, nil
}

func (f fakeTokenizer) Chat(body []byte) ([]uint32, error) {
	var req struct{ Messages []struct{ Content string } }
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, m := range req.Messages {
		text.WriteString(m.Content)
	}
	if text.Len() == 0 {
		return nil, errors.New("nothing to answer")
	}
	return f.Encode(text.String(), false)
}

func (fakeTokenizer) Decode(ids []uint32) string {
	var b []byte
	for _, id := range ids {
		b = append(b, byte(id))
	}
	return string(b)
}

// startServer runs an engine until the test ends and returns its URL.
func startServer(t *testing.T, change func(*Config)) (url string, s *Server) {
	t.Helper()
	cfg := Config{
		Index: 3,
		Engine: engine.Config{
			BlockSize: 32, Blocks: 40, MaxModelLen: 1024, MaxRunning: 8, TokenBudget: 2048,
			PrefillRate: 8000, StepBase: 10 * time.Millisecond,
		},
		Events: kvevents.Config{Topic: "kv", BufferSteps: 100, HWM: 100},
		Model:  "tiny", Aliases: []string{"tiny-alias"}, Root: "/models/tiny",
		Adapters: []engine.Adapter{{ID: 1, Name: "adapter-a", Path: "/models/adapter-a"}},
		Version:  "0.32.0", Tokenizer: fakeTokenizer{}, Vocabulary: PlainVocabulary(),
		TimeScale: 100, Served: 100,
	}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var lns [3]net.Listener
	for i := range lns {
		if lns[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, lns[0], lns[1], lns[2]) }()
	t.Cleanup(func() {
		cancel()
		http.DefaultClient.CloseIdleConnections()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + lns[0].Addr().String(), s
}

type answerOf struct {
	status int
	header http.Header
	body   string
}

func call(t *testing.T, method, url, body string, header ...string) answerOf {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answerOf{resp.StatusCode, resp.Header, string(b)}
}

func golden(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// shape is a JSON document with its values replaced by their kinds, fields in order.
func shape(t *testing.T, doc string) string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(doc))
	dec.UseNumber()
	var out strings.Builder
	var stack []byte // '{' expects a key, ':' a value in an object, '[' an element
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		if err != nil {
			t.Fatalf("%v in %s", err, doc)
		}
		key := false
		if n := len(stack); n > 0 {
			switch stack[n-1] {
			case '{':
				if s, ok := tok.(string); ok {
					fmt.Fprintf(&out, "%s:", s)
					stack[n-1], key = ':', true
				}
			case ':':
				stack[n-1] = '{'
			}
		}
		if key {
			continue
		}
		switch v := tok.(type) {
		case json.Delim:
			out.WriteString(v.String())
			if v == '{' || v == '[' {
				stack = append(stack, byte(v))
			} else {
				stack = stack[:len(stack)-1]
				out.WriteByte(' ')
			}
		case nil:
			out.WriteString("null ")
		default:
			fmt.Fprintf(&out, "%T ", v)
		}
	}
}

// chunkShapes is the shapes of a stream's events, each run of equal ones once.
func chunkShapes(t *testing.T, stream string) []string {
	t.Helper()
	var all []string
	sc := bufio.NewScanner(strings.NewReader(stream))
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if ok && data != "[DONE]" {
			data = shape(t, data)
		}
		if ok {
			all = append(all, data)
		}
	}
	return slices.Compact(all)
}

func TestAnswersHaveVLLMsShape(t *testing.T) {
	url, _ := startServer(t, nil)
	const chat = "/v1/chat/completions"
	cases := []struct {
		golden, path, body string
	}{
		{"chat.json", chat, `{"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":3}`},
		{"chat-token-ids.json", chat, `{"model":"tiny","messages":[{"role":"user","content":"nine ids."}],"max_tokens":3,"return_token_ids":true}`},
		{"completion.json", "/v1/completions", `{"model":"tiny","prompt":"Hello world","max_tokens":3}`},
		{"completion-batch.json", "/v1/completions", `{"model":"tiny","prompt":["Hello world","x"],"max_tokens":2}`},
		{"tokenize-completion-strs.json", "/tokenize", `{"model":"tiny","prompt":"ab","return_token_strs":true}`},
		{"detokenize.json", "/detokenize", `{"model":"tiny","tokens":[65,66]}`},
		{"models.json", "/v1/models", ""},
		{"kv_event_sources.json", "/kv_event_sources", ""},
		{"version.json", "/version", ""},
	}
	for _, c := range cases {
		t.Run(c.golden, func(t *testing.T) {
			method := http.MethodPost
			if c.body == "" {
				method = http.MethodGet
			}
			got := call(t, method, url+c.path, c.body)
			if got.status != http.StatusOK {
				t.Fatalf("got status %d: %s", got.status, got.body)
			}
			if diff := cmp.Diff(shape(t, golden(t, c.golden)), shape(t, got.body)); diff != "" {
				t.Errorf("shape (-vLLM +enginesim):\n%s", diff)
			}
		})
	}
}

func TestStreamsHaveVLLMsShape(t *testing.T) {
	url, _ := startServer(t, nil)
	cases := []struct {
		golden, path, body string
	}{
		{
			"chat-stream-nousage.sse", "/v1/chat/completions",
			`{"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":300,"stream":true}`,
		},
		{
			"chat-stream-usage-1.sse", "/v1/chat/completions",
			`{"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":300,"stream":true,"stream_options":{"include_usage":true}}`,
		},
		{
			"completion-stream-usage.sse", "/v1/completions",
			`{"model":"tiny","prompt":"hi","max_tokens":300,"stream":true,"stream_options":{"include_usage":true}}`,
		},
	}
	for _, c := range cases {
		t.Run(c.golden, func(t *testing.T) {
			got := call(t, http.MethodPost, url+c.path, c.body)
			if want := "text/event-stream; charset=utf-8"; got.header.Get("Content-Type") != want {
				t.Errorf("got content type %q, want %q", got.header.Get("Content-Type"), want)
			}
			if diff := cmp.Diff(chunkShapes(t, golden(t, c.golden)), chunkShapes(t, got.body)); diff != "" {
				t.Errorf("chunks (-vLLM +enginesim):\n%s", diff)
			}
		})
	}
}

func TestStreamAndPlainAnswerSayTheSame(t *testing.T) {
	url, _ := startServer(t, nil)
	const body = `{"model":"tiny","messages":[{"role":"user","content":"tell me"}],"max_tokens":40%s}`
	var whole chatAnswer
	if err := json.Unmarshal([]byte(call(t, http.MethodPost, url+"/v1/chat/completions", fmt.Sprintf(body, "")).body), &whole); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	stream := call(t, http.MethodPost, url+"/v1/chat/completions", fmt.Sprintf(body, `,"stream":true`)).body
	for data := range strings.SplitSeq(stream, "data: ") {
		var chunk chatChunk
		if json.Unmarshal([]byte(data), &chunk) == nil && len(chunk.Choices) > 0 {
			said.WriteString(chunk.Choices[0].Delta.Content)
		}
	}
	text := said.String()
	if want := whole.Choices[0].Message.Content; text != want {
		t.Errorf("got %q in a stream, %q as one", text, want)
	}
	if n := len(strings.Fields(text)); n != 40 {
		t.Errorf("got %d words, want 40", n)
	}
}

func TestErrorsAreThoseOfVLLM(t *testing.T) {
	url, _ := startServer(t, nil)
	const chat = "/v1/chat/completions"
	cases := []struct {
		golden       string
		status       int
		method, path string
		body         string
		header       []string
	}{
		{golden: "err-unknown-model.json", status: 404, path: chat, body: `{"model":"nope","messages":[{"role":"user","content":"hi"}]}`},
		{golden: "err-too-long-chat.json", status: 400, path: chat, body: `{"model":"tiny","messages":[{"role":"user","content":"` + strings.Repeat("word ", 300) + `"}]}`},
		{golden: "err-max-tokens.json", status: 400, path: chat, body: `{"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":5000}`},
		{golden: "err-dp-rank.json", status: 400, path: chat, body: `{"model":"tiny","messages":[{"role":"user","content":"hi"}]}`, header: []string{"X-data-parallel-rank", "3"}},
		{golden: "err-content-type.json", status: 400, path: chat, body: `{"model":"tiny","messages":[]}`, header: []string{"Content-Type", "text/plain"}},
		{golden: "err-method.json", status: 405, method: http.MethodGet, path: chat},
		{golden: "err-not-found.json", status: 404, method: http.MethodGet, path: "/nope"},
	}
	for _, c := range cases {
		t.Run(c.golden, func(t *testing.T) {
			method := c.method
			if method == "" {
				method = http.MethodPost
			}
			got := call(t, method, url+c.path, c.body, c.header...)
			if got.status != c.status {
				t.Errorf("got status %d, want %d", got.status, c.status)
			}
			if diff := cmp.Diff(golden(t, c.golden), got.body); diff != "" {
				t.Errorf("body (-vLLM +enginesim):\n%s", diff)
			}
		})
	}
}

func TestBadBodiesAreRefused(t *testing.T) {
	url, _ := startServer(t, nil)
	const chat, plain = "/v1/chat/completions", "/v1/completions"
	cases := map[string][2]string{
		"not JSON":                {chat, `{"model": "tiny", "messages": [`},
		"not an object":           {chat, `[1]`},
		"no messages":             {chat, `{"model":"tiny"}`},
		"no prompt":               {plain, `{"model":"tiny"}`},
		"a prompt of no kind":     {plain, `{"model":"tiny","prompt":{"a":1}}`},
		"an empty prompt":         {plain, `{"model":"tiny","prompt":""}`},
		"a negative token":        {plain, `{"model":"tiny","prompt":[-1]}`},
		"an empty salt":           {plain, `{"model":"tiny","prompt":"a","cache_salt":""}`},
		"a salt with a slash":     {plain, `{"model":"tiny","prompt":"a","cache_salt":"a/b"}`},
		"no output":               {plain, `{"model":"tiny","prompt":"a","max_tokens":0}`},
		"prompt and output":       {plain, `{"model":"tiny","prompt":"` + strings.Repeat("a", 1000) + `","max_tokens":100}`},
		"what cannot be rendered": {chat, `{"model":"tiny","messages":[]}`},
		"text for max_tokens":     {plain, `{"model":"tiny","prompt":"a","max_tokens":"many"}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := call(t, http.MethodPost, url+c[0], c[1])
			var body struct{ Error apiError }
			if err := json.Unmarshal([]byte(got.body), &body); err != nil || got.status != 400 || body.Error.Code != 400 || body.Error.Message == "" {
				t.Errorf("got %d %s", got.status, got.body)
			}
		})
	}
}

func TestSecondRequestIsCachedAndRemembered(t *testing.T) {
	url, s := startServer(t, nil)
	body := `{"model":"tiny","prompt":"` + strings.Repeat("a", 100) + `","max_tokens":2}`
	for _, want := range []int{0, 96} {
		got := call(t, http.MethodPost, url+"/v1/completions", body)
		var a completionAnswer
		if err := json.Unmarshal([]byte(got.body), &a); err != nil {
			t.Fatal(err)
		}
		if a.Usage.PromptDetails.Cached != want {
			t.Errorf("got %d cached tokens, want %d", a.Usage.PromptDetails.Cached, want)
		}
		if got.header.Get("X-Engine") != "3" {
			t.Errorf("got engine %q, want 3", got.header.Get("X-Engine"))
		}
	}
	// Other namespaces do not share.
	for _, other := range []string{`"model":"adapter-a"`, `"model":"tiny","cache_salt":"s"`} {
		call(t, http.MethodPost, url+"/v1/completions", strings.Replace(body, `"model":"tiny"`, other, 1))
	}
	var list []served
	if err := json.Unmarshal([]byte(call(t, http.MethodGet, url+"/sim/requests", "").body), &list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range list {
		got = append(got, fmt.Sprintf("%s %s %d %d %d", r.Path, r.Model, r.PromptTokens, r.CachedTokens, r.OutputTokens))
	}
	want := []string{
		"/v1/completions tiny 100 0 2", "/v1/completions tiny 100 96 2", "/v1/completions adapter-a 100 0 2", "/v1/completions tiny 100 0 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
	if n := s.events.Batches(); n != 3 {
		t.Errorf("got %d batches, want one for each request that stored blocks: 3", n)
	}
	var st map[string]int
	if err := json.Unmarshal([]byte(call(t, http.MethodGet, url+"/sim/stats", "").body), &st); err != nil {
		t.Fatal(err)
	}
	if st["Finished"] != 4 || st["EventBatches"] != 3 || st["HitTokens"] != 96 {
		t.Errorf("got stats %v, want 4 finished, 3 batches and 96 tokens hit", st)
	}
	if got := call(t, http.MethodPost, url+"/reset_prefix_cache", "").body; got != `{"success":true}` {
		t.Errorf("got %s", got)
	}
}

func TestClientThatLeavesFreesTheEngine(t *testing.T) {
	url, s := startServer(t, func(c *Config) { c.TimeScale = 1 })
	for _, stream := range []string{"true", "false"} {
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions",
			strings.NewReader(`{"model":"tiny","prompt":"abc","max_tokens":1000,"stream":`+stream+`}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close() //nolint:errcheck // the client left
			}
		}()
		for s.loop.stats().Running == 0 {
			time.Sleep(time.Millisecond)
		}
		leave()
		<-ended
		for st := s.loop.stats(); st.Running+st.UsedBlocks > 0; st = s.loop.stats() {
			time.Sleep(time.Millisecond)
		}
	}
	if got := s.loop.stats().Aborted; got != 2 {
		t.Errorf("got %d aborted requests, want 2", got)
	}
}

var seriesLine = regexp.MustCompile(`^([a-z_:]+)(?:\{(.*)\})? `)

// series maps each metric name to its label names.
func series(page string) map[string][]string {
	all := map[string][]string{}
	label := regexp.MustCompile(`([a-z_]+)="`)
	sc := bufio.NewScanner(strings.NewReader(page))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if kind, ok := strings.CutPrefix(sc.Text(), "# TYPE "); ok {
			all["TYPE "+kind] = nil
		}
		if m := seriesLine.FindStringSubmatch(sc.Text()); m != nil {
			var labels []string
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				labels = append(labels, l[1])
			}
			slices.Sort(labels)
			all[m[1]] = labels
		}
	}
	return all
}

func TestMetricsAreSeriesOfVLLM(t *testing.T) {
	url, _ := startServer(t, nil)
	call(t, http.MethodPost, url+"/v1/completions", `{"model":"tiny","prompt":"hello","max_tokens":3}`)
	got := call(t, http.MethodGet, url+"/metrics", "")
	if want := "text/plain; version=1.0.0; charset=utf-8"; got.header.Get("Content-Type") != want {
		t.Errorf("got content type %q, want %q", got.header.Get("Content-Type"), want)
	}
	vllm := series(golden(t, "metrics-load.txt"))
	ours := series(got.body)
	for name, labels := range ours {
		theirs, known := vllm[name]
		switch {
		case !known:
			t.Errorf("%s is no series of vLLM's", name)
		case name == "vllm:cache_config_info":
			for _, l := range labels {
				if !slices.Contains(theirs, l) {
					t.Errorf("%s: vLLM has no label %s", name, l)
				}
			}
		default:
			if diff := cmp.Diff(theirs, labels); diff != "" {
				t.Errorf("%s (-vLLM +enginesim):\n%s", name, diff)
			}
		}
	}
	for _, name := range []string{
		"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:cache_config_info",
		"vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:prompt_tokens_total", "process_start_time_seconds",
	} {
		if _, ok := ours[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	for _, want := range []string{
		`vllm:prompt_tokens_total{engine="0",model_name="tiny"} 5.0`, `vllm:generation_tokens_total{engine="0",model_name="tiny"} 3.0`,
		`block_size="32"`, `num_gpu_blocks="40"`,
	} {
		if !bytes.Contains([]byte(got.body), []byte(want)) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

func TestWithoutATokenizer(t *testing.T) {
	url, _ := startServer(t, func(c *Config) { c.Tokenizer = nil })
	if got := call(t, http.MethodPost, url+"/v1/completions", `{"model":"tiny","prompt":[[1,2],[3]],"max_tokens":1}`); got.status != 200 {
		t.Errorf("token ids: got %d %s", got.status, got.body)
	}
	for path, body := range map[string]string{
		"/v1/completions":      `{"model":"tiny","prompt":"text"}`,
		"/v1/chat/completions": `{"model":"tiny","messages":[{"role":"user","content":"hi"}]}`,
		"/tokenize":            `{"prompt":"text"}`,
		"/detokenize":          `{"tokens":[1]}`,
	} {
		if got := call(t, http.MethodPost, url+path, body); got.status != 400 || !strings.Contains(got.body, "--tokenizer") {
			t.Errorf("%s: got %d %s", path, got.status, got.body)
		}
	}
}

func TestEndpointOfEveryAddressIsAStar(t *testing.T) {
	ln, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() //nolint:errcheck // the test is over
	if got := endpoint(ln); !strings.HasPrefix(got, "tcp://*:") {
		t.Errorf("got %s, want tcp://*:port", got)
	}
}
