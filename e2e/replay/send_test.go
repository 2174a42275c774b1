package replay

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const goodAnswer = `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}

data: {"choices":[{"delta":{"content":"hello"}}]}

data: {"choices":[{"delta":{"content":" you"}}]}

data: {"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":32}}}

data: [DONE]

`

func TestReadAnswer(t *testing.T) {
	var clock time.Duration
	since := func() time.Duration { clock += time.Second; return clock }
	var got Result
	if err := got.read(strings.NewReader(goodAnswer), since); err != nil {
		t.Fatal(err)
	}
	// The clock is read twice: at the first text, which the role alone is not, and at the end.
	want := Result{TTFT: time.Second, E2E: 2 * time.Second, Prompt: 40, Cached: 32, Completed: 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadAnswerRejects(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"an answer cut short", `data: {"choices":[{"delta":{"content":"x"}}]}` + "\n", "without [DONE]"},
		{"no usage", `data: {"choices":[{"delta":{"content":"x"}}]}` + "\ndata: [DONE]\n", "no usage"},
		{"no text", `data: {"choices":[],"usage":{"prompt_tokens":1}}` + "\ndata: [DONE]\n", "no text"},
		{"an error half way", `data: {"error":{"message":"out of memory"}}` + "\n", "out of memory"},
		{"an event that is not JSON", "data: {\n", "event"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Result
			err := r.read(strings.NewReader(c.body), func() time.Duration { return 1 })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestRun(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) == "bad" {
			http.Error(w, `{"error":"no"}`, http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("X-Engine", string(body))
		fmt.Fprint(w, goodAnswer)
	}))
	defer server.Close()
	calls := []Call{{0, []byte("a")}, {time.Millisecond, []byte("bad")}, {2 * time.Millisecond, []byte("b")}}
	var last Progress
	results, err := Run(t.Context(), server.URL, calls, func(p Progress) { last = p })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Progress{Total: 3, Sent: 3, Done: 3, Failed: 1}, last); diff != "" {
		t.Error(diff)
	}
	if results[0].Engine != "a" || results[0].Cached != 32 || results[0].Err != nil || results[2].Engine != "b" {
		t.Errorf("results %+v", results)
	}
	if err := results[1].Err; err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("the refused request: %v", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	blocked := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(blocked)
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-blocked
		cancel()
	}()
	// The second call's time would come in an hour.
	results, err := Run(ctx, server.URL, []Call{{0, nil}, {time.Hour, nil}}, nil)
	if err == nil || len(results) != 2 || results[0].Err == nil {
		t.Errorf("error %v, results %v", err, results)
	}
}
