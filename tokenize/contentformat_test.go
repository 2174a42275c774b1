package tokenize

import (
	"encoding/json"
	"testing"
)

func TestContentFormatIsTheEngines(t *testing.T) {
	lines(t, "testdata/content-format.jsonl", func(line []byte) {
		var v struct {
			Template string
			Formats  map[string]string
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		for engine, rule := range map[string]partsRule{
			"0.23": partsPlain, "0.30": partsMacros, "0.34": partsNamespaces, "sglang": partsSGLang,
		} {
			got := "string"
			// What does not parse is a string to engines, and never gets this far here.
			if c, err := compile(v.Template); err == nil && c.parts[rule] {
				got = "openai"
			}
			if want := v.Formats[engine]; got != want {
				t.Errorf("%s, %s: got %s, want %s", v.Template, engine, got, want)
			}
		}
	})
}
