package jinja

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// small limits keep one fuzz input short.
var small = Options{Now: frozen, MaxSteps: 50_000, MaxOutput: 1 << 20}

func addTemplates(f *testing.F) {
	f.Helper()
	for _, file := range []string{"micro.jsonl", "oracle.jsonl"} {
		for _, m := range readLines[struct{ Template string }](f, filepath.Join("testdata", file)) {
			f.Add(m.Template)
		}
	}
	for _, source := range attacks {
		f.Add(source)
	}
}

// FuzzParse: no source stops the parser, and what it refuses has a line.
func FuzzParse(f *testing.F) {
	addTemplates(f)
	f.Fuzz(func(t *testing.T, source string) {
		_, err := Parse(source)
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Line < 1 || e.Line > 1+strings.Count(normalizeNewlines(source), "\n")) {
			t.Errorf("error %#v, want an *Error with a line of the source", err)
		}
	})
}

// FuzzRender: no template stops a render, leaves a trace in the next one, or
// makes text that is not UTF-8.
func FuzzRender(f *testing.F) {
	addTemplates(f)
	vars := microContext(f)
	f.Fuzz(func(t *testing.T, source string) {
		if !utf8.ValidString(source) {
			return
		}
		tmpl, err := Parse(source)
		if err != nil {
			return
		}
		first, err := tmpl.Render(nil, vars, small)
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Line < 1) {
			t.Errorf("error %#v, want an *Error with a line", err)
		}
		if !utf8.Valid(first) {
			t.Errorf("text %q is not UTF-8", first)
		}
		second, again := tmpl.Render(nil, vars, small)
		if string(second) != string(first) || (err == nil) != (again == nil) {
			t.Errorf("renders differ: %q %v, then %q %v", first, err, second, again)
		}
	})
}

// FuzzDecodeJSON: what decodes is written by tojson and decodes to the same.
func FuzzDecodeJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,null,true,"x\u00e9\n"],"a":1}`, `[[[[1e400,-0.0,12345678901234567890]]]]`, `"\ud83d\ude00"`, `NaN`} {
		f.Add([]byte(s))
	}
	tmpl, err := Parse(`{{ v | tojson }}`)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := DecodeJSON(data)
		if err != nil {
			return
		}
		vars := NewDict(1)
		vars.Set("v", v)
		text, err := tmpl.Render(nil, vars, Options{MaxDepth: 2 * maxNesting})
		if err != nil {
			t.Fatalf("tojson: %v", err)
		}
		again, err := DecodeJSON(text)
		if err != nil {
			t.Fatalf("decode of %q: %v", text, err)
		}
		vars.Set("v", again)
		if second, err := tmpl.Render(nil, vars, Options{MaxDepth: 2 * maxNesting}); err != nil || string(second) != string(text) {
			t.Errorf("second round %q, %v, want %q", second, err, text)
		}
	})
}
