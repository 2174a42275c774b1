package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/warmroute/warmroute/e2e/stack"
	warmroutev1 "github.com/warmroute/warmroute/proto/warmroute/v1"
	"github.com/warmroute/warmroute/proto/warmroute/v1/warmroutev1connect"
)

const (
	model     = "tiny"
	blockSize = 16
	// patience bounds waits for what the picker learns in the background.
	patience = 20 * time.Second
)

// system is a running stack inside a test.
type system struct {
	*stack.Stack
	t *testing.T
}

// start runs a stack until the test ends. Engines and picker know the model
// "tiny", unless cfg says otherwise for the picker.
func start(t *testing.T, cfg stack.Config) *system {
	t.Helper()
	root, err := stack.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	tokenizer := filepath.Join(root, "examples", "models", model)
	cfg.Root = root
	cfg.Dir = filepath.Join(root, ".build", "e2e", strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()))
	cfg.EngineArgs = append([]string{
		"--tokenizer", tokenizer, "--model", model, "--block-size", strconv.Itoa(blockSize), "--time-scale", "20",
	}, cfg.EngineArgs...)
	if cfg.PickerArgs == nil {
		cfg.PickerArgs = []string{"--tokenizer", model + "=" + tokenizer}
	}
	cfg.PickerArgs = append(cfg.PickerArgs, "--debug-headers")
	s, err := stack.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("logs are in %s", cfg.Dir)
		}
	})
	return &system{s, t}
}

// answer is what a test reads of a completion.
type answer struct {
	status int
	header http.Header
	body   []byte

	Choices []struct {
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		TokenIDs []uint32 `json:"token_ids"`
	} `json:"choices"`
	PromptTokenIDs []uint32 `json:"prompt_token_ids"`
	Usage          struct {
		Prompt  int `json:"prompt_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    any    `json:"code"` // text from the picker, a number from engines
	} `json:"error"`
}

// post sends v, a JSON text or a value, and returns what came back.
func (s *system) post(url string, v any) answer {
	s.t.Helper()
	body, ok := v.(string)
	if !ok {
		text, err := json.Marshal(v)
		if err != nil {
			s.t.Fatal(err)
		}
		body = string(text)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return s.do(req)
}

// get fetches url.
func (s *system) get(url string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do(req)
}

func (s *system) do(req *http.Request) answer {
	s.t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	a := answer{status: res.StatusCode, header: res.Header}
	if a.body, err = io.ReadAll(res.Body); err != nil {
		s.t.Fatal(err)
	}
	// Not every answer is a JSON object; a test that needs one sees its absence.
	_ = json.Unmarshal(a.body, &a)
	return a
}

// chat sends a conversation through Envoy.
func (s *system) chat(turns []turn) answer {
	s.t.Helper()
	return s.post(s.URL+"/v1/chat/completions", chatBody(turns))
}

// turn is one message of a conversation.
type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func chatBody(turns []turn) map[string]any {
	return map[string]any{
		"model": model, "messages": turns, "max_tokens": 24, "ignore_eos": true, "return_token_ids": true,
	}
}

// tokens asks an engine for the prompt of a conversation.
func (s *system) tokens(turns []turn) []uint32 {
	s.t.Helper()
	a := s.post(s.Engines[0].URL()+"/tokenize", map[string]any{"model": model, "messages": turns})
	var got struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(a.body, &got); err != nil || len(got.Tokens) == 0 {
		s.t.Fatalf("/tokenize: status %d, %v: %s", a.status, err, a.body)
	}
	return got.Tokens
}

// served is a finished request, as the engine saw it.
type served struct {
	Path     string `json:"path"`
	Prompt   int    `json:"prompt_tokens"`
	Cached   int    `json:"cached_tokens"`
	Decision string `json:"decision"`
}

// serves returns what each engine has finished, oldest first.
func (s *system) serves() [][]served {
	s.t.Helper()
	all := make([][]served, len(s.Engines))
	for i, e := range s.Engines {
		a := s.get(e.URL() + "/sim/requests")
		if err := json.Unmarshal(a.body, &all[i]); err != nil {
			s.t.Fatalf("engine %d: %v: %s", i, err, a.body)
		}
	}
	return all
}

// whoServed runs send, which sends one request, and returns the engine that
// finished it and what that engine recorded.
func (s *system) whoServed(send func()) (engine int, request served) {
	s.t.Helper()
	before := s.serves()
	send()
	engine = -1
	s.eventually("an engine records the request", func() (string, bool) {
		after := s.serves()
		var grown []int
		for i := range after {
			for range len(after[i]) - len(before[i]) {
				grown = append(grown, i)
			}
		}
		if len(grown) == 1 {
			engine = grown[0]
			request = after[engine][len(after[engine])-1]
		}
		return fmt.Sprintf("engines %v recorded one", grown), len(grown) == 1
	})
	return engine, request
}

// endpoints returns what the picker believes.
func (s *system) endpoints() []*warmroutev1.Endpoint {
	s.t.Helper()
	client := warmroutev1connect.NewAdminServiceClient(http.DefaultClient, "http://"+s.Picker.Admin)
	res, err := client.ListEndpoints(s.t.Context(), connect.NewRequest(&warmroutev1.ListEndpointsRequest{}))
	if err != nil {
		s.t.Fatal(err)
	}
	return res.Msg.GetEndpoints()
}

// readingTime is what a user takes at least before the next question. It is
// longer than the picker counts a pick of its own that no report shows yet.
const readingTime = 300 * time.Millisecond

// awaitIdle waits until the picker has heard from every engine, readingTime
// from now or later, that it has nothing to do.
func (s *system) awaitIdle() {
	s.t.Helper()
	from := time.Now().Add(readingTime)
	s.eventually("the picker knows that every engine is idle", func() (string, bool) {
		for _, e := range s.endpoints() {
			load := e.GetLoad()
			if load == nil || load.GetRunning()+load.GetWaiting() > 0 || load.GetAge().AsDuration() > time.Since(from) {
				return e.String(), false
			}
		}
		return "", true
	})
}

// awaitIndex waits until the picker believes of every engine exactly the number
// of blocks that the engine holds, and each holds some.
func (s *system) awaitIndex() {
	s.t.Helper()
	s.eventually("the picker knows every engine's blocks", func() (string, bool) {
		believed := map[string]int64{}
		for _, e := range s.endpoints() {
			believed[e.GetAddress()] = e.GetBlocksHeld()
		}
		state, equal := make([]string, len(s.Engines)), true
		for i, e := range s.Engines {
			var stats struct{ CachedBlocks int64 }
			a := s.get(e.URL() + "/sim/stats")
			if err := json.Unmarshal(a.body, &stats); err != nil {
				s.t.Fatalf("engine %d: %v: %s", i, err, a.body)
			}
			state[i] = fmt.Sprintf("%d of %d", believed[e.HTTP], stats.CachedBlocks)
			equal = equal && stats.CachedBlocks > 0 && believed[e.HTTP] == stats.CachedBlocks
		}
		return "believed of held: " + strings.Join(state, ", "), equal
	})
}

// eventually polls until done reports true, and fails the test with the last
// state when patience ends first.
func (s *system) eventually(what string, done func() (state string, ok bool)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for {
		state, ok := done()
		if ok {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			s.t.Fatalf("not within %v: %s (%s)", patience, what, state)
		}
	}
}

// decisions is how many picks the picker's metrics count for a reason.
func (s *system) decisions(reason string) int {
	s.t.Helper()
	counts, err := s.Decisions(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return counts[reason]
}
