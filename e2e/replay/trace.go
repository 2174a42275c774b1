// Package replay sends a recorded request trace as chat completions and
// measures the answers.
//
// The trace has the format of the Mooncake open traces: arrival times, lengths
// and one id per prefix block of 512 tokens, but no text. Text is made from the
// ids: equal ids give equal text, so that prompts share exactly the prefixes
// the recorded ones shared. Everything is a function of the trace and a seed;
// two replays send the same requests in the same order.
package replay

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// BlockTokens is how many prompt tokens one hash id of a trace stands for.
const BlockTokens = 512

// Record is one request of a trace.
type Record struct {
	Timestamp int64   `json:"timestamp"`     // arrival, milliseconds since the start
	Input     int     `json:"input_length"`  // prompt tokens
	Output    int     `json:"output_length"` // generated tokens
	HashIDs   []int64 `json:"hash_ids"`      // one per block of BlockTokens, the last may be part full
}

// ReadTrace reads one JSON object a line, in order of arrival.
func ReadTrace(r io.Reader) ([]Record, error) {
	var records []Record
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var rec Record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			return nil, fmt.Errorf("replay: trace line %d: %w", n, err)
		}
		switch {
		case rec.Input < 1 || rec.Output < 0:
			return nil, fmt.Errorf("replay: trace line %d: lengths %d and %d", n, rec.Input, rec.Output)
		case len(rec.HashIDs) != (rec.Input+BlockTokens-1)/BlockTokens:
			return nil, fmt.Errorf("replay: trace line %d: %d hash ids for %d tokens", n, len(rec.HashIDs), rec.Input)
		case len(records) > 0 && rec.Timestamp < records[len(records)-1].Timestamp:
			return nil, fmt.Errorf("replay: trace line %d arrives before the line above it", n)
		}
		records = append(records, rec)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("replay: trace: %w", err)
	}
	if len(records) == 0 {
		return nil, errors.New("replay: the trace is empty")
	}
	return records, nil
}

// arrivals spreads requests that carry the same timestamp evenly at random up
// to the next one: the traces tick every few seconds, which real clients do
// not. The order of the trace is kept.
func arrivals(records []Record, seed uint64) []time.Duration {
	random := rand.New(rand.NewPCG(seed, 0))
	at := make([]time.Duration, len(records))
	tick := int64(0) // length of the last interval; the last group has no next one
	for from := 0; from < len(records); {
		to := from
		for to < len(records) && records[to].Timestamp == records[from].Timestamp {
			to++
		}
		if to < len(records) {
			tick = records[to].Timestamp - records[from].Timestamp
		}
		for i := from; i < to; i++ {
			at[i] = time.Duration((float64(records[from].Timestamp) + random.Float64()*float64(tick)) * float64(time.Millisecond))
		}
		slices.Sort(at[from:to])
		from = to
	}
	return at
}
