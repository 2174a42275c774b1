package server

import (
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/warmroute/warmroute/cmd/enginesim/engine"
)

// run is one prompt of a request in the engine, and the words it answers with.
type run struct {
	*generation
	answer  answer
	max     int
	finish  string // why it ends: "length" or "stop"
	prompts []uint32
}

// submit takes one prompt.
func (s *Server) submit(req *sampling, adapter engine.Adapter, prompt []uint32, fallback int) (*run, error) {
	limit := s.cfg.Engine.MaxModelLen
	if len(prompt) == 0 {
		return nil, badRequest("prompt", "The decoder prompt cannot be empty")
	}
	if len(prompt) > limit {
		return nil, badRequest("input_tokens", "This model's maximum context length is %d tokens. However, your prompt contains at least %d input tokens, "+
			"which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=%d)",
			limit, limit+1, limit+1)
	}
	r := &run{answer: newAnswer(&s.cfg.Vocabulary, s.cfg.Seed, prompt), finish: "length", prompts: prompt}
	r.max = req.length()
	if r.max == 0 {
		r.max = min(fallback, limit-len(prompt))
		if fallback == 0 {
			r.max, r.finish = r.answer.length(), "stop"
			if room := limit - len(prompt); r.max > room {
				r.max, r.finish = room, "length"
			}
		}
	}
	if r.max < 1 || len(prompt)+r.max > limit {
		return nil, badRequest("input_tokens", "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains at least %d input tokens, "+
			"for a total of at least %d tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=%d)",
			limit, r.max, len(prompt), len(prompt)+r.max, len(prompt))
	}
	er := &engine.Request{Tokens: prompt, MaxTokens: r.max, Adapter: adapter, Output: func(i int) uint32 { return r.answer.word(i).ID }}
	if req.CacheSalt != nil {
		er.Salt = *req.CacheSalt
	}
	var err error
	if r.generation, err = s.loop.submit(er); err != nil {
		return nil, badRequest("input_tokens", "%s", err)
	}
	return r, nil
}

// text is the answer's words from..to, token ids beside it.
func (r *run) text(from, to int) (text string, ids []uint32) {
	var b strings.Builder
	for i := from; i < to; i++ {
		w := r.answer.word(i)
		b.WriteString(w.Text)
		ids = append(ids, w.ID)
	}
	return b.String(), ids
}

// usage is what the runs took together. created is asked for by the chat route only.
func (s *Server) usage(runs []*run, created bool) usage {
	u := usage{PromptDetails: &promptDetails{}}
	fresh := 0
	for _, r := range runs {
		tokens, cached, _ := r.progress()
		u.PromptTokens += r.prompt
		u.CompletionTokens += tokens
		u.PromptDetails.Cached += cached
		fresh += r.prompt/s.cfg.Engine.BlockSize*s.cfg.Engine.BlockSize - cached
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	if created {
		u.PromptDetails.Created = &fresh
	}
	return u
}

// wait returns when all runs have ended, or false when the client is gone.
func (s *Server) wait(r *http.Request, runs []*run) bool {
	for _, g := range runs {
		select {
		case <-g.done:
		case <-r.Context().Done():
			return false
		}
	}
	return true
}

// settle records how the runs ended, and drops from the engine what nobody waits for.
func (s *Server) settle(r *http.Request, id, model string, runs []*run) {
	for _, g := range runs {
		_, _, done := g.progress()
		if !done {
			s.loop.cancel(g.generation)
		}
		g.mu.Lock()
		rec := served{
			ID: id, Path: r.URL.Path, Model: model, PromptTokens: g.prompt, CachedTokens: g.cached, OutputTokens: g.tokens,
			Aborted: !done, Arrived: g.arrived.Seconds(), FirstToken: g.firstAt.Seconds(), End: g.endAt.Seconds(),
			Decision: r.Header.Get("X-Warmroute-Decision"),
		}
		g.mu.Unlock()
		s.record(rec, g.finish)
	}
}

func (s *Server) record(rec served, finish string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case rec.Aborted:
		s.outcomes.abort++
	case finish == "stop":
		s.outcomes.stop++
	default:
		s.outcomes.length++
	}
	if !rec.Aborted {
		s.outcomes.ttft.observe(rec.FirstToken - rec.Arrived)
		s.outcomes.e2e.observe(rec.End - rec.Arrived)
	}
	if s.cfg.Served <= 0 {
		return
	}
	if len(s.served) >= s.cfg.Served {
		s.served = append(s.served[:0], s.served[1:]...)
	}
	s.served = append(s.served, rec)
}

// follow calls send with the words that have come since its last call, until
// the run ends or the client is gone. The first token is sent at once; later
// ones wait for StreamInterval and share a chunk.
func (s *Server) follow(r *http.Request, g *run, send func(from, to int, done bool)) bool {
	select {
	case <-g.first:
	case <-r.Context().Done():
		return false
	}
	sent := 0
	timer := time.NewTimer(s.cfg.StreamInterval)
	defer timer.Stop()
	for {
		tokens, _, done := g.progress()
		if tokens > sent {
			send(sent, tokens, done)
			sent = tokens
		}
		if done {
			return true
		}
		timer.Reset(max(s.cfg.StreamInterval, minSleep))
		select {
		case <-g.done:
		case <-timer.C:
		case <-r.Context().Done():
			return false
		}
	}
}

// requestID is unique on this engine and looks like vLLM's.
func (s *Server) requestID(prefix string, g *generation) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], mix(uint64(s.start.UnixNano())^uint64(s.cfg.Index)<<48^g.id))
	return prefix + hex.EncodeToString(b[:])
}
