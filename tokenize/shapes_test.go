package tokenize

import "testing"

// turns shows everything that a conversation can hold.
const turns = `{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}` +
	`{{ m.content if m.content is not none }}{% for c in m.tool_calls %}[{{ c.function.name }} {{ c.function.arguments|tojson }}]{% endfor %}` +
	`{% endfor %}{% for t in tools or [] %}|{{ t|tojson }}{% endfor %}{% if enable_thinking is defined %}#{{ enable_thinking }}{% endif %}`

// The expected texts are what vLLM 0.32.0's own conversion makes of the
// requests; e2e/vllm compares with a running engine.
func TestResponses(t *testing.T) {
	tok := newTokenizer(t, turns)
	for name, c := range map[string]struct{ body, text, reason string }{
		"a text is the user's, with special tokens":  {`{"input":"x"}`, "^<user>x$", ""},
		"instructions are the system's":              {`{"instructions":"s","input":"x"}`, "^<system>s<user>x$", ""},
		"empty instructions are none":                {`{"instructions":"","input":"x"}`, "^<user>x$", ""},
		"items are messages":                         {`{"input":[{"role":"developer","content":"d"},{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}]}`, "^<system>d<user>a\nb$", ""},
		"one turn of the assistant is one message":   {`{"input":[{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"r"}]},{"role":"assistant","content":"a"},{"type":"function_call","call_id":"c","name":"f","arguments":"{\"b\": 1}"},{"type":"function_call","call_id":"d","name":"g","arguments":""},{"type":"function_call_output","call_id":"c","output":"o"}]}`, `^<assistant>(r)a[f {"b": 1}][g {}]<tool>o$`, ""},
		"two answers are two messages":               {`{"input":[{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}]}`, "^<assistant>a<assistant>b$", ""},
		"of an answer's parts the first one counts":  {`{"input":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"output_text","text":"b"}]}]}`, "^<assistant>a$", ""},
		"a summary stands in for reasoning":          {`{"input":[{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}]}]}`, "^<assistant>(s)$", ""},
		"an unfinished answer is continued":          {`{"input":[{"role":"user","content":"x"},{"type":"message","role":"assistant","status":"incomplete","content":"y"}]}`, "^<user>x<assistant>y$", ""},
		"functions are shown, the engine's own not":  {`{"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f","parameters":{"type":"object"},"strict":true,"x":1}]}`, `^<user>x|{"type": "function", "function": {"name": "f", "description": null, "parameters": {"type": "object"}, "strict": true}}$`, ""},
		"effort decides on thinking":                 {`{"input":"x","reasoning":{"effort":"none"}}`, "^<user>x#False$", ""},
		"a conversation that the engine keeps":       {`{"input":"x","previous_response_id":"resp_1"}`, "", reasonPreviousResponse},
		"an image":                                   {`{"input":[{"role":"user","content":[{"type":"input_image","image_url":"u"}]}]}`, "", reasonMultimodal},
		"a reference to an item":                     {`{"input":[{"type":"item_reference","id":"x"}]}`, "", reasonUnsupported},
		"truncation to the context":                  {`{"input":"x","truncation":"auto"}`, "", reasonTruncated},
		"parts of an answer that is no message item": {`{"input":[{"role":"assistant","content":[{"type":"output_text","text":"q"}]}]}`, "", reasonBadRequest},
		"a part of the chat API":                     {`{"input":[{"role":"user","content":[{"type":"text","text":"q"}]}]}`, "", reasonBadRequest},
		"no input":                                   {`{"messages":[]}`, "", reasonBadRequest},
		"tools that are null":                        {`{"input":"x","tools":null}`, "", reasonBadRequest},
	} {
		checkShape(t, tok, name, Responses, c.body, c.text, c.reason)
	}
}

