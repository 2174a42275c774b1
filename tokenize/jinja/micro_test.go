package jinja

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// frozen is the clock the golden renders were made with.
func frozen() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// readLines decodes a file of JSON lines into values of T.
func readLines[T any](tb testing.TB, path string) []T {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	var all []T
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var x T
		if err := json.Unmarshal(sc.Bytes(), &x); err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		all = append(all, x)
	}
	if err := sc.Err(); err != nil {
		tb.Fatal(err)
	}
	return all
}

func microContext(tb testing.TB) *Dict {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "micro_context.json"))
	if err != nil {
		tb.Fatal(err)
	}
	v, err := DecodeJSON(data)
	if err != nil {
		tb.Fatal(err)
	}
	return v.Dict()
}

func renderText(source string, vars *Dict, opts Options) (string, error) {
	tmpl, err := Parse(source)
	if err != nil {
		return "", err
	}
	out, err := tmpl.Render(nil, vars, opts)
	return string(out), err
}

func TestMicroTemplatesRenderAsPythonDoes(t *testing.T) {
	type micro struct{ ID, Template, Text, Error string }
	vars := microContext(t)
	for _, file := range []string{"micro.jsonl", "oracle.jsonl"} {
		path := filepath.Join("testdata", file)
		for _, m := range readLines[micro](t, path) {
			t.Run(m.ID, func(t *testing.T) {
				got, err := renderText(m.Template, vars, Options{Now: frozen})
				if m.Error != "" {
					if err == nil {
						t.Errorf("%s\nrendered %q, Python raises %s", m.Template, got, m.Error)
					}
					return
				}
				if err != nil {
					t.Fatalf("%s\n%v", m.Template, err)
				}
				if diff := cmp.Diff(m.Text, got); diff != "" {
					t.Errorf("%s\n(-want +got):\n%s", m.Template, diff)
				}
			})
		}
	}
}

func TestErrorsNameLineAndCause(t *testing.T) {
	tests := []struct {
		name, source string
		line         int
		cause        Cause
	}{
		{"unknown tag", "a\n{% nope %}", 2, CauseSyntax},
		{"unfinished if", "{% if x %}", 1, CauseSyntax},
		{"unknown filter", "\n\n{{ 1|nope }}", 3, CauseSyntax},
		{"include is not supported", "{% include 'x' %}", 1, CauseUnsupported},
		{"attribute of an unset name", "a\nb{{ nope.x }}", 2, CauseUndefined},
		{"str plus int", "{{ 'a' + 1 }}", 1, CauseType},
		{"append is refused", "{% set l = [] %}\n{{ l.append(1) }}", 2, CauseSecurity},
		{"raise_exception", "\n{{ raise_exception('no system role') }}", 2, CauseRaised},
		{"error inside a macro", "{% macro f() %}\n{{ nope() }}{% endmacro %}\n{{ f() }}", 2, CauseUndefined},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := renderText(tt.source, nil, Options{})
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("error = %v, want an *Error", err)
			}
			if e.Line != tt.line || e.Cause != tt.cause {
				t.Errorf("line %d, cause %s, want line %d, cause %s (%v)", e.Line, e.Cause, tt.line, tt.cause, e)
			}
			if !strings.Contains(e.Error(), "line") {
				t.Errorf("text %q does not name the line", e.Error())
			}
		})
	}
}
