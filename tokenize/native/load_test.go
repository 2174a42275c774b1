package native

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// withSections is the tiny tokenizer with some top-level sections replaced.
func withSections(t *testing.T, sections map[string]any) []byte {
	t.Helper()
	data, err := os.ReadFile(tiny)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	maps.Copy(doc, sections)
	data, err = json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestLoadIgnoresTruncationAndPadding(t *testing.T) {
	truncation := map[string]any{"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
	padding := map[string]any{
		"strategy": map[string]any{"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": nil,
		"pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>",
	}
	tests := []struct {
		name     string
		sections map[string]any
	}{
		{"truncation", map[string]any{"truncation": truncation}},
		{"padding", map[string]any{"padding": padding}},
		{"both", map[string]any{"truncation": truncation, "padding": padding}},
	}
	const text = "a text of rather more than three tokens"
	want, err := load(t, tiny).Append(context.Background(), nil, text, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, err := open(withSections(t, tt.sections))
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			got, err := e.Append(context.Background(), nil, text, true)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("ids (-got +want):\n%s", diff)
			}
		})
	}
}

func TestUnboundedChangesNothingElse(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"neither section", `{"version": "1.0", "model": {"truncation": 1}}`, `{"version": "1.0", "model": {"truncation": 1}}`},
		{"both null already", `{"truncation":null,"padding":null}`, `{"truncation":null,"padding":null}`},
		{"an object each", "{\n \"truncation\": {\"max_length\": [1]},\n \"x\": 1.0,\n \"padding\" : {} }", "{\n \"truncation\": null,\n \"x\": 1.0,\n \"padding\" : null }"},
		{"a section given twice", `{"padding":{"a":1},"padding":2}`, `{"padding":null,"padding":null}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := unbounded([]byte(tt.in))
			if err != nil || string(got) != tt.want {
				t.Errorf("unbounded(%s) = %s, %v, want %s", tt.in, got, err, tt.want)
			}
		})
	}
}

func TestAppendAddsSpecialTokensWhenAsked(t *testing.T) {
	e, err := open(withSections(t, map[string]any{"post_processor": map[string]any{
		"type":           "TemplateProcessing",
		"single":         []any{map[string]any{"SpecialToken": map[string]any{"id": "<|endoftext|>", "type_id": 0}}, map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}},
		"pair":           []any{map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}, map[string]any{"Sequence": map[string]any{"id": "B", "type_id": 0}}},
		"special_tokens": map[string]any{"<|endoftext|>": map[string]any{"id": "<|endoftext|>", "ids": []int{4000}, "tokens": []string{"<|endoftext|>"}}},
	}}))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, text := range []string{"", "warm"} {
		without, err := e.Append(context.Background(), nil, text, false)
		if err != nil {
			t.Fatal(err)
		}
		with, err := e.Append(context.Background(), nil, text, true)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(with, append([]uint32{4000}, without...)); diff != "" {
			t.Errorf("Append(%q, true) (-got +want):\n%s", text, diff)
		}
	}
}

func TestLoadErrorsNameTheFile(t *testing.T) {
	tests := []struct {
		name    string
		content string
		want    string
	}{
		{"empty", "", "tokenizer is empty"},
		{"not JSON", "version https://git-lfs.github.com/spec/v1\n", "not a JSON object"},
		{"a list", "[]", "not a JSON object"},
		{"cut short", `{"version": "1.0", "model": {"type": "BPE", "voc`, "unexpected EOF"},
		{"cut short between sections", `{"version": "1.0"`, "EOF"},
		{"no model", `{"version": "1.0"}`, "model"},
		{"another version", `{"version": "2.0"}`, `version "2.0"`},
		{"a version that holds NUL", `{"version": "\u0000"}`, `version "\u0000"`},
		{"an unknown model", `{"version":"1.0","model":{"type":"Rune\u0000"}}`, "Failed to create tokenizer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokenizer.json")
			if err := os.WriteFile(path, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			e, err := Load(path)
			if err == nil {
				e.Close()
				t.Fatal("Load answers no error")
			}
			for _, want := range []string{"native: ", path, tt.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Load: %q does not contain %q", err, want)
				}
			}
		})
	}
	if _, err := Load("testdata/missing.json"); err == nil || !strings.Contains(err.Error(), "testdata/missing.json") {
		t.Errorf("Load of a missing file: %v, want its path", err)
	}
	if _, err := open(nil); err == nil {
		t.Error("an empty file answers no error")
	}
}
