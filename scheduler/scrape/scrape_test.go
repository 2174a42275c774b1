package scrape

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// script answers requests with what the test says at the time.
type script struct {
	mu      sync.Mutex
	answers answers
	hang    bool
	asked   map[string]int
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	if s.asked == nil {
		s.asked = map[string]int{}
	}
	s.asked[r.URL.Path]++
	a, hang := s.answers, s.hang
	s.mu.Unlock()
	if hang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return a.RoundTrip(r)
}

func (s *script) set(change func(*script)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// metricsPage is the page of an engine started at that time.
func metricsPage(started, running int) string {
	return fmt.Sprintf("process_start_time_seconds %d\nvllm:num_requests_waiting 0\nvllm:num_requests_running %d\nvllm:kv_cache_usage_perc 0.5\n", started, running)
}

func healthy(started, running int) answers {
	return answers{
		"/metrics": metricsPage(started, running), "/v1/models": `{"data":[{"id":"m","owned_by":"vllm"}]}`,
		"/version": `{"version":"1"}`, "/kv_event_sources": "{}",
	}
}

// line describes a report in a few words.
func line(r Report) string {
	var b strings.Builder
	if !r.Up {
		return fmt.Sprintf("down: %v", r.Err)
	}
	b.WriteString("up")
	if r.Restarted {
		b.WriteString(" restarted")
	}
	if r.Identity != nil {
		fmt.Fprintf(&b, " %s with %d models", r.Identity.Base, len(r.Identity.Models))
	}
	for _, l := range r.Loads {
		fmt.Fprintf(&b, " rank %d running %d", l.Rank, l.Load.Running)
	}
	return b.String()
}

// TestRun plays the life of one engine and writes down every change of what is
// reported, with the seconds passed, in a bubble of virtual time.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &script{answers: answers{"/metrics": "dead"}}
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()

		var got []string
		last := ""
		done := make(chan struct{})
		go func() {
			defer close(done)
			Run(ctx, Config{Client: &http.Client{Transport: engine}}, engineAddr, func(r Report) {
				if l := line(r); l != last {
					last = l
					got = append(got, fmt.Sprintf("%d s: %s", int(time.Since(begin).Seconds()), l))
				}
			})
		}()

		for _, step := range []func(*script){
			func(s *script) { s.answers = healthy(7, 1) },
			func(s *script) { s.answers = healthy(7, 2) },
			func(s *script) { // an adapter is loaded
				s.answers = healthy(7, 2)
				s.answers["/v1/models"] = `{"data":[{"id":"m"},{"id":"poet","parent":"m"}]}`
			},
			func(s *script) { s.answers["/metrics"] = "500" },
			func(s *script) { s.answers = healthy(7, 3) },
			func(s *script) { s.answers = healthy(99, 0) }, // another process
			func(s *script) { s.answers["/metrics"] = metricsPage(99, 0)[:40] },
			func(s *script) { delete(s.answers, "/metrics") },
			func(s *script) { s.hang = true },
		} {
			time.Sleep(30 * time.Second)
			engine.set(func(s *script) {
				s.answers = maps.Clone(s.answers) // a request may still read the old ones
				step(s)
			})
		}
		time.Sleep(30 * time.Second)
		cancel()
		<-done

		want := []string{
			`0 s: down: scrape: Get "http://10.0.0.1:8000/metrics": unexpected EOF`,
			"32 s: up m with 1 models rank -1 running 1",
			"32 s: up rank -1 running 1",
			"60 s: up rank -1 running 2",
			"93 s: up m with 2 models rank -1 running 2",
			"93 s: up rank -1 running 2",
			"120 s: down: scrape: GET /metrics: status 500",
			"153 s: up m with 1 models rank -1 running 3",
			"153 s: up rank -1 running 3",
			"180 s: up restarted m with 1 models rank -1 running 0",
			"180 s: up rank -1 running 0",
			"210 s: up rank -1 running -1",
			`276 s: down: scrape: Get "http://10.0.0.1:8000/metrics": context deadline exceeded`,
		}
		// Jitter moves the seconds a little; the order is what is checked.
		if diff := cmp.Diff(withoutSeconds(got), withoutSeconds(want)); diff != "" {
			t.Errorf("reports differ (-got +want):\n%s\n%s", diff, strings.Join(got, "\n"))
		}
		if n := engine.asked["/metrics"]; n < 500 || n > 1500 {
			t.Errorf("%d metrics pages read in 300 s", n)
		}
		if n := engine.asked["/version"]; n > 30 {
			t.Errorf("asked for the version %d times in 300 s", n)
		}
	})
}

func withoutSeconds(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		_, out[i], _ = strings.Cut(l, ": ")
	}
	return out
}

func TestRunStopsDuringARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		Run(ctx, Config{Client: &http.Client{Transport: &script{hang: true}}}, engineAddr, func(r Report) {
			t.Errorf("reported %+v", r)
		})
	})
}

func TestBackoff(t *testing.T) {
	w := watch{cfg: Config{}.withDefaults()}
	var got []time.Duration
	for w.failures = 1; w.failures < 9; w.failures++ {
		got = append(got, w.backoff())
	}
	ms := time.Millisecond
	want := []time.Duration{200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5000 * ms, 5000 * ms, 5000 * ms}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("backoff (-got +want):\n%s", diff)
	}
}

// TestOverHTTP reads captured pages through a real client and server, and
// checks that connections are kept.
func TestOverHTTP(t *testing.T) {
	metrics := fixture(t, "metrics-load.txt")
	var mu sync.Mutex
	peers := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		peers[r.RemoteAddr] = true
		mu.Unlock()
		switch r.URL.Path {
		case "/metrics":
			if r.Header.Get("Accept-Encoding") != "" {
				t.Errorf("asked for encoding %q", r.Header.Get("Accept-Encoding"))
			}
			_, _ = w.Write(metrics)
		case "/v1/models":
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		default:
			_, _ = io.WriteString(w, "{}")
		}
	}))
	defer server.Close()
	addr := netip.MustParseAddrPort(strings.TrimPrefix(server.URL, "http://"))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reports := 0
	Run(ctx, Config{Interval: time.Millisecond}, addr, func(r Report) {
		if !r.Up || len(r.Loads) != 1 || r.Loads[0].Load.Running != 8 {
			t.Errorf("got %+v", r)
		}
		if r.Identity != nil && r.Identity.Base != "tiny" {
			t.Errorf("identity %+v", r.Identity)
		}
		if reports++; reports == 5 {
			cancel()
		}
	})
	if len(peers) != 1 {
		t.Errorf("%d connections, want 1", len(peers))
	}
}

// BenchmarkSample is one load sample through a real client and server, which
// shares the processor with it.
func BenchmarkSample(b *testing.B) {
	metrics := fixture(b, "metrics-load.txt")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(metrics) }))
	defer server.Close()
	addr := netip.MustParseAddrPort(strings.TrimPrefix(server.URL, "http://"))
	client := NewClient()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := fetchMetrics(b.Context(), client, addr); err != nil {
			b.Fatal(err)
		}
	}
}
