package tokenize

import (
	"context"
	"errors"
	"testing"
)

// FuzzTokenize holds that no body panics or hangs, that every error has a
// reason, that dst's own ids are left alone, and that what is tokenized twice is
// the same twice.
func FuzzTokenize(f *testing.F) {
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"Hello"}]}`,
		`{"messages":[{"role":"developer","content":"d"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b","x":1}]}]}`,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1e3}"}}]},{"role":"tool","tool_call_id":"1","content":"r"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]}`,
		`{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"x "}],"continue_final_message":true,"add_generation_prompt":false}`,
		`{"messages":[{"role":"user","content":"u","reasoning_content":"r"}],"chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"none","documents":[{"a":"b"}]}`,
		`{"messages":[{"role":"user","content":"u"}],"chat_template":"{% for m in messages %}{{ m | tojson }}{% endfor %}"}`,
		`{"prompt":"Hello","add_special_tokens":false,"truncate_prompt_tokens":2,"truncation_side":"right"}`,
		`{"prompt":[[1,2,3],[4]]}`, `{"prompt":["a","b"]}`, `{"prompt":[1,2,4294967295]}`, `{"pr\u006fmpt":"\ud83d\ude00"}`,
		`{"messages":[{"role":"user","content":"u"}],"kv_transfer_params":{"prompt_token_ids":[1,2]}}`,
	} {
		f.Add([]byte(body), true)
		f.Add([]byte(body), false)
	}
	tok := tinyModel(f, Config{TrustRequestTemplate: true})
	f.Fuzz(func(t *testing.T, body []byte, chat bool) {
		p := &Prompt{Kind: Completion, Body: body}
		if chat {
			p.Kind = Chat
		}
		ids, err := tok.Append(context.Background(), []uint32{7}, p)
		if len(ids) == 0 || ids[0] != 7 {
			t.Fatalf("ids %v: the first was there before", ids)
		}
		if err != nil {
			var failure *Error
			if !errors.As(err, &failure) || failure.Reason == "" || len(ids) != 1 {
				t.Fatalf("ids %v, error %v", ids, err)
			}
			return
		}
		again, err := tok.Append(context.Background(), nil, p)
		if err != nil || len(again) != len(ids)-1 {
			t.Fatalf("%d ids, then %d and %v", len(ids)-1, len(again), err)
		}
	})
}
