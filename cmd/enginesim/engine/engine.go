// Package engine models one vLLM-like inference engine without a clock.
//
// It keeps a real paged KV cache (block hashes, reference counts, prefix reuse,
// LRU eviction), a first-come waiting queue, chunked prefill under a token
// budget, continuous batching and preemption, and says which KV events each
// step causes. The caller owns time: Next says when something happens, Step
// makes it happen, so the same model runs in scaled wall time and in virtual
// time. An Engine is used by one goroutine at a time and does no I/O.
//
// Left out: attention cost grows with nothing but batch size and tokens, and a
// step's results are known at its end (no asynchronous scheduling).
package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Config describes one engine. Times are simulated.
type Config struct {
	BlockSize   int // tokens per block
	Blocks      int // physical blocks, the null block included: Blocks-1 can be used
	MaxModelLen int // tokens of prompt and output together
	MaxRunning  int // requests in one batch (vLLM: max_num_seqs)
	TokenBudget int // tokens computed in one step (vLLM: max_num_batched_tokens)

	PrefillRate float64       // prompt tokens computed per second
	StepBase    time.Duration // what every step takes
	StepPerSeq  time.Duration // what each decoding request adds to its step

	HashSeed string // PYTHONHASHSEED of the engine; "" means DefaultHashSeed
	// V023 behaves as vLLM 0.23 where 0.32 differs: extra keys are hashed untagged
	// and without the adapter's path (until 0.31), and freed blocks that hold
	// nothing reusable wait their turn at the tail of the free queue.
	V023 bool
}

func (c *Config) validate() error {
	switch {
	case c.BlockSize < 1:
		return fmt.Errorf("engine: block size %d, want at least 1", c.BlockSize)
	case c.Blocks < 2:
		return fmt.Errorf("engine: %d blocks, want at least 2: one is the null block", c.Blocks)
	case c.MaxModelLen < 2:
		return fmt.Errorf("engine: maximum model length %d, want at least 2", c.MaxModelLen)
	case c.MaxRunning < 1 || c.TokenBudget < 1:
		return fmt.Errorf("engine: %d running requests and a budget of %d tokens, want at least 1", c.MaxRunning, c.TokenBudget)
	case c.PrefillRate <= 0:
		return fmt.Errorf("engine: prefill rate %g tokens/s, want more than 0", c.PrefillRate)
	case c.StepBase < 0 || c.StepPerSeq < 0:
		return errors.New("engine: negative step time")
	}
	return nil
}

// Request is one sequence to generate. The engine owns it once submitted.
type Request struct {
	ID        uint64 // chosen by the caller, unique among live requests
	Tokens    []uint32
	MaxTokens int // output tokens; generation always runs to this length
	Adapter   Adapter
	Salt      string // cache_salt
	// Output names the i-th generated token.
	Output func(i int) uint32

	arrived   time.Duration
	prompt    int // len(Tokens) as submitted
	hashes    []Hash
	blocks    []*block
	stored    int // leading blocks that are in the cache
	computed  int // tokens whose KV is in blocks
	scheduled int // tokens of the step under way
	cached    int // prompt tokens found in the cache at admission; -1 before it
}

// Update is what a step did for one request.
type Update struct {
	ID      uint64
	Token   uint32        // the token generated
	Index   int           // its place in the output, from 0
	Done    bool          // it was the last one
	Cached  int           // prompt tokens that came from the cache
	Arrived time.Duration // when the request was submitted
}

// Output is what one step did.
type Output struct {
	At      time.Duration
	Updates []Update
	Events  []Event
}

// Stats are the engine's gauges and counters.
type Stats struct {
	Running       int
	Waiting       int
	UsedBlocks    int
	UsableBlocks  int
	CachedBlocks  int // distinct hashes that can be found
	QueriedTokens uint64
	HitTokens     uint64
	PromptTokens  uint64 // of admitted requests, cached ones included
	OutputTokens  uint64
	Preemptions   uint64
	Steps         uint64
	Finished      uint64
	Aborted       uint64
}

