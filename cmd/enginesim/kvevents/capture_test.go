package kvevents

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"github.com/warmroute/warmroute/cmd/enginesim/engine"
)

// line is one line of a capture of a real vLLM; testdata/README.md says which kinds exist.
type line struct {
	Kind  string    `json:"kind"`
	Note  string    `json:"note"`
	Path  string    `json:"path"`
	Frame [3]string `json:"frame"`
	Body  struct {
		Model     string `json:"model"`
		MaxTokens int    `json:"max_tokens"`
		Salt      string `json:"cache_salt"`
	} `json:"body"`
	Prompt []uint32 `json:"prompt_token_ids"`
	Output []uint32 `json:"output_token_ids"`
	Cached *int     `json:"cached_tokens"`
}

func readCapture(t *testing.T, name string) []line {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []line
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var l line
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestModelRepeatsCaptures submits to the model what was sent to a real vLLM
// (40 blocks of 32 tokens, PYTHONHASHSEED 0) and wants the same bytes on the
// wire and the same cached tokens back.
func TestModelRepeatsCaptures(t *testing.T) {
	cases := []struct {
		name   string
		format Format
		// bursts gives, by note, which requests that were in flight together arrived
		// for which step, in order. Captures list them by number; the recorded
		// events show when they came.
		bursts  map[string][][]int
		without string // a model whose requests and frames are left out
	}{
		{name: "first-shared"},
		{name: "decode"},
		{name: "eviction"},
		{name: "duplicates", bursts: map[string][][]int{"same 200-token prompt three times at once": {{1, 0, 2}}}},
		{name: "random-walk", bursts: map[string][][]int{"burst": {{3}, {1, 2, 0, 4}}}},
		{name: "reset"},
		{name: "reset-delayed"},
		{name: "restart"},
		// The adapter's path is part of its hashes and is not in the capture.
		{name: "salt-lora", without: "adapter-a"},
		{name: "v0.23-arrays", format: Arrays},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			replayCapture(t, without(readCapture(t, c.name), c.without), c.format, c.bursts)
		})
	}
}

func newEngine(t *testing.T, f Format) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Config{
		BlockSize: 32, Blocks: 40, MaxModelLen: 1024, MaxRunning: 64, TokenBudget: 2048,
		PrefillRate: 8000, StepBase: time.Millisecond, HashSeed: "0", V023: f == Arrays,
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// without leaves out the requests to one model, those that were refused, and the frames they caused.
func without(lines []line, model string) []line {
	var kept []line
	drop := false
	for _, l := range lines {
		if l.Kind != "frame" {
			drop = l.Kind == "request" && (len(l.Prompt) == 0 || l.Body.Model == model)
		}
		if !drop {
			kept = append(kept, l)
		}
	}
	return kept
}

func replayCapture(t *testing.T, lines []line, f Format, bursts map[string][][]int) {
	t.Helper()
	var want, got []string
	for _, l := range lines {
		if l.Kind == "frame" {
			want = append(want, describe(t, unhex(t, l.Frame[2])))
		}
	}
	cached := playCapture(t, lines, f, bursts, func(events []engine.Event) {
		got = append(got, describe(t, AppendBatch(nil, f, 0, 0, events)))
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-vLLM +model):\n%s", diff)
	}
	for i, l := range lines {
		if l.Kind == "request" && l.Cached != nil && cached[uint64(i)] != *l.Cached {
			t.Errorf("%q: got %d cached tokens, want %d", l.Note, cached[uint64(i)], *l.Cached)
		}
	}
}

// playCapture does to the model what was done to vLLM. It returns the cached
// tokens by line.
func playCapture(t *testing.T, lines []line, f Format, bursts map[string][][]int, batch func([]engine.Event)) map[uint64]int {
	t.Helper()
	e := newEngine(t, f)
	cached := map[uint64]int{}
	step := func() bool {
		if _, ok := e.Next(); !ok {
			return false
		}
		out := e.Step()
		for _, u := range out.Updates {
			cached[u.ID] = u.Cached
		}
		if len(out.Events) > 0 {
			batch(out.Events)
		}
		return true
	}
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		switch {
		case l.Kind == "control" && l.Path == "/reset_prefix_cache":
			if !e.Reset() {
				t.Fatalf("line %d: the cache was not reset", i)
			}
		case l.Kind == "control" && strings.Contains(l.Note, "restarted"):
			e = newEngine(t, f)
		case l.Kind == "request":
			steps := [][]int{{0}}
			if note, _, ok := strings.Cut(l.Note, " ("); ok && bursts[note] != nil {
				steps = bursts[note]
			}
			first := i
			for _, arrivals := range steps {
				now, _ := e.Next()
				for _, k := range arrivals {
					i = max(i, first+k)
					submit(t, e, now, first+k, &lines[first+k])
				}
				step()
			}
			for step() {
			}
		}
	}
	return cached
}

func submit(t *testing.T, e *engine.Engine, now time.Duration, id int, l *line) {
	t.Helper()
	r := &engine.Request{
		ID: uint64(id), Tokens: l.Prompt, MaxTokens: l.Body.MaxTokens, Salt: l.Body.Salt,
		Output: func(i int) uint32 { return l.Output[i] },
	}
	if strings.HasPrefix(l.Body.Model, "adapter") {
		r.Adapter = engine.Adapter{ID: 1, Name: l.Body.Model}
	}
	err := e.Submit(now, r)
	if err != nil {
		t.Fatal(err)
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// describe is a batch as text: its JSON for reading, its bytes without the time for comparing.
func describe(t *testing.T, payload []byte) string {
	t.Helper()
	_, rest, err := msgp.ReadArrayHeaderBytes(payload)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, err = msgp.ReadFloat64Bytes(rest)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if _, err := msgp.UnmarshalAsJSON(&text, rest); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %x", text.String(), rest)
}
