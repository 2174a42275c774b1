package jinja

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The golden renders are not part of this checkout: they stand beside it, with
// templates fetched by `make templates`.
const (
	goldenDir   = "../../../shared/fixtures/chat-template"
	templateDir = "../../.build/templates"
)

type goldenCase struct {
	Case, Request, Profile string
	Continue               bool `json:"continue_final_message"`
}

type goldenRender struct {
	Template, Case, SHA256, Text, Head, Error string
}

type manifestEntry struct {
	ID            string            `json:"id"`
	SHA256        string            `json:"sha256"`
	SpecialTokens map[string]string `json:"special_tokens"`
}

// golden is the fixtures: cases and requests by name, renders by template.
type golden struct {
	manifest []manifestEntry
	cases    map[string]goldenCase
	requests map[string]json.RawMessage
	renders  map[string][]goldenRender
}

func readGolden(t *testing.T) *golden {
	t.Helper()
	g := &golden{
		cases:    map[string]goldenCase{},
		requests: map[string]json.RawMessage{},
		renders:  map[string][]goldenRender{},
	}
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(goldenDir, "manifest.json"))), &g.manifest); err != nil {
		t.Fatal(err)
	}
	for _, c := range readLines[goldenCase](t, filepath.Join(goldenDir, "cases.jsonl")) {
		g.cases[c.Case] = c
	}
	for _, r := range readLines[struct {
		ID      string
		Request json.RawMessage
	}](t, filepath.Join(goldenDir, "requests.jsonl")) {
		g.requests[r.ID] = r.Request
	}
	for _, r := range readLines[goldenRender](t, filepath.Join(goldenDir, "renders.jsonl")) {
		g.renders[r.Template] = append(g.renders[r.Template], r)
	}
	return g
}

// tally counts what renders came to: as Python's, other text, an error where
// Python renders, text where Python raises.
type tally struct{ exact, wrong, erred, missed int }

func TestGoldenRendersOfRealTemplates(t *testing.T) {
	for _, dir := range []string{goldenDir, templateDir} {
		if _, err := os.Stat(dir); err != nil {
			t.Skipf("SKIPPED, no real template was rendered: %s is not there", dir)
		}
	}
	g := readGolden(t)
	required := map[string]bool{}
	for name := range strings.Lines(readFile(t, "testdata/exact_templates.txt")) {
		required[strings.TrimSpace(name)] = true
	}
	var all tally
	exactTemplates, absent := 0, 0
	for _, m := range g.manifest {
		source, err := os.ReadFile(filepath.Join(templateDir, m.SHA256+".jinja"))
		if err != nil {
			absent++
			continue
		}
		var got tally
		t.Run(m.ID, func(t *testing.T) {
			report := t.Logf
			if required[m.ID] {
				report = t.Errorf
			}
			got = g.render(t, m, string(source), report)
		})
		all.exact += got.exact
		all.wrong += got.wrong
		all.erred += got.erred
		all.missed += got.missed
		if got.wrong+got.erred+got.missed == 0 {
			exactTemplates++
			if !required[m.ID] {
				t.Logf("%s is exact and not in testdata/exact_templates.txt", m.ID)
			}
		}
	}
	t.Logf("%d templates, %d absent, %d exact on every case", len(g.manifest)-absent, absent, exactTemplates)
	t.Logf("%d renders as Python's, %d wrong text, %d errors where Python renders, %d renders where Python raises",
		all.exact, all.wrong, all.erred, all.missed)
}

func readFile(tb testing.TB, path string) string {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

func (g *golden) render(t *testing.T, m manifestEntry, source string, report func(string, ...any)) (got tally) {
	t.Helper()
	renders := g.renders[m.ID]
	tmpl, err := Parse(source)
	if err != nil {
		for _, r := range renders {
			if r.Error == "" {
				got.erred++
			} else {
				got.exact++
			}
		}
		if got.erred > 0 {
			report("does not parse: %v", err)
		}
		return got
	}
	for _, r := range renders {
		c := g.cases[r.Case]
		text, err := renderCase(t, tmpl, m, c, g.requests[c.Request])
		switch {
		case r.Error != "" && err != nil:
			got.exact++
		case r.Error != "":
			got.missed++
			report("%s: rendered %d bytes, Python raises %s", r.Case, len(text), r.Error)
		case err != nil:
			got.erred++
			report("%s: %v", r.Case, err)
		case sum(text) == r.SHA256:
			got.exact++
		default:
			got.wrong++
			want := r.Text + r.Head
			n := 0
			for n < len(want) && n < len(text) && want[n] == text[n] {
				n++
			}
			report("%s: differs at byte %d:\n got %q\nwant %q", r.Case, n, clip(text, n), clip(want, n))
		}
	}
	return got
}

func clip(s string, at int) string { return s[max(0, min(at-60, len(s))):min(at+60, len(s))] }

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

// renderCase builds the variables as the fixture's README says.
func renderCase(t *testing.T, tmpl *Template, m manifestEntry, c goldenCase, request json.RawMessage) (string, error) {
	t.Helper()
	v, err := DecodeJSON(bytes.TrimSpace(request))
	if err != nil {
		t.Fatal(err)
	}
	vars := NewDict(16)
	for name, token := range m.SpecialTokens {
		vars.Set(name, String(token))
	}
	vars.Set("tools", None())
	vars.Set("documents", None())
	for k, x := range v.Dict().All() {
		if k != "continue_final_message" {
			vars.Set(k, x)
		}
	}
	if c.Profile == "hf5" {
		prepareHF5(vars)
	}
	final := ""
	if c.Continue {
		final = tagFinal(vars)
	}
	out, err := tmpl.Render(nil, vars, Options{Now: frozen})
	if err != nil || !c.Continue {
		return string(out), err
	}
	return cutFinal(string(out), final)
}

// prepareHF5 is what transformers 5.24 does to messages before rendering.
func prepareHF5(vars *Dict) {
	messages, _ := vars.Get("messages")
	prepared := NewList()
	for _, msg := range messages.List().All() {
		d := NewDict(8)
		for k, x := range msg.Dict().All() {
			if !x.IsNone() {
				d.Set(k, x)
			}
		}
		for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
			x, ok := d.Get(name)
			if !ok || !x.truth() {
				continue
			}
			full := NewDict(8)
			full.Set("thinking", x)
			for k, y := range d.All() {
				full.Set(k, y)
			}
			full.Set("reasoning_content", x)
			d = full
			break
		}
		prepared.Append(FromDict(d))
	}
	vars.Set("messages", FromList(prepared))
}

const finalTag = "CONTINUE_FINAL_MESSAGE_TAG "

// tagFinal marks the end of the last message's text and returns the text.
func tagFinal(vars *Dict) string {
	messages, _ := vars.Get("messages")
	last := messages.List().At(messages.List().Len() - 1).Dict()
	content, _ := last.Get("content")
	if content.List() == nil {
		last.Set("content", String(content.Str()+finalTag))
		return content.Str()
	}
	parts := content.List()
	for i := parts.Len() - 1; i >= 0; i-- {
		part := parts.At(i).Dict()
		if text, ok := part.Get("text"); ok {
			part.Set("text", String(text.Str()+finalTag))
			return text.Str()
		}
	}
	return ""
}

func cutFinal(out, final string) (string, error) {
	at := strings.LastIndex(out, strings.TrimSpace(finalTag))
	if at < 0 || !strings.Contains(out, trimSpace(final)) {
		return "", errors.New("the final message is not in the text")
	}
	if strings.HasPrefix(out[at:], finalTag) {
		return out[:at], nil
	}
	return trimRightSpace(out[:at]), nil
}
