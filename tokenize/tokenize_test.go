package tokenize

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// letters is an encoder whose ids are the bytes of the text, with special
// tokens 1 in front and 2 behind.
type letters struct{ err error }

func (e letters) Append(_ context.Context, dst []uint32, text string, addSpecial bool) ([]uint32, error) {
	if e.err != nil {
		return dst, e.err
	}
	if addSpecial {
		dst = append(dst, 1)
	}
	for _, c := range []byte(text) {
		dst = append(dst, uint32(c))
	}
	if addSpecial {
		dst = append(dst, 2)
	}
	return dst, nil
}

func (letters) Fast() bool    { return false }
func (letters) Memory() int64 { return 0 }
func (letters) Close()        {}

// newTokenizer returns a tokenizer of letters with a chat template.
func newTokenizer(tb testing.TB, template string) *Tokenizer {
	tb.Helper()
	tok := &Tokenizer{
		dialect:   vllm{release: vllmOtherAPIs, trustTemplate: true, format: "auto"},
		special:   jinja.NewDict(0),
		defaults:  jinja.NewDict(0),
		templates: templates{named: map[string]*compiled{}, failed: map[string]error{"": &Error{Reason: reasonNoTemplate}}},
	}
	if template != "" {
		tok.templates.set("default", template)
	}
	if err := tok.use(letters{}); err != nil {
		tb.Fatal(err)
	}
	tok.anthropic = tok.dialect.anthropicRules(tok)
	return tok
}

