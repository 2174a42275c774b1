package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/warmroute/warmroute/cmd/enginesim/engine"
)

// The answers below have vLLM 0.32's fields in its order; null stands for what
// a simulated engine never has.

type chatMessage struct {
	Role         string    `json:"role"`
	Content      string    `json:"content"`
	Refusal      *struct{} `json:"refusal"`
	Annotations  *struct{} `json:"annotations"`
	Audio        *struct{} `json:"audio"`
	FunctionCall *struct{} `json:"function_call"`
	Reasoning    *struct{} `json:"reasoning"`
}

type chatChoice struct {
	Index         int         `json:"index"`
	Message       chatMessage `json:"message"`
	Logprobs      *struct{}   `json:"logprobs"`
	FinishReason  string      `json:"finish_reason"`
	StopReason    *struct{}   `json:"stop_reason"`
	TokenIDs      []uint32    `json:"token_ids"`
	RoutedExperts *struct{}   `json:"routed_experts"`
}

type completionChoice struct {
	Index          int       `json:"index"`
	Text           string    `json:"text"`
	Logprobs       *struct{} `json:"logprobs"`
	FinishReason   string    `json:"finish_reason"`
	StopReason     *struct{} `json:"stop_reason"`
	TokenIDs       []uint32  `json:"token_ids"`
	PromptLogprobs *struct{} `json:"prompt_logprobs"`
	PromptTokenIDs []uint32  `json:"prompt_token_ids"`
	RoutedExperts  *struct{} `json:"routed_experts"`
}

type chatAnswer struct {
	ID                string       `json:"id"`
	Object            string       `json:"object"`
	Created           int64        `json:"created"`
	Model             string       `json:"model"`
	Choices           []chatChoice `json:"choices"`
	ServiceTier       *struct{}    `json:"service_tier"`
	SystemFingerprint string       `json:"system_fingerprint"`
	Usage             usage        `json:"usage"`
	PromptLogprobs    *struct{}    `json:"prompt_logprobs"`
	PromptTokenIDs    []uint32     `json:"prompt_token_ids"`
	PromptText        *struct{}    `json:"prompt_text"`
	KVTransferParams  *struct{}    `json:"kv_transfer_params"`
	ECTransferParams  *struct{}    `json:"ec_transfer_params"`
	Metrics           *struct{}    `json:"metrics"`
}

type completionAnswer struct {
	ID                string             `json:"id"`
	Object            string             `json:"object"`
	Created           int64              `json:"created"`
	Model             string             `json:"model"`
	Choices           []completionChoice `json:"choices"`
	ServiceTier       *struct{}          `json:"service_tier"`
	SystemFingerprint string             `json:"system_fingerprint"`
	Usage             usage              `json:"usage"`
	KVTransferParams  *struct{}          `json:"kv_transfer_params"`
	ECTransferParams  *struct{}          `json:"ec_transfer_params"`
	Metrics           *struct{}          `json:"metrics"`
}

func (s *Server) fingerprint() string { return "vllm-" + s.cfg.Version + "-enginesim" }

// onlyRank refuses a data-parallel rank other than the one this engine is.
func onlyRank(r *http.Request) error {
	if rank := r.Header.Get("X-Data-Parallel-Rank"); rank != "" && rank != "0" {
		return badRequest("", "data_parallel_rank %s is out of range [0, 1).", rank)
	}
	return nil
}

// admit checks what both routes check and finds the adapter.
func (s *Server) admit(r *http.Request, req *sampling) (engine.Adapter, error) {
	adapter, err := s.adapter(req.Model)
	if err == nil {
		err = req.validate(s.cfg.Engine.MaxModelLen)
	}
	if err == nil {
		err = onlyRank(r)
	}
	if req.Model == "" {
		req.Model = s.cfg.Model
	}
	return adapter, err
}