// KVUsage is the share of usable blocks that requests hold, 0 to 1. Blocks that
// are cached but referenced by nobody count as free, as in vLLM.
func (s Stats) KVUsage() float64 { return float64(s.UsedBlocks) / float64(s.UsableBlocks) }

// Engine is one simulated engine.
type Engine struct {
	cfg     Config
	pool    *pool
	hash    *hasher
	waiting []*Request
	running []*Request
	busy    bool          // a step is under way, until at
	at      time.Duration // when the next thing happens, if anything can
	stats   Stats
}

// New returns an idle engine with an empty cache.
func New(cfg Config) (*Engine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.HashSeed == "" {
		cfg.HashSeed = DefaultHashSeed
	}
	h, err := newHasher(cfg.HashSeed)
	if err != nil {
		return nil, fmt.Errorf("engine: hash seed: %w", err)
	}
	return &Engine{cfg: cfg, pool: newPool(cfg.Blocks, cfg.V023), hash: h}, nil
}

// Submit queues r at time now, which is never earlier than the last step.
func (e *Engine) Submit(now time.Duration, r *Request) error {
	total := len(r.Tokens) + r.MaxTokens
	switch {
	case len(r.Tokens) == 0 || r.MaxTokens < 1 || r.Output == nil:
		return errors.New("engine: a request needs a prompt, a positive output length and an output")
	case total > e.cfg.MaxModelLen:
		return fmt.Errorf("engine: %d tokens of prompt and output, more than the model length %d", total, e.cfg.MaxModelLen)
	case (total-1+e.cfg.BlockSize-1)/e.cfg.BlockSize > e.pool.usable():
		// The last token is never computed, hence total-1.
		return fmt.Errorf("engine: %d tokens do not fit %d blocks of %d tokens", total, e.pool.usable(), e.cfg.BlockSize)
	}
	r.arrived, r.prompt, r.cached = now, len(r.Tokens), -1
	// The engine appends output tokens; never into the caller's array.
	r.Tokens = slices.Clip(r.Tokens)
	if _, working := e.Next(); !working {
		e.at = now
	}
	e.waiting = append(e.waiting, r)
	return nil
}

// Cancel drops a request that the client gave up. It reports whether it was live.
func (e *Engine) Cancel(id uint64) bool {
	for i, r := range e.waiting {
		if r.ID == id {
			e.waiting = append(e.waiting[:i], e.waiting[i+1:]...)
			e.stats.Aborted++
			return true
		}
	}
	for i, r := range e.running {
		if r.ID == id {
			e.running = append(e.running[:i], e.running[i+1:]...)
			e.pool.drop(r.blocks)
			e.stats.Aborted++
			return true
		}
	}
	return false
}

// Reset empties the prefix cache and reports whether it did: like vLLM it
// refuses while a block is in use. The event comes with the next step's events.
func (e *Engine) Reset() bool { return e.pool.clear() }

// Next says when Step has something to do. ok is false for an idle engine.
func (e *Engine) Next() (at time.Duration, ok bool) {
	return e.at, e.busy || len(e.waiting) > 0 || len(e.running) > 0
}

// Step moves the engine to Next: it ends the step under way, if any, and begins
// the next one, if there is work. An idle engine's Step does nothing.
func (e *Engine) Step() Output {
	out := Output{At: e.at}
	if e.busy {
		e.busy = false
		e.finish(&out)
		out.Events = e.pool.takeEvents()
	}
	if len(e.waiting) > 0 || len(e.running) > 0 {
		e.at += e.schedule()
		e.busy = true
		e.stats.Steps++
	}
	return out
}

// Stats returns a copy of the gauges and counters.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Running, s.Waiting = len(e.running), len(e.waiting)
	s.UsableBlocks = e.pool.usable()
	s.UsedBlocks = s.UsableBlocks - e.pool.nfree
	s.CachedBlocks = len(e.pool.cached)
	return s
}
