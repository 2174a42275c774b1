// Package server is the HTTP face of simulated engines: vLLM's OpenAI API,
// metrics and discovery routes over an engine that runs in scaled wall time,
// with its KV events beside it.
//
// Routes of its own start with /sim/. Answers carry the header x-engine with
// the engine's index, so that a test behind a gateway can tell who served it.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warmroute/warmroute/cmd/enginesim/engine"
	"github.com/warmroute/warmroute/cmd/enginesim/kvevents"
)

// Tokenizer turns requests into token ids as the engine's own front end does.
type Tokenizer interface {
	// Encode encodes a plain text; special adds the tokenizer's special tokens.
	Encode(text string, special bool) ([]uint32, error)
	// Chat renders and encodes the body of a chat request.
	Chat(body []byte) ([]uint32, error)
	// Decode is the text of token ids.
	Decode(ids []uint32) string
}

// Config describes one engine and its API.
type Config struct {
	Index  int
	Engine engine.Config
	Events kvevents.Config

	Model    string   // the served name
	Aliases  []string // further names of the same model
	Root     string   // where the model is, as /v1/models shows it
	Adapters []engine.Adapter
	Version  string

	// Tokenizer may be nil: then prompts must be token ids.
	Tokenizer  Tokenizer
	Vocabulary Vocabulary
	Seed       uint64 // of the answers

	TimeScale float64 // simulated seconds per second
	// StreamInterval is the least wall time between two chunks of a stream after
	// its first token; tokens that come faster share a chunk.
	StreamInterval time.Duration
	// Served is how many requests /sim/requests remembers.
	Served int
}

// Server is one simulated engine with its API and its event stream.
type Server struct {
	cfg    Config
	loop   *loop
	events *kvevents.Stream
	start  time.Time

	eventsAddr, replayAddr string // ZeroMQ endpoints, set by Serve

	mu       sync.Mutex
	served   []served // oldest first
	outcomes outcomes
}

// outcomes counts what the engine's own counters do not know.
type outcomes struct {
	length, stop, abort uint64
	ttft, e2e           histogram
}

// served is one finished request as /sim/requests shows it. Times are simulated
// seconds since the engine started.
type served struct {
	ID           string  `json:"id"`
	Path         string  `json:"path"`
	Model        string  `json:"model"`
	PromptTokens int     `json:"prompt_tokens"`
	CachedTokens int     `json:"cached_tokens"`
	OutputTokens int     `json:"output_tokens"`
	Aborted      bool    `json:"aborted"`
	Arrived      float64 `json:"arrived"`
	FirstToken   float64 `json:"first_token"`
	End          float64 `json:"end"`
	// Decision is the picker's debug header, when it sent one.
	Decision string `json:"decision,omitempty"`
}

// New returns a server that does nothing before Serve. start is when simulated time begins.
func New(cfg Config, start time.Time) (*Server, error) {
	if cfg.TimeScale <= 0 {
		return nil, fmt.Errorf("server: time scale %g, want more than 0", cfg.TimeScale)
	}
	if len(cfg.Vocabulary.First) == 0 || len(cfg.Vocabulary.Next) == 0 {
		return nil, errors.New("server: no words to answer with")
	}
	e, err := engine.New(cfg.Engine)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, start: start, events: kvevents.NewStream(cfg.Events)}
	s.outcomes.ttft.bounds, s.outcomes.e2e.bounds = ttftBounds, e2eBounds
	s.loop = newLoop(e, cfg.TimeScale, start, s.events.Publish)
	return s, nil
}

// Serve answers on the three listeners until ctx ends, and closes them.
func (s *Server) Serve(ctx context.Context, api, events, replay net.Listener) error {
	s.eventsAddr, s.replayAddr = endpoint(events), endpoint(replay)
	g, ctx := errgroup.WithContext(ctx)
	hs := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 30 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	g.Go(func() error { s.loop.run(ctx); return nil })
	g.Go(func() error { return s.events.Serve(ctx, events, replay) })
	g.Go(func() error {
		if err := hs.Serve(api); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		// Requests end with ctx; what still has not ended after a moment is cut off.
		grace, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := hs.Shutdown(grace); err != nil {
			return hs.Close()
		}
		return nil
	})
	return g.Wait()
}

