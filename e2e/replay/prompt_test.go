package replay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func testConfig() Config {
	cfg := Config{Model: "m", Shrink: 8, Rate: 2, Scale: 10, Seed: 1}
	for i := range 400 {
		cfg.Words = append(cfg.Words, fmt.Sprintf("w%d", i))
	}
	return cfg
}

func words(m message) []string { return strings.Fields(m.Content) }

func TestEqualLeadingIdsAreEqualLeadingText(t *testing.T) {
	cfg := testConfig()
	short := chat(&Record{Input: 1100, Output: 20, HashIDs: []int64{0, 7, 8}}, &cfg)
	long := chat(&Record{Input: 2000, Output: 20, HashIDs: []int64{0, 7, 9, 10}}, &cfg)
	if short.Messages[0] != long.Messages[0] || short.Messages[0].Role != "system" {
		t.Errorf("the system prompts differ: %q and %q", short.Messages[0], long.Messages[0])
	}
	a, b := words(short.Messages[1]), words(long.Messages[1])
	if diff := cmp.Diff(a[:64], b[:64]); diff != "" {
		t.Errorf("block 7 differs: %s", diff)
	}
	if a[64] == b[64] && a[65] == b[65] {
		t.Error("blocks 8 and 9 begin alike")
	}
	if got, want := len(words(short.Messages[0]))+len(a), 138; got != want {
		t.Errorf("%d words stand for 1,100 tokens, want %d", got, want)
	}
	if short.MaxTokens != 3 {
		t.Errorf("max_tokens %d, want 3", short.MaxTokens)
	}
}

func TestARequestOfOneBlockIsTheUsers(t *testing.T) {
	cfg := testConfig()
	got := chat(&Record{Input: 9, HashIDs: []int64{5}}, &cfg)
	if len(got.Messages) != 1 || got.Messages[0].Role != "user" || len(words(got.Messages[0])) != 2 || got.MaxTokens != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestPlan(t *testing.T) {
	trace := []Record{{0, 512, 8, []int64{0}}, {4000, 512, 8, []int64{1}}, {8000, 512, 8, []int64{1}}}
	calls, err := Plan(trace, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	// Rate 2 halves and scale 10 divides the 4 to 8 seconds of the trace.
	if at := calls[1].At; at < 200*time.Millisecond || at > 400*time.Millisecond {
		t.Errorf("the second request leaves at %v", at)
	}
	var body map[string]any
	if err := json.Unmarshal(calls[0].Body, &body); err != nil {
		t.Fatal(err)
	}
	delete(body, "messages")
	want := map[string]any{
		"model": "m", "max_tokens": 1.0, "ignore_eos": true, "stream": true,
		"stream_options": map[string]any{"include_usage": true},
	}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Error(diff)
	}
}

func TestPlanRejects(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
	}{
		{"a shrink that cuts blocks apart", func(c *Config) { c.Shrink = 7 }},
		{"no load", func(c *Config) { c.Rate = 0 }},
		{"a clock that stands still", func(c *Config) { c.Scale = 0 }},
		{"no vocabulary", func(c *Config) { c.Words = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig()
			c.change(&cfg)
			if _, err := Plan([]Record{{0, 1, 1, []int64{1}}}, cfg); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestReadWords(t *testing.T) {
	dir := t.TempDir()
	vocab := map[string]int{"Ġ": 0, "Ġa": 1, "the": 2, "ĠThe": 3, "Ġit's": 4}
	want := make([]string, 0, minWords)
	for i := range minWords {
		word := "b" + string(rune('a'+i/16)) + string(rune('a'+i%16))
		vocab["Ġ"+word] = 10 + i
		want = append(want, word)
	}
	write := func() {
		t.Helper()
		text, err := json.Marshal(map[string]any{"model": map[string]any{"vocab": vocab}})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "tokenizer.json"), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write()
	got, err := ReadWords(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	delete(vocab, "Ġ"+want[0])
	write()
	if _, err := ReadWords(dir); err == nil {
		t.Error("a vocabulary that is too small is accepted")
	}
}
