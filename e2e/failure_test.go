package e2e

import (
	"strings"
	"testing"

	"github.com/warmroute/warmroute/e2e/stack"
)

func question(n int) []turn { return []turn{{"user", prompt(n, 40)}} }

func TestNoEndpointIsAnErrorInJSON(t *testing.T) {
	for _, envoy := range []string{"override-host-buffered", "original-dst-duplex"} {
		t.Run(envoy, func(t *testing.T) {
			s := start(t, stack.Config{Engines: 1, Picker: true, Endpoints: []string{}, Envoy: envoy})
			a := s.chat(question(1))
			if a.status != 503 || a.Error.Code != "no_endpoint" || a.Error.Message == "" {
				t.Errorf("status %d, body %s", a.status, a.body)
			}
			if got := a.header.Get("Content-Type"); got != "application/json" {
				t.Errorf("content type %q", got)
			}
		})
	}
}

func TestRequestsWithoutTokensArePlacedAndCounted(t *testing.T) {
	s := start(t, stack.Config{
		Engines: 2, Picker: true, Envoy: "override-host-buffered",
		// The picker is told of no tokenizer at all.
		PickerArgs: []string{},
	})
	if a := s.chat(question(1)); a.status != 200 {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	if n := s.decisions("untokenizable"); n != 1 {
		t.Errorf("%d untokenizable requests are counted, want 1", n)
	}
}

func TestRequestsAPickerCannotReadReachAnEngine(t *testing.T) {
	s := start(t, stack.Config{Engines: 2, Picker: true, Envoy: "override-host-buffered"})
	for _, c := range []struct {
		name, path, body string
		status           int
	}{
		{"a body that is no JSON is the engine's to refuse", "/v1/chat/completions", `{"model": "tiny", "messages": [`, 400},
		{"a prompt of token ids", "/v1/completions", `{"model":"tiny","prompt":[1,2,3],"max_tokens":2}`, 200},
		{"a path that has no prompt", "/tokenize", `{"model":"tiny","prompt":"hello"}`, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &system{s.Stack, t}
			a := s.post(s.URL+c.path, c.body)
			if a.status != c.status || a.header.Get("X-Engine") == "" {
				t.Errorf("status %d from engine %q, want %d from any: %s", a.status, a.header.Get("X-Engine"), c.status, a.body)
			}
		})
	}
	if a := s.get(s.URL + "/v1/models"); a.status != 200 || !strings.Contains(string(a.body), `"tiny"`) {
		t.Errorf("GET /v1/models: status %d: %s", a.status, a.body)
	}
	if a := s.post(s.URL+"/v1/chat/completions", `{"model":"other","messages":[]}`); a.status != 404 || a.header.Get("X-Engine") == "" {
		t.Errorf("a model nobody serves: status %d, want an engine's own 404: %s", a.status, a.body)
	}
	if n := s.decisions("unserved"); n != 1 {
		t.Errorf("%d decisions for a model nobody serves are counted, want 1", n)
	}
	if n := s.decisions("bodyless"); n == 0 {
		t.Error("no bodyless request is counted")
	}
}

func TestAFreshFleetServesAtOnce(t *testing.T) {
	s := start(t, stack.Config{Engines: 2, Picker: true, Envoy: "override-host-buffered"})
	if a := s.chat(question(1)); a.status != 200 {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	if n := s.decisions("no_index") + s.decisions("no_load"); n != 1 {
		t.Errorf("%d requests placed without an index are counted, want 1", n)
	}
}

func TestAnEngineDies(t *testing.T) {
	for _, envoy := range []string{"override-host-buffered", "original-dst-buffered"} {
		t.Run(envoy, func(t *testing.T) {
			s := start(t, stack.Config{Engines: 3, Apart: true, Picker: true, Envoy: envoy})
			for n := range 6 {
				if a := s.chat(question(n)); a.status != 200 {
					t.Fatalf("before: status %d: %s", a.status, a.body)
				}
			}
			s.KillEngine(0)
			if strings.HasPrefix(envoy, "original-dst") {
				// It has nowhere else to go until the picker has noticed.
				s.eventually("the picker notices", func() (string, bool) {
					for _, e := range s.endpoints() {
						if e.GetAddress() == s.Engines[0].HTTP {
							return e.String(), !e.GetUp()
						}
					}
					return "the endpoint is not listed", false
				})
			}
			// The same prompts again: the dead engine was the warmest for some.
			for n := range 12 {
				if a := s.chat(question(n % 6)); a.status != 200 {
					t.Errorf("request %d after: status %d: %s", n, a.status, a.body)
				}
			}
		})
	}
}

func TestEnvoyServesWithoutThePicker(t *testing.T) {
	s := start(t, stack.Config{Engines: 2, Picker: true, Envoy: "override-host-buffered"})
	if a := s.chat(question(1)); a.status != 200 {
		t.Fatalf("before: status %d: %s", a.status, a.body)
	}
	if err := s.StopPicker(); err != nil {
		t.Errorf("the picker did not stop cleanly: %v", err)
	}
	for n := range 6 {
		if a := s.chat(question(n)); a.status != 200 {
			t.Errorf("request %d without the picker: status %d: %s", n, a.status, a.body)
		}
	}
}