func TestAnthropicMessages(t *testing.T) {
	tok := newTokenizer(t, turns)
	for name, c := range map[string]struct{ body, text, reason string }{
		"a text":                               {`{"messages":[{"role":"user","content":"x"}]}`, "<user>x", ""},
		"a system prompt":                      {`{"system":"s","messages":[{"role":"user","content":"x"}]}`, "<system>s<user>x", ""},
		"a system prompt in blocks":            {`{"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"s"},{"type":"text","text":"t"}],"messages":[{"role":"user","content":"x"}]}`, "<system>st<user>x", ""},
		"a system message in between":          {`{"messages":[{"role":"user","content":"x"},{"role":"system","content":"s"}]}`, "<user>x<system>s", ""},
		"blocks are parts":                     {`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":""},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}]}]}`, "<user>a\nb", ""},
		"thinking, text and calls":             {`{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"r","signature":"z"},{"type":"redacted_thinking","data":"q"},{"type":"text","text":"a"},{"type":"tool_use","id":"i","name":"f","input":{"b":[1,2.0,"e"]}}]}]}`, `<assistant>(r)a[f {"b": [1, 2.0, "e"]}]`, ""},
		"results come before the rest":         {`{"messages":[{"role":"user","content":[{"type":"text","text":"t"},{"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}]}`, "<tool>a\nb<user>t", ""},
		"results alone leave no user message":  {`{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"i"}]}]}`, "<tool>", ""},
		"a schema without a type is an object": {`{"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","input_schema":{"properties":{}}}]}`, `<user>x|{"type": "function", "function": {"name": "f", "description": null, "parameters": {"properties": {}, "type": "object"}}}`, ""},
		"disabled thinking":                    {`{"messages":[{"role":"user","content":"x"}],"thinking":{"type":"disabled"}}`, "<user>x#False", ""},
		"an effort":                            {`{"messages":[{"role":"user","content":"x"}],"output_config":{"effort":"low"}}`, "<user>x#True", ""},
		"an image":                             {`{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"u"}}]}]}`, "", reasonMultimodal},
		"an image in a result":                 {`{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":[{"type":"image","source":{"type":"url","url":"u"}}]}]}]}`, "", reasonMultimodal},
		"a block nobody knows":                 {`{"messages":[{"role":"user","content":[{"type":"video"}]}]}`, "", reasonBadRequest},
		"a role nobody knows":                  {`{"messages":[{"role":"tool","content":"x"}]}`, "", reasonBadRequest},
		"no messages":                          {`{"input":"x"}`, "", reasonBadRequest},
		"a tool without a schema":              {`{"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"}]}`, "", reasonBadRequest},
	} {
		checkShape(t, tok, name, Messages, c.body, c.text, c.reason)
	}
}

// Templates that refuse a system message behind the first get all of them in
// front, and effort low stands for disabled thinking where none means nothing.
func TestAnthropicProbes(t *testing.T) {
	strict := newTokenizer(t, `{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ reasoning_effort }}`)
	checkShape(t, strict, "system first", Messages,
		`{"system":"s","messages":[{"role":"user","content":"x"},{"role":"system","content":"t"}],"thinking":{"type":"disabled"}}`, "<system>st<user>xnone", "")
	blind := newTokenizer(t, `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ 'low' if reasoning_effort == 'low' }}`)
	checkShape(t, blind, "none is like medium", Messages,
		`{"messages":[{"role":"user","content":"x"}],"thinking":{"type":"disabled"}}`, "<user>xlow", "")
}

func checkShape(t *testing.T, tok *Tokenizer, name string, kind Kind, body, text, reason string) {
	t.Helper()
	ids, err := tok.Append(t.Context(), nil, &Prompt{Kind: kind, Body: []byte(body)})
	if got := reasonOf(t, err); got != reason {
		t.Errorf("%s: error %v, want reason %q", name, err, reason)
		return
	}
	if got := textOf(ids); got != text {
		t.Errorf("%s:\n got  %q\n want %q", name, got, text)
	}
}