// object decodes a JSON object for a test.
func object(tb testing.TB, text string) *jinja.Dict {
	tb.Helper()
	v, err := jinja.DecodeJSON([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return v.Dict()
}

// reasonOf returns the reason of an *Error, and "" without an error.
func reasonOf(tb testing.TB, err error) string {
	tb.Helper()
	if err == nil {
		return ""
	}
	var failure *Error
	if !errors.As(err, &failure) {
		tb.Fatalf("%v is not an *Error", err)
	}
	return failure.Reason
}

// lines calls f with every line of a JSONL file.
func lines(t *testing.T, path string, f func(line []byte)) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	scan := bufio.NewScanner(file)
	scan.Buffer(nil, 1<<22)
	for scan.Scan() {
		f(scan.Bytes())
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestChatTextIsVLLMs(t *testing.T) {
	type vector struct {
		Kind      string
		Templates map[string]string
		Special   map[string]string `json:"special_tokens"`

		Name, Body, Template, Error string
		Trust                       *bool
		Defaults                    string
		Text                        *string
	}
	var meta vector
	lines(t, "testdata/vllm-0.32.jsonl", func(line []byte) {
		var v vector
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		if v.Kind == "meta" {
			meta = v
			return
		}
		t.Run(v.Name, func(t *testing.T) {
			template, ok := meta.Templates[v.Template]
			if !ok {
				template = v.Template
			}
			tok := newTokenizer(t, template)
			tok.dialect = vllm{release: vllmOtherAPIs, trustTemplate: v.Trust == nil || *v.Trust, format: "auto"}
			for name, token := range meta.Special {
				tok.special.Set(name, jinja.String(token))
			}
			if v.Defaults != "" {
				tok.defaults = object(t, v.Defaults)
			}
			text, err := tok.Render(&Prompt{Kind: Chat, Body: []byte(v.Body)})
			switch {
			case v.Text == nil && err == nil:
				t.Errorf("got %q, want an error as vLLM's %s", text, v.Error)
			case v.Text == nil:
				reasonOf(t, err)
			case err != nil:
				t.Error(err)
			default:
				if diff := cmp.Diff(*v.Text, text); diff != "" {
					t.Errorf("text (-want +got):\n%s", diff)
				}
			}
		})
	})
}

// tinyModel loads the model directory that is checked in.
func tinyModel(tb testing.TB, cfg Config) *Tokenizer {
	tb.Helper()
	cfg.Dir = filepath.Join("..", "examples", "models", "tiny")
	tok, err := Load(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(tok.Close)
	return tok
}

func TestTinyIDsAreVLLMs(t *testing.T) {
	tok := tinyModel(t, Config{})
	lines(t, "testdata/tiny-vllm-0.32.jsonl", func(line []byte) {
		var v struct {
			Kind, Name, Body string
			Text             *string
			IDs              []uint32
			Error            string
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		kind := map[string]Kind{"chat": Chat, "completion": Completion}[v.Kind]
		if kind == 0 {
			return
		}
		t.Run(v.Kind+" "+v.Name, func(t *testing.T) {
			p := &Prompt{Kind: kind, Body: []byte(v.Body)}
			ids, err := tok.Append(context.Background(), []uint32{7}, p)
			if v.Error != "" {
				if err == nil || !cmp.Equal(ids, []uint32{7}) {
					t.Errorf("got %v, %v; want dst as it came and an error as vLLM's %s", ids, err, v.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append([]uint32{7}, v.IDs...), ids); diff != "" {
				t.Errorf("ids (-want +got):\n%s", diff)
			}
			text, err := tok.Render(p)
			if v.Text == nil {
				if got := reasonOf(t, err); got != reasonNoText {
					t.Errorf("Render of ids: reason %q, want %q", got, reasonNoText)
				}
			} else if text != *v.Text {
				t.Errorf("text %q, want %q", text, *v.Text)
			}
		})
	})
}

func TestTinyGolden(t *testing.T) {
	tok := tinyModel(t, Config{})
	template, err := tok.templates.choose(false)
	if err != nil {
		t.Fatal(err)
	}
	lines(t, "../examples/models/tiny/golden.jsonl", func(line []byte) {
		v, err := jinja.DecodeJSON(line)
		if err != nil {
			t.Fatal(err)
		}
		golden := v.Dict()
		t.Run(lookup(golden, "name").Str(), func(t *testing.T) {
			vars := tok.special.Clone()
			for name, v := range lookup(golden, "context").Dict().All() {
				vars.Set(name, v)
			}
			text, err := template.parsed.Render(nil, vars, jinja.Options{})
			if _, fails := golden.Get("error"); fails {
				if err == nil {
					t.Errorf("text %q, want an error", text)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(lookup(golden, "text").Str(), string(text)); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
			ids, err := tok.enc.Append(context.Background(), nil, string(text), false)
			if err != nil {
				t.Fatal(err)
			}
			var want []uint32
			for _, id := range lookup(golden, "ids").List().All() {
				n, _ := id.Int64()
				want = append(want, uint32(n))
			}
			if diff := cmp.Diff(want, ids); diff != "" {
				t.Errorf("ids (-want +got):\n%s", diff)
			}
		})
	})
}

// realModel loads a tokenizer that `go run ./tools/fetch` brings.
func realModel(tb testing.TB, name string, cfg Config) *Tokenizer {
	tb.Helper()
	cfg.Dir = filepath.Join("..", ".build", "tokenizers", name)
	if _, err := os.Stat(filepath.Join(cfg.Dir, "tokenizer.json")); err != nil {
		tb.Skipf("NOT RUN: %s is missing; tools/fetch brings the real tokenizers", cfg.Dir)
	}
	tok, err := Load(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(tok.Close)
	return tok
}

// TestQwen3IDsAreARunningVLLMs compares with what two releases answered.
func TestQwen3IDsAreARunningVLLMs(t *testing.T) {
	// That of 0.23 had a transformers of three months later.
	for version, library := range map[string]string{"0.23": "5.24.0", "0.32": "5.19.0"} {
		t.Run(version, func(t *testing.T) {
			tok := realModel(t, "qwen3", Config{TrustRequestTemplate: true, EngineVersion: version + ".0", Transformers: library})
			exact := 0
			lines(t, "testdata/vllm-"+version+"-ids.jsonl", func(line []byte) {
				var v struct {
					Kind, Name string
					Request    json.RawMessage
					Text       string
					Render     struct {
						Status int
						IDs    []uint32 `json:"token_ids"`
					}
				}
				if err := json.Unmarshal(line, &v); err != nil {
					t.Fatal(err)
				}
				if v.Kind == "meta" {
					return
				}
				p := &Prompt{Kind: Chat, Body: v.Request}
				ids, err := tok.Append(context.Background(), nil, p)
				switch {
				case v.Render.Status != 200:
					if got := reasonOf(t, err); got != reasonBadRequest {
						t.Errorf("%s: reason %q (%v), want %q: vLLM answers %d", v.Name, got, err, reasonBadRequest, v.Render.Status)
					}
					return
				case err != nil:
					t.Errorf("%s: %v", v.Name, err)
					return
				}
				exact++
				if diff := cmp.Diff(v.Render.IDs, ids); diff != "" {
					text, _ := tok.Render(p)
					t.Errorf("%s: ids (-want +got):\n%s\ntext (-want +got):\n%s", v.Name, diff, cmp.Diff(v.Text, text))
				}
			})
			if exact < 60 {
				t.Errorf("%d requests compared, want at least 60", exact)
			}
		})
	}
}

func TestAppendFromManyGoroutines(t *testing.T) {
	tok := tinyModel(t, Config{})
	bodies := [][]byte{
		[]byte(`{"messages":[{"role":"user","content":"Hello"}]}`),
		[]byte(`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"Hello"}],"chat_template_kwargs":{"enable_thinking":false}}`),
		[]byte(`{"messages":[{"role":"user","content":"Hello"}],"tools":[{"type":"function","function":{"name":"f"}}]}`),
	}
	var want [][]uint32
	for _, body := range bodies {
		ids, err := tok.Append(context.Background(), nil, &Prompt{Kind: Chat, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, ids)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			var ids []uint32
			for i := range 60 {
				n := (g + i) % len(bodies)
				var err error
				if ids, err = tok.Append(context.Background(), ids[:0], &Prompt{Kind: Chat, Body: bodies[n]}); err != nil || !cmp.Equal(want[n], ids) {
					t.Errorf("body %d: %v, %v; want %v", n, ids, err, want[n])
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestErrorsOfTheEncoderHaveReasons(t *testing.T) {
	tok := newTokenizer(t, "")
	tok.enc = letters{errors.New("broken")}
	_, err := tok.Append(context.Background(), nil, &Prompt{Kind: Completion, Body: []byte(`{"prompt":"x"}`)})
	if got := reasonOf(t, err); got != reasonEncode {
		t.Errorf("reason %q, want %q", got, reasonEncode)
	}
	tiny := tinyModel(t, Config{})
	for name, c := range map[string]struct{ body, reason string }{
		"NUL":            {`{"prompt":"a\u0000\u20c1"}`, reasonNUL}, // the fast engine leaves the second to the reference
		"too long":       {`{"prompt":"` + strings.Repeat("a ", 3<<20) + `"}`, reasonTooLong},
		"lone surrogate": {`{"prompt":"a\ud83db"}`, reasonBadRequest},
		"invalid UTF-8":  {"{\"prompt\":\"a\xffb\"}", reasonBadRequest},
	} {
		_, err := tiny.Append(context.Background(), nil, &Prompt{Kind: Completion, Body: []byte(c.body)})
		if got := reasonOf(t, err); got != c.reason {
			t.Errorf("%s: reason %q, want %q", name, got, c.reason)
		}
	}
	tiny.Close()
	_, err = tiny.Append(context.Background(), nil, &Prompt{Kind: Completion, Body: []byte(`{"prompt":"x"}`)})
	if got := reasonOf(t, err); got != reasonEncode {
		t.Errorf("closed: reason %q, want %q", got, reasonEncode)
	}
}

func TestTheBodyIsOnlyRead(t *testing.T) {
	tok := tinyModel(t, Config{})
	body := []byte(`{"messages":[{"role":"developer","content":[{"type":"text","text":"a"}]},{"role":"assistant","tool_calls":[` +
		`{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}]}`)
	before := bytes.Clone(body)
	if _, err := tok.Append(context.Background(), nil, &Prompt{Kind: Chat, Body: body}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, body) {
		t.Errorf("the body became %s", body)
	}
}
