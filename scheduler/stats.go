package scheduler

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// maxModels bounds the model names that picks are counted under. Names come
// from the engines, never from requests, so that only an unusual fleet
// reaches it; the rest is counted as otherModels.
const (
	maxModels   = 256
	otherModels = "other"
)

// reasons lists every reason, in the order counters keep them.
var reasons = [...]Reason{
	ReasonPrefix, ReasonBalanced, ReasonNoOverlap, ReasonUntokenized, ReasonNoIndex,
	ReasonNoLoad, ReasonSingle, ReasonSubset, ReasonUnserved, ReasonBodyless,
}

// Stats are totals since the start, except for the endpoint counts.
type Stats struct {
	Endpoints int // known
	Up        int // of those, up

	Models []ModelStats // by name

	NoneKnown    uint64 // picks that failed because there are no endpoints
	NoneUp       uint64 // because none is up
	NoneServes   uint64 // because none that is up serves the model
	NoneInSubset uint64 // because the subset names none that serves it
}

// ModelStats counts the picks for one model or adapter.
type ModelStats struct {
	Model           string // empty when the request named none and no endpoint has said what it serves
	Picks           []ReasonCount
	PromptTokens    uint64 // tokens of the prompts placed
	PredictedTokens uint64 // of those, tokens the chosen endpoint held
}

// ReasonCount is the number of picks with one reason.
type ReasonCount struct {
	Reason Reason
	Count  uint64
}

// counters is what Pick counts.
type counters struct {
	models atomic.Pointer[map[string]*modelCounters] // replaced under mu to add one

	noneKnown, noneUp, noneServes, noneInSubset atomic.Uint64

	mu sync.Mutex
}

type modelCounters struct {
	picks             [len(reasons)]atomic.Uint64
	prompt, predicted atomic.Uint64
}

func (c *counters) count(model string, d Decision) {
	m := c.model(model)
	m.picks[slices.Index(reasons[:], d.Reason)].Add(1)
	m.prompt.Add(uint64(d.Prompt))
	m.predicted.Add(uint64(d.Matched))
}

// model returns the counters of a model, made when it is new.
func (c *counters) model(name string) *modelCounters {
	if all := c.models.Load(); all != nil {
		if m := (*all)[name]; m != nil {
			return m
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[string]*modelCounters{}
	if all := c.models.Load(); all != nil {
		maps.Copy(next, *all)
	}
	if len(next) >= maxModels && next[name] == nil {
		name = otherModels
	}
	if next[name] == nil {
		next[name] = &modelCounters{}
		c.models.Store(&next)
	}
	return next[name]
}

// Stats returns what was counted so far.
func (s *Scheduler) Stats() Stats {
	st := Stats{
		NoneKnown:    s.stats.noneKnown.Load(),
		NoneUp:       s.stats.noneUp.Load(),
		NoneServes:   s.stats.noneServes.Load(),
		NoneInSubset: s.stats.noneInSubset.Load(),
	}
	for _, e := range s.pool.Snapshot() {
		st.Endpoints++
		if e.Up {
			st.Up++
		}
	}
	all := s.stats.models.Load()
	if all == nil {
		return st
	}
	for name, m := range *all {
		ms := ModelStats{Model: name, PromptTokens: m.prompt.Load(), PredictedTokens: m.predicted.Load()}
		for i := range m.picks {
			if n := m.picks[i].Load(); n > 0 {
				ms.Picks = append(ms.Picks, ReasonCount{Reason: reasons[i], Count: n})
			}
		}
		st.Models = append(st.Models, ms)
	}
	slices.SortFunc(st.Models, func(a, b ModelStats) int { return cmp.Compare(a.Model, b.Model) })
	return st
}