// chat serves /v1/chat/completions.
func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	var req struct {
		sampling
		Messages json.RawMessage `json:"messages"`
	}
	body, err := decode(w, r, &req)
	if err == nil && req.Messages == nil {
		err = invalid("body.messages", "missing", "Field required")
	}
	var adapter engine.Adapter
	if err == nil {
		adapter, err = s.admit(r, &req.sampling)
	}
	var prompt []uint32
	if err == nil {
		prompt, err = s.promptOf(body)
	}
	var g *run
	if err == nil {
		g, err = s.submit(&req.sampling, adapter, prompt, 0)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	id := s.requestID("chatcmpl-", g.generation)
	defer s.settle(r, id, req.Model, []*run{g})
	if req.Stream {
		s.streamChat(w, r, &req.sampling, id, g)
		return
	}
	if !s.wait(r, []*run{g}) {
		return
	}
	text, ids := g.text(0, g.max)
	answer := chatAnswer{
		ID: id, Object: "chat.completion", Created: time.Now().Unix(), Model: req.Model,
		Choices: []chatChoice{{
			Message: chatMessage{Role: "assistant", Content: text}, FinishReason: g.finish,
		}},
		SystemFingerprint: s.fingerprint(), Usage: s.usage([]*run{g}, true),
	}
	if req.ReturnTokenIDs {
		answer.Choices[0].TokenIDs, answer.PromptTokenIDs = ids, g.prompts
	}
	writeJSON(w, http.StatusOK, answer)
}

// completions serves /v1/completions.
func (s *Server) completions(w http.ResponseWriter, r *http.Request) {
	var req completionRequest
	_, err := decode(w, r, &req)
	var adapter engine.Adapter
	if err == nil {
		adapter, err = s.admit(r, &req.sampling)
	}
	var prompts [][]uint32
	if err == nil {
		prompts, err = req.prompts(s.encode)
	}
	if err == nil && req.Stream && len(prompts) > 1 {
		err = badRequest("prompt", "enginesim streams one prompt at a time; send %d requests, or stream false", len(prompts))
	}
	var runs []*run
	for _, prompt := range prompts {
		if err != nil {
			break
		}
		var g *run
		if g, err = s.submit(&req.sampling, adapter, prompt, defaultCompletionTokens); err == nil {
			runs = append(runs, g)
		}
	}
	if err != nil {
		for _, g := range runs {
			s.loop.cancel(g.generation)
		}
		writeError(w, err)
		return
	}
	id := s.requestID("cmpl-", runs[0].generation)
	defer s.settle(r, id, req.Model, runs)
	if req.Stream {
		s.streamCompletion(w, r, &req.sampling, id, runs[0])
		return
	}
	if !s.wait(r, runs) {
		return
	}
	answer := completionAnswer{
		ID: id, Object: "text_completion", Created: time.Now().Unix(), Model: req.Model,
		SystemFingerprint: s.fingerprint(), Usage: s.usage(runs, false),
	}
	for i, g := range runs {
		text, ids := g.text(0, g.max)
		c := completionChoice{Index: i, Text: text, FinishReason: g.finish}
		if req.ReturnTokenIDs {
			c.TokenIDs, c.PromptTokenIDs = ids, g.prompts
		}
		answer.Choices = append(answer.Choices, c)
	}
	writeJSON(w, http.StatusOK, answer)
}

// defaultCompletionTokens is the output length of a completion that does not
// say one (OpenAI API).
const defaultCompletionTokens = 16

// sse writes server-sent events.
type sse struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf bytes.Buffer
}

func newSSE(w http.ResponseWriter) *sse {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	return &sse{w: w, rc: http.NewResponseController(w)}
}

// put adds one event; it is sent by the next flush.
func (e *sse) put(v any) {
	e.buf.WriteString("data: ")
	enc := json.NewEncoder(&e.buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("server: chunk of plain structs: " + err.Error())
	}
	e.buf.WriteByte('\n')
}

// flush sends what was put. A client that is gone is noticed by its context.
func (e *sse) flush() {
	_, _ = e.w.Write(e.buf.Bytes())
	_ = e.rc.Flush()
	e.buf.Reset()
}

func (e *sse) end() {
	e.buf.WriteString("data: [DONE]\n\n")
	e.flush()
}

type chunkHead struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
}

type usageChunk struct {
	chunkHead
	Choices           []struct{}   `json:"choices"`
	Usage             *streamUsage `json:"usage"`
	SystemFingerprint string       `json:"system_fingerprint"`
}

type chatDelta struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

