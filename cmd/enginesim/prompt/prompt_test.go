package prompt

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/warmroute/cmd/enginesim/server"
)

const (
	tiny  = "../../../examples/models/tiny"
	qwen3 = "../../../.build/tokenizers/qwen3" // make tokenizers
)

func load(t *testing.T, dir string) *Tokenizer {
	t.Helper()
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func readLines(t *testing.T, path string, each func(line []byte)) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		each(sc.Bytes())
	}
}

// beyond names requests for what a simulated engine does not have.
var beyond = map[string]string{
	"continue_final_message, think": "refused",
	"NUL inside":                    "refused: the library cuts text at NUL",
}

// TestPromptsAreThoseOfVLLM wants the ids that a real vLLM made of the same
// requests. It trusted templates in requests; a simulated engine has its own.
func TestPromptsAreThoseOfVLLM(t *testing.T) {
	if _, err := os.Stat(qwen3); err != nil {
		t.Skipf("NOT CHECKED against vLLM: %v; run make tokenizers", err)
	}
	tok := load(t, qwen3)
	checked := 0
	readLines(t, "testdata/vllm-0.32.jsonl", func(line []byte) {
		var c struct {
			Name    string          `json:"name"`
			Request json.RawMessage `json:"request"`
			Render  struct {
				Status int      `json:"status"`
				IDs    []uint32 `json:"token_ids"`
			} `json:"render"`
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		if c.Name == "" || beyond[c.Name] != "" {
			return
		}
		checked++
		t.Run(c.Name, func(t *testing.T) {
			var own struct {
				Template string `json:"chat_template"`
			}
			if err := json.Unmarshal(c.Request, &own); err != nil {
				t.Fatal(err)
			}
			tok := *tok
			if own.Template != "" {
				if err := tok.setTemplate(own.Template); err != nil {
					t.Fatal(err)
				}
			}
			ids, err := tok.Chat(c.Request)
			if c.Render.Status != 200 {
				if err == nil {
					t.Errorf("accepted, vLLM answers %d", c.Render.Status)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.Render.IDs, ids); diff != "" {
				t.Errorf("ids (-vLLM +enginesim):\n%s", diff)
			}
		})
	})
	if checked < 50 {
		t.Errorf("checked %d requests, want at least 50", checked)
	}
}

// TestAnswersComeBackAsTheirTokens wants the text of an answer, placed in the
// next turn's prompt, to be encoded as the ids that the engine generated.
func TestAnswersComeBackAsTheirTokens(t *testing.T) {
	tok := load(t, tiny)
	v, err := tok.Vocabulary()
	if err != nil {
		t.Fatal(err)
	}
	if len(v.First) < 16 || len(v.Next) < 16 {
		t.Fatalf("got %d and %d words of one token, want at least 16", len(v.First), len(v.Next))
	}
	words := append([]server.Word{v.First[0]}, v.Next...)
	var text strings.Builder
	text.WriteString("<|im_start|>assistant\n")
	var ids []uint32
	for _, w := range words {
		text.WriteString(w.Text)
		ids = append(ids, w.ID)
	}
	got, err := tok.Encode(text.String()+"<|im_end|>\n", false)
	if err != nil {
		t.Fatal(err)
	}
	head, err := tok.Encode("<|im_start|>assistant\n", false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ids, got[len(head):len(head)+len(ids)]); diff != "" {
		t.Errorf("ids (-generated +encoded):\n%s", diff)
	}
}

func TestRefuses(t *testing.T) {
	tok := load(t, tiny)
	cases := map[string]string{
		"no messages":             `{"messages":[]}`,
		"a message of no role":    `{"messages":[{"content":"hi"}]}`,
		"an image":                `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}]}`,
		"a bare string as part":   `{"messages":[{"role":"user","content":["hi"]}]}`,
		"a number as content":     `{"messages":[{"role":"user","content":5}]}`,
		"a tool without function": `{"messages":[{"role":"user","content":"hi"}],"tools":[{}]}`,
		"a NUL character":         `{"messages":[{"role":"user","content":"a\u0000b"}]}`,
		"a template":              `{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"chat_template":"x"}}`,
		"not an object":           `[]`,
	}
	for name, body := range cases {
		if ids, err := tok.Chat([]byte(body)); err == nil {
			t.Errorf("%s: got %d ids, want an error", name, len(ids))
		}
	}
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("got %v, want an error that names tokenizer.json", err)
	}
	if err := os.WriteFile(dir+"/tokenizer.json", []byte(`{"model": 5}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil {
		t.Error("a broken tokenizer.json was accepted")
	}
}

// TestPartsOfAMacro has a template that hands the content to a macro, which
// loops over it: vLLM then keeps the parts apart, and the template joins them.
func TestPartsOfAMacro(t *testing.T) {
	tok := load(t, tiny)
	parts, err := tok.Chat([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"a warm"},{"type":"text","text":" route"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := tok.Chat([]byte(`{"messages":[{"role":"user","content":"a warm route"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole, parts); diff != "" {
		t.Errorf("ids (-one text +two parts):\n%s", diff)
	}
}

// TestEmptyPartOfATool has an answer of two parts, the second empty: where the
// template reads parts, vLLM 0.32 joins both.
func TestEmptyPartOfATool(t *testing.T) {
	tok := load(t, tiny)
	text, err := tok.Render([]byte(`{"messages":[{"role":"tool","content":[{"type":"text","text":"a"},{"type":"text","text":""}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := "<tool_response>\na\n\n</tool_response>"; !strings.Contains(text, want) {
		t.Errorf("got %q, want %q in it", text, want)
	}
}
