package scheduler

import (
	"fmt"
	"math"
	"time"
)

// Config holds the constants of the cost rule. The zero value of a field means
// its default. None needs tuning to start: load reports correct our own
// bookkeeping. On a chat trace in virtual time a prefill speed wrong by a factor
// of three cost a fifth of the mean time to first token, where without reports
// it cost three times it; the other constants, wrong by two to four, cost a few
// percent.
type Config struct {
	// PrefillSpeed is what one engine computes of a prompt, in tokens per
	// second. Default 8,000: an 8 B model on one current GPU.
	PrefillSpeed float64

	// UncachedWeight multiplies the time for the prompt tokens an endpoint does
	// not hold, without unit. Default 4: prefill also delays everybody who
	// decodes there or arrives next, and a cached prefix saves more later
	// requests than this one. Of 1, 2 and 4 it gave the best time to first
	// token and an end-to-end time within 5 % of the best.
	UncachedWeight float64

	// OutputTokens is the answer length expected of a request, in tokens; its
	// true length is never known. Default 256, about the mean of chat traffic.
	OutputTokens int

	// DecodeStep is how much one more running request lengthens a decode step,
	// in seconds. Default 0.35 ms, as mock engines of other routers assume.
	DecodeStep float64

	// HoldTime is how long an engine keeps the KV blocks of one request, in
	// seconds. It turns missing KV blocks into a wait: an engine that is full
	// frees all its blocks once in that time. Default 10 s: 256 output tokens
	// at 25 tokens per second.
	HoldTime float64

	// UnknownPrompt is the number of uncached prompt tokens assumed where the
	// true one is not known: for a request without tokens and for each request
	// an engine reports as waiting. Default 1,024.
	UnknownPrompt int

	// LoadStale is the age from which a load sample is no longer believed.
	// Default 2 s: ten missed polls. A younger one says more than none does,
	// since our own picks are counted in between.
	LoadStale time.Duration

	// Seed makes ties reproducible. Zero draws one.
	Seed uint64
}

// withDefaults returns c with the zero fields filled in.
func (c Config) withDefaults() Config {
	c.PrefillSpeed = orDefault(c.PrefillSpeed, 8000)
	c.UncachedWeight = orDefault(c.UncachedWeight, 4)
	c.OutputTokens = orDefault(c.OutputTokens, 256)
	c.DecodeStep = orDefault(c.DecodeStep, 0.00035)
	c.HoldTime = orDefault(c.HoldTime, 10)
	c.UnknownPrompt = orDefault(c.UnknownPrompt, 1024)
	c.LoadStale = orDefault(c.LoadStale, 2*time.Second)
	return c
}

func orDefault[T comparable](v, byDefault T) T {
	var zero T
	if v == zero {
		return byDefault
	}
	return v
}

// Validate names the first field that makes no sense.
func (c Config) Validate() error {
	for _, f := range []struct {
		name     string
		value    float64
		min, max float64
		unit     string
	}{
		{"prefill_speed", c.PrefillSpeed, 1, 1e9, "tokens per second"},
		{"uncached_weight", c.UncachedWeight, 1e-3, 1e3, ""},
		{"output_tokens", float64(c.OutputTokens), 1, 1e7, "tokens"},
		{"decode_step", c.DecodeStep, 1e-9, 10, "seconds"},
		{"hold_time", c.HoldTime, 1e-3, 1e5, "seconds"},
		{"unknown_prompt", float64(c.UnknownPrompt), 1, 1e7, "tokens"},
		{"load_stale", c.LoadStale.Seconds(), 1e-3, 3600, "seconds"},
	} {
		switch {
		case f.value == 0: // the default
		case math.IsNaN(f.value) || f.value < f.min || f.value > f.max:
			return fmt.Errorf("scheduler: %s is %v, want %v to %v %s", f.name, f.value, f.min, f.max, f.unit)
		}
	}
	return nil
}