type chatChunkChoice struct {
	Index        int       `json:"index"`
	Delta        chatDelta `json:"delta"`
	Logprobs     *struct{} `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
	// StopReason and TokenIDs appear only in some chunks: raw, "" leaves them out.
	StopReason json.RawMessage `json:"stop_reason,omitempty"`
	TokenIDs   json.RawMessage `json:"token_ids,omitempty"`
}

type chatChunk struct {
	chunkHead
	Choices           []chatChunkChoice `json:"choices"`
	Usage             *streamUsage      `json:"usage,omitempty"`
	PromptTokenIDs    json.RawMessage   `json:"prompt_token_ids,omitempty"`
	PromptText        json.RawMessage   `json:"prompt_text,omitempty"`
	SystemFingerprint string            `json:"system_fingerprint,omitempty"`
}

var null = json.RawMessage("null")

// idList is token ids as JSON, or null when they were not asked for.
func idList(wanted bool, ids []uint32) json.RawMessage {
	if !wanted {
		return null
	}
	b, err := json.Marshal(ids)
	if err != nil {
		panic("server: list of integers: " + err.Error())
	}
	return b
}

func (s *Server) streamChat(w http.ResponseWriter, r *http.Request, req *sampling, id string, g *run) {
	head := chunkHead{ID: id, Object: "chat.completion.chunk", Created: time.Now().Unix(), Model: req.Model}
	out := newSSE(w)
	// vLLM sends the status line at once and the role with the first token.
	_ = out.rc.Flush()
	opened := false
	running := func() *streamUsage {
		if !req.StreamOptions.ContinuousUsage {
			return nil
		}
		u := s.usage([]*run{g}, true)
		u.PromptDetails = nil
		return u.stream()
	}
	ended := s.follow(r, g, func(from, to int, done bool) {
		if !opened {
			opened = true
			first := chatChunk{
				chunkHead: head, Choices: []chatChunkChoice{{Delta: chatDelta{Role: "assistant"}}},
				PromptTokenIDs: idList(req.ReturnTokenIDs, g.prompts), PromptText: null,
			}
			if u := running(); u != nil {
				u.TotalTokens, u.CompletionTokens = u.PromptTokens, 0
				first.Usage = u
			}
			out.put(first)
		}
		text, ids := g.text(from, to)
		c := chatChunkChoice{Delta: chatDelta{Content: text}, TokenIDs: idList(req.ReturnTokenIDs, ids)}
		chunk := chatChunk{chunkHead: head, Usage: running()}
		if done {
			c.FinishReason, c.StopReason = &g.finish, null
			if !req.StreamOptions.IncludeUsage {
				chunk.SystemFingerprint = s.fingerprint()
			}
		}
		chunk.Choices = []chatChunkChoice{c}
		out.put(chunk)
		if !done {
			out.flush()
		}
	})
	s.finishStream(out, head, req, g, ended, true)
}

type completionChunkChoice struct {
	Index          int             `json:"index"`
	Text           string          `json:"text"`
	Logprobs       *struct{}       `json:"logprobs"`
	FinishReason   *string         `json:"finish_reason"`
	StopReason     *struct{}       `json:"stop_reason"`
	PromptTokenIDs json.RawMessage `json:"prompt_token_ids"`
	TokenIDs       json.RawMessage `json:"token_ids"`
}

type completionChunk struct {
	chunkHead
	Choices           []completionChunkChoice `json:"choices"`
	Usage             *streamUsage            `json:"usage,omitempty"`
	SystemFingerprint string                  `json:"system_fingerprint,omitempty"`
}

func (s *Server) streamCompletion(w http.ResponseWriter, r *http.Request, req *sampling, id string, g *run) {
	head := chunkHead{ID: id, Object: "text_completion", Created: time.Now().Unix(), Model: req.Model}
	out := newSSE(w)
	_ = out.rc.Flush()
	ended := s.follow(r, g, func(from, to int, done bool) {
		text, ids := g.text(from, to)
		c := completionChunkChoice{
			Text: text, TokenIDs: idList(req.ReturnTokenIDs, ids),
			PromptTokenIDs: idList(req.ReturnTokenIDs && from == 0, g.prompts),
		}
		chunk := completionChunk{chunkHead: head}
		if req.StreamOptions.ContinuousUsage {
			u := s.usage([]*run{g}, false)
			u.PromptDetails = nil
			chunk.Usage = u.stream()
		}
		if done {
			c.FinishReason = &g.finish
			if !req.StreamOptions.IncludeUsage {
				chunk.SystemFingerprint = s.fingerprint()
			}
		}
		chunk.Choices = []completionChunkChoice{c}
		out.put(chunk)
		if !done {
			out.flush()
		}
	})
	s.finishStream(out, head, req, g, ended, false)
}

// finishStream sends the usage, if asked for, and the end mark.
func (s *Server) finishStream(out *sse, head chunkHead, req *sampling, g *run, ended, created bool) {
	if !ended {
		return
	}
	if req.StreamOptions.IncludeUsage {
		u := s.usage([]*run{g}, created)
		out.put(usageChunk{chunkHead: head, Choices: []struct{}{}, Usage: u.stream(), SystemFingerprint: s.fingerprint()})
	}
	out.end()
}