// endpoint is what an engine that binds ln announces: every address is a star.
func endpoint(ln net.Listener) string {
	addr, ok := ln.Addr().(*net.TCPAddr)
	if ok && addr.IP.IsUnspecified() {
		return "tcp://*:" + strconv.Itoa(addr.Port)
	}
	return "tcp://" + ln.Addr().String()
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	get := func(path string, h http.HandlerFunc) { mux.HandleFunc(path, method(http.MethodGet, h)) }
	post := func(path string, h http.HandlerFunc) { mux.HandleFunc(path, method(http.MethodPost, h)) }
	ok := func(http.ResponseWriter, *http.Request) {}

	post("/v1/chat/completions", s.chat)
	post("/v1/completions", s.completions)
	post("/tokenize", s.tokenize)
	post("/detokenize", s.detokenize)
	post("/reset_prefix_cache", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]bool{"success": s.loop.reset()})
	})
	get("/v1/models", s.models)
	get("/version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": s.cfg.Version})
	})
	get("/server_info", s.serverInfo)
	get("/metrics", s.metrics)
	get("/load", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]int{"server_load": 0})
	})
	get("/health", ok)
	get("/sim/requests", s.requests)
	get("/sim/stats", s.stats)
	mux.HandleFunc("/ping", ok)
	if s.cfg.Events.Format == kvevents.Maps {
		get("/kv_event_sources", s.eventSources) // unknown to 0.23
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
	})
	index := strconv.Itoa(s.cfg.Index)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Engine", index)
		mux.ServeHTTP(w, r)
	})
}

// adapter finds the served model by name; the zero adapter is the base model.
func (s *Server) adapter(name string) (engine.Adapter, error) {
	known := append([]string{s.cfg.Model}, s.cfg.Aliases...)
	if name == "" || slices.Contains(known, name) {
		return engine.Adapter{}, nil
	}
	for _, a := range s.cfg.Adapters {
		if a.Name == name {
			return a, nil
		}
	}
	return engine.Adapter{}, newError(http.StatusNotFound, "NotFoundError", "model",
		fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", name, strings.Join(known, ", ")))
}

var errNoTokenizer = errors.New("this engine was started without --tokenizer: send token ids, or start it with one")

func (s *Server) encode(text string, special bool) ([]uint32, error) {
	if s.cfg.Tokenizer == nil {
		return nil, errNoTokenizer
	}
	return s.cfg.Tokenizer.Encode(text, special)
}

// promptOf is the token ids of a chat request's body.
func (s *Server) promptOf(body []byte) ([]uint32, error) {
	if s.cfg.Tokenizer == nil {
		return nil, badRequest("messages", "%s", errNoTokenizer)
	}
	tokens, err := s.cfg.Tokenizer.Chat(body)
	if err != nil {
		return nil, badRequest("", "%s", err)
	}
	return tokens, nil
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Model            string          `json:"model"`
		Prompt           *string         `json:"prompt"`
		Messages         json.RawMessage `json:"messages"`
		AddSpecialTokens *bool           `json:"add_special_tokens"`
		Strings          bool            `json:"return_token_strs"`
	}
	body, err := decode(w, r, &req)
	if err == nil {
		_, err = s.adapter(req.Model)
	}
	var tokens []uint32
	switch {
	case err != nil:
	case req.Messages != nil:
		tokens, err = s.promptOf(body)
	case req.Prompt == nil:
		err = invalid("body.prompt", "missing", "Field required")
	default:
		if tokens, err = s.encode(*req.Prompt, req.AddSpecialTokens == nil || *req.AddSpecialTokens); err != nil {
			err = badRequest("prompt", "%s", err)
		}
	}
	if err != nil {
		writeError(w, err)
		return
	}
	var strs []string
	if req.Strings {
		for _, t := range tokens {
			strs = append(strs, s.cfg.Tokenizer.Decode([]uint32{t}))
		}
	}
	writeJSON(w, http.StatusOK, struct {
		Count  int      `json:"count"`
		MaxLen int      `json:"max_model_len"`
		Tokens []uint32 `json:"tokens"`
		Strs   []string `json:"token_strs"`
	}{len(tokens), s.cfg.Engine.MaxModelLen, append([]uint32{}, tokens...), strs})
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Tokens []uint32 `json:"tokens"`
	}
	if _, err := decode(w, r, &req); err != nil {
		writeError(w, err)
		return
	}
	if s.cfg.Tokenizer == nil {
		writeError(w, badRequest("tokens", "%s", errNoTokenizer))
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"prompt": s.cfg.Tokenizer.Decode(req.Tokens)})
}

// requests lists what this engine served, oldest first.
func (s *Server) requests(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	list := append([]served{}, s.served...)
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, list)
}

// stats is the engine's own counters, and whether anybody hears its events.
func (s *Server) stats(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		engine.Stats
		EventBatches     uint64
		EventSubscribers int
	}{s.loop.stats(), s.events.Batches(), s.events.Subscribers()})
}
