package tokenize

import (
	"encoding/json"
	"testing"
)

func TestContentFormatIsVLLMs(t *testing.T) {
	lines(t, "testdata/content-format.jsonl", func(line []byte) {
		var v struct{ Template, Format string }
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		got := "string"
		// What does not parse is a string to vLLM, and never gets this far here.
		if c, err := compile(v.Template); err == nil && c.parts {
			got = "openai"
		}
		if got != v.Format {
			t.Errorf("%s: got %s, want %s", v.Template, got, v.Format)
		}
	})
}
