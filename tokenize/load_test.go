package tokenize

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// modelDir makes a model directory of the tiny tokenizer with other files
// beside it. An empty text leaves a file out.
func modelDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	tiny := filepath.Join("..", "examples", "models", "tiny")
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		if _, replaced := files[name]; replaced {
			continue
		}
		data, err := os.ReadFile(filepath.Join(tiny, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), string(data))
	}
	for name, text := range files {
		if text != "" {
			write(t, filepath.Join(dir, name), text)
		}
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoadFindsTheTemplate(t *testing.T) {
	const (
		config = "tokenizer_config.json"
		file   = "chat_template.jinja"
		tools  = `,"tools":[{"type":"function","function":{"name":"f"}}]`
	)
	for name, c := range map[string]struct {
		files  map[string]string
		with   string // further members of the request
		text   string
		reason string
	}{
		"text in the configuration":             {map[string]string{config: `{"chat_template":"C"}`}, "", "C", ""},
		"its own file counts more":              {map[string]string{config: `{"chat_template":"C"}`, file: "F"}, "", "F", ""},
		"named ones: the default":               {map[string]string{config: `{"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}]}`}, "", "D", ""},
		"named ones: with tools":                {map[string]string{config: `{"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}]}`}, tools, "T", ""},
		"named ones: with tools, no such name":  {map[string]string{config: `{"chat_template":[{"name":"default","template":"D"}]}`}, tools, "D", ""},
		"named ones: no default":                {map[string]string{config: `{"chat_template":[{"name":"rag","template":"R"}]}`}, "", "", reasonNoTemplate},
		"named files":                           {map[string]string{config: `{}`, file: "F", "additional_chat_templates/tool_use.jinja": "T"}, tools, "T", ""},
		"none":                                  {map[string]string{config: `{}`}, "", "", reasonNoTemplate},
		"null":                                  {map[string]string{config: `{"chat_template":null}`}, "", "", reasonNoTemplate},
		"one that does not parse":               {map[string]string{config: `{}`, file: "{% if"}, "", "", reasonTemplateUnsupported},
		"one for tools that does not parse":     {map[string]string{config: `{"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"{% if"}]}`}, tools, "", reasonTemplateUnsupported},
		"tokens as text and as objects":         {map[string]string{config: `{"bos_token":"<b>","eos_token":{"content":"<e>","lstrip":false},"pad_token":null}`, file: "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}"}, "", "<b><e>False", ""},
		"tokens a model names itself":           {map[string]string{config: `{"image_token":"<i>","add_bos_token":true,"extra_special_tokens":{"audio_bos":"<a>"}}`, file: "{{ image_token }}{{ audio_bos }}{{ add_bos_token is defined }}"}, "", "<i><a>False", ""},
		"tokens in the older file":              {map[string]string{config: `{"bos_token":"<b>"}`, file: "{{ bos_token }}", "special_tokens_map.json": `{"bos_token":"<o>"}`}, "", "<o>", ""},
		"the older file beside a list of added": {map[string]string{config: `{"bos_token":"<b>","added_tokens_decoder":{}}`, file: "{{ bos_token }}", "special_tokens_map.json": `{"bos_token":"<o>"}`}, "", "<b>", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tok, err := Load(Config{Dir: modelDir(t, c.files)})
			if err != nil {
				t.Fatal(err)
			}
			defer tok.Close()
			text, err := tok.Render(&Prompt{Kind: Chat, Body: []byte(`{"messages":[{"role":"user","content":"x"}]` + c.with + `}`)})
			if got := reasonOf(t, err); got != c.reason || text != c.text {
				t.Errorf("got %q, reason %q (%v); want %q, %q", text, got, err, c.text, c.reason)
			}
			if ids, err := tok.Append(context.Background(), nil, &Prompt{Kind: Completion, Body: []byte(`{"prompt":"Hello"}`)}); err != nil || len(ids) == 0 {
				t.Errorf("a completion: %v, %v", ids, err)
			}
		})
	}
}

func TestLoadTakesTheEnginesOptions(t *testing.T) {
	template := filepath.Join(t.TempDir(), "override.jinja")
	write(t, template, "O {{ foo }} {{ strftime_now('%Y') }} {{ messages[0].content }}")
	tok := tinyModel(t, Config{
		ChatTemplate:   template,
		TemplateKwargs: []byte(`{"foo":1.0}`),
		ContentFormat:  "openai",
		Engine:         "vllm",
		Now:            func() time.Time { return time.Date(2031, 2, 3, 0, 0, 0, 0, time.UTC) },
	})
	for body, want := range map[string]string{
		`{"messages":[{"role":"user","content":"x"}]}`:                                    `O 1.0 2031 [{'type': 'text', 'text': 'x'}]`,
		`{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"foo":"y"}}`: `O y 2031 [{'type': 'text', 'text': 'x'}]`,
	} {
		text, err := tok.Render(&Prompt{Kind: Chat, Body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, text); diff != "" {
			t.Errorf("text (-want +got):\n%s", diff)
		}
	}
}

func TestLoadSaysWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no directory":          {Config{Dir: filepath.Join(t.TempDir(), "none")}, "tokenizer_config.json: name a directory"},
		"no tokenizer.json":     {Config{Dir: modelDir(t, map[string]string{"tokenizer.json": ""})}, "has no tokenizer.json: name a directory"},
		"no configuration":      {Config{Dir: modelDir(t, map[string]string{"tokenizer_config.json": ""})}, "has no tokenizer_config.json: name a directory"},
		"a broken tokenizer":    {Config{Dir: modelDir(t, map[string]string{"tokenizer.json": "{}"})}, "tokenizer.json"},
		"a broken config":       {Config{Dir: modelDir(t, map[string]string{"tokenizer_config.json": "{"})}, "tokenizer_config.json: "},
		"a config of no object": {Config{Dir: modelDir(t, map[string]string{"tokenizer_config.json": "[]"})}, "not a JSON object"},
		"no such template":      {Config{Dir: modelDir(t, nil), ChatTemplate: "/none.jinja"}, "chat template: open /none.jinja"},
		"kwargs of no object":   {Config{Dir: modelDir(t, nil), TemplateKwargs: []byte("[]")}, "template kwargs are not a JSON object"},
		"kwargs of no JSON":     {Config{Dir: modelDir(t, nil), TemplateKwargs: []byte("{x")}, "template kwargs: "},
		"an unknown engine":     {Config{Dir: modelDir(t, nil), Engine: "x"}, `engine "x" is not known`},
		"an unknown format":     {Config{Dir: modelDir(t, nil), ContentFormat: "x"}, `content format "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			tok, err := Load(c.cfg)
			if err == nil {
				tok.Close()
				t.Fatal("no error")
			}
			if !strings.HasPrefix(err.Error(), "tokenize: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q, want %q in it", err, c.want)
			}
		})
	}
}
