package tokenize

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plain shows who said what, and whether the model is to answer.
const plain = `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`

// textOf turns ids of letters into text, special tokens as ^ and $.
func textOf(ids []uint32) string {
	var b strings.Builder
	for _, id := range ids {
		switch id {
		case 1:
			b.WriteByte('^')
		case 2:
			b.WriteByte('$')
		default:
			b.WriteByte(byte(id))
		}
	}
	return b.String()
}

func TestRequestShapes(t *testing.T) {
	tok := newTokenizer(t, plain)
	for name, c := range map[string]struct {
		kind   Kind
		body   string
		text   string
		reason string
	}{
		"a chat is its template's text, not an empty prompt": {Chat, `{"messages":[{"role":"user","content":"x"}]}`, "<user>x<assistant>", ""},
		"a chat's text gets no special tokens on top":        {Chat, `{"messages":[{"role":"user","content":"x"}],"add_special_tokens":false}`, "<user>x<assistant>", ""},
		"a chat gets special tokens when it asks for them":   {Chat, `{"messages":[{"role":"user","content":"x"}],"add_special_tokens":true}`, "^<user>x<assistant>$", ""},
		"a completion gets the tokenizer's special tokens":   {Completion, `{"prompt":"x"}`, "^x$", ""},
		"a completion without special tokens":                {Completion, `{"prompt":"x","add_special_tokens":false}`, "x", ""},
		"no generation prompt when the request says so":      {Chat, `{"messages":[{"role":"user","content":"x"}],"add_generation_prompt":false}`, "<user>x", ""},
		"the final message is continued":                     {Chat, `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}],"add_generation_prompt":false,"continue_final_message":true}`, "<user>x<assistant>y", ""},
		"text parts are joined as the engine joins them":     {Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`, "<user>a\nb<assistant>", ""},
		"an empty part adds nothing":                         {Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"b"}]}]}`, "<user>b<assistant>", ""},
		"null text next to text adds nothing":                {Chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":null}]}]}`, "<user>a<assistant>", ""},
		"null content is empty":                              {Chat, `{"messages":[{"role":"assistant","content":null}]}`, "<assistant><assistant>", ""},
		"several texts: the first one":                       {Completion, `{"prompt":["x","y"]}`, "^x$", ""},
		"token ids need no tokenizer":                        {Completion, `{"prompt":[97,98]}`, "ab", ""},
		"several id lists: the first one":                    {Completion, `{"prompt":[[97],[98]]}`, "a", ""},
		"of two equal members the last one counts":           {Completion, `{"prompt":"x","prompt":"y"}`, "^y$", ""},
		"an image":                                               {Chat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]}`, "", reasonMultimodal},
		"an image without a type":                                {Chat, `{"messages":[{"role":"user","content":[{"image_url":"u"}]}]}`, "", reasonMultimodal},
		"media arguments":                                        {Chat, `{"messages":[{"role":"user","content":"x"}],"mm_processor_kwargs":{"a":1}}`, "", reasonMultimodal},
		"embeddings as a prompt":                                 {Completion, `{"prompt":"x","prompt_embeds":"AAAA"}`, "", reasonPromptEmbeds},
		"embeddings as a part":                                   {Chat, `{"messages":[{"role":"user","content":[{"type":"prompt_embeds","data":"A"}]}]}`, "", reasonPromptEmbeds},
		"a suffix":                                               {Completion, `{"prompt":"x","suffix":"y"}`, "", reasonSuffix},
		"truncation to the engine's context":                     {Completion, `{"prompt":"x","truncate_prompt_tokens":-1}`, "", reasonTruncated},
		"truncation between special tokens":                      {Completion, `{"prompt":"xyz","truncate_prompt_tokens":3}`, "", reasonTruncated},
		"truncation that cuts nothing":                           {Completion, `{"prompt":"x","truncate_prompt_tokens":3}`, "^x$", ""},
		"truncation to a named side":                             {Completion, `{"prompt":"xyz","truncate_prompt_tokens":3,"truncation_side":"left"}`, "yz$", ""},
		"truncation of a chat":                                   {Chat, `{"messages":[{"role":"user","content":"x"}],"truncate_prompt_tokens":4}`, "ant>", ""},
		"ids from the prefill stage":                             {Chat, `{"messages":[{"role":"user","content":"x"}],"kv_transfer_params":{"prompt_token_ids":[97,98]}}`, "ab", ""},
		"ids from the prefill stage, but echo":                   {Chat, `{"messages":[{"role":"user","content":"x"}],"echo":true,"kv_transfer_params":{"prompt_token_ids":[97,98]}}`, "<user>x<assistant>", ""},
		"ids from the prefill stage, but media":                  {Chat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}],"kv_transfer_params":{"prompt_token_ids":[97,98]}}`, "", reasonMultimodal},
		"no ids from the prefill stage":                          {Chat, `{"messages":[{"role":"user","content":"x"}],"kv_transfer_params":{"do_remote_prefill":true}}`, "<user>x<assistant>", ""},
		"empty ids from the prefill stage":                       {Chat, `{"messages":[{"role":"user","content":"x"}],"kv_transfer_params":{"prompt_token_ids":[]}}`, "", reasonBadRequest},
		"a lone surrogate in another member is nobody's concern": {Chat, `{"user":"\ud83d","messages":[{"role":"user","content":"x"}]}`, "<user>x<assistant>", ""},
		"a lone surrogate in the prompt":                         {Chat, `{"messages":[{"role":"user","content":"\ud83d"}]}`, "", reasonBadRequest},
		"not JSON":                                               {Chat, `{"messages":`, "", reasonBadRequest},
		"no messages":                                            {Chat, `{"prompt":"x"}`, "", reasonBadRequest},
		"no prompt":                                              {Completion, `{"messages":[]}`, "", reasonBadRequest},
		"a prompt that is a number":                              {Completion, `{"prompt":3}`, "", reasonBadRequest},
		"mixed prompts":                                          {Completion, `{"prompt":[1,"x"]}`, "", reasonBadRequest},
		"a kind nobody knows":                                    {0, `{}`, "", reasonUnsupported},
		"arguments that steer the tokenizer call":                {Chat, `{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"tokenize":true}}`, "", reasonTemplateKwargs},
		"messages nested too deep":                               {Chat, `{"messages":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, "", reasonBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			ids, err := tok.Append(context.Background(), nil, &Prompt{Kind: c.kind, Body: []byte(c.body)})
			if got := reasonOf(t, err); got != c.reason {
				t.Fatalf("reason %q (%v), want %q", got, err, c.reason)
			}
			if diff := cmp.Diff(c.text, textOf(ids)); diff != "" {
				t.Errorf("ids as text (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestTemplatesNeedTrust(t *testing.T) {
	tok := newTokenizer(t, plain)
	for name, c := range map[string]struct {
		trust  bool
		extra  string
		text   string
		reason string
	}{
		"trusted":                    {true, `"chat_template":"T{{ messages | length }}"`, "T1", ""},
		"trusted, empty":             {true, `"chat_template":""`, "<user>x<assistant>", ""},
		"trusted, does not parse":    {true, `"chat_template":"{% if"`, "", reasonTemplateUnsupported},
		"trusted, too large":         {true, `"chat_template":"` + strings.Repeat("x", maxRequestTemplate+1) + `"`, "", reasonTemplateLimit},
		"not trusted":                {false, `"chat_template":"T"`, "", reasonRequestTemplate},
		"not trusted, empty":         {false, `"chat_template":""`, "", reasonRequestTemplate},
		"null is none":               {false, `"chat_template":null`, "<user>x<assistant>", ""},
		"by way of the arguments":    {false, `"chat_template_kwargs":{"chat_template":"T"}`, "", reasonRequestTemplate},
		"null among the arguments":   {false, `"chat_template_kwargs":{"chat_template":null}`, "<user>x<assistant>", ""},
		"a template that runs on":    {true, `"chat_template":"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"`, "", reasonTemplateLimit},
		"a template that calls on":   {true, `"chat_template":"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"`, "", reasonTemplateLimit},
		"a template that raises":     {true, `"chat_template":"{{ raise_exception('no') }}"`, "", reasonTemplateError},
		"a template that is no text": {true, `"chat_template":3`, "", reasonBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			tok.dialect = vllm{release: vllmOtherAPIs, trustTemplate: c.trust, format: "auto"}
			text, err := tok.Render(&Prompt{Kind: Chat, Body: []byte(`{"messages":[{"role":"user","content":"x"}],` + c.extra + `}`)})
			if got := reasonOf(t, err); got != c.reason {
				t.Fatalf("reason %q (%v), want %q", got, err, c.reason)
			}
			if diff := cmp.Diff(c.text, text); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheContentFormatCanBeSet(t *testing.T) {
	for format, want := range map[string]string{
		"auto": "x", "string": "x", "openai": `[{'type': 'text', 'text': 'x'}]`,
	} {
		tok := newTokenizer(t, `{{ messages[0].content }}`)
		tok.dialect = vllm{release: vllmOtherAPIs, format: format}
		text, err := tok.Render(&Prompt{Kind: Chat, Body: []byte(`{"messages":[{"role":"user","content":"x"}]}`)})
		if err != nil || text != want {
			t.Errorf("%s: %q, %v; want %q", format, text, err, want)
		}
	}
}

// Templates of these models print the BOS token themselves, and their
// tokenizers would add one.
func TestABOSTokenIsNotDoubled(t *testing.T) {
	llama := filepath.Join(t.TempDir(), "llama.jinja")
	write(t, llama, "{{ bos_token }}[INST] {{ messages[0].content }} [/INST]")
	for name, cfg := range map[string]Config{"llama2": {ChatTemplate: llama}, "gemma3": {}} {
		t.Run(name, func(t *testing.T) {
			tok := realModel(t, name, cfg)
			bos, err := tok.Append(context.Background(), nil, &Prompt{Kind: Completion, Body: []byte(`{"prompt":[""]}`)})
			if err != nil || len(bos) != 1 {
				t.Fatalf("special tokens of a completion: %v, %v; want one", bos, err)
			}
			ids, err := tok.Append(context.Background(), nil, &Prompt{Kind: Chat, Body: []byte(`{"messages":[{"role":"user","content":"x"}]}`)})
			if err != nil || len(ids) < 2 {
				t.Fatal(ids, err)
			}
			if ids[0] != bos[0] || ids[1] == bos[0] {
				t.Errorf("ids begin with %v, want %v once", ids[:2], bos)
			}
		})
	}
}
