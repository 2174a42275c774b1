package replay

import (
	"slices"
	"time"
)

// Summary describes all answers of one replay. Times are simulated.
type Summary struct {
	Requests   int
	Errors     int
	FirstError error

	Prompt, Cached, Completed int // tokens sent, found in engines' caches, generated

	TTFT, E2E Times

	// Busiest engine over mean engine, of those that answered: 1 is even.
	RequestBalance float64 // by requests
	ComputeBalance float64 // by prompt tokens computed, that is not found in a cache
	Engines        int     // engines that answered
}

// Times are the mean and two percentiles of a duration.
type Times struct{ Mean, P50, P99 time.Duration }

// CachedRatio is the share of prompt tokens that came from a cache, 0 to 1.
func (s *Summary) CachedRatio() float64 {
	return float64(s.Cached) / float64(max(1, s.Prompt))
}

// Summarize takes the results of a replay against engines whose clock runs scale
// times as fast as the wall's. A failed request counts as an error and in
// nothing else.
func Summarize(results []Result, scale float64) Summary {
	s := Summary{Requests: len(results)}
	requests, computed := map[string]int{}, map[string]int{}
	var ttft, e2e []time.Duration
	for _, r := range results {
		if r.Err != nil {
			s.Errors++
			if s.FirstError == nil {
				s.FirstError = r.Err
			}
			continue
		}
		s.Prompt += r.Prompt
		s.Cached += r.Cached
		s.Completed += r.Completed
		requests[r.Engine]++
		computed[r.Engine] += r.Prompt - r.Cached
		ttft = append(ttft, r.TTFT)
		e2e = append(e2e, r.E2E)
	}
	s.TTFT, s.E2E = times(ttft, scale), times(e2e, scale)
	s.RequestBalance, s.ComputeBalance, s.Engines = balance(requests), balance(computed), len(requests)
	return s
}

func times(d []time.Duration, scale float64) Times {
	if len(d) == 0 {
		return Times{}
	}
	slices.Sort(d)
	sum := 0.0
	for _, v := range d {
		sum += float64(v)
	}
	// The nearest rank: the smallest value that percent of all values do not exceed.
	rank := func(percent int) time.Duration {
		return time.Duration(float64(d[(len(d)*percent+99)/100-1]) * scale)
	}
	return Times{Mean: time.Duration(sum / float64(len(d)) * scale), P50: rank(50), P99: rank(99)}
}

// balance is the largest value over the mean one.
func balance(of map[string]int) float64 {
	sum, most := 0, 0
	for _, n := range of {
		sum += n
		most = max(most, n)
	}
	if sum == 0 {
		return 0
	}
	return float64(most) * float64(len(of)) / float64(sum)
}
