package tokenize

import (
	"testing"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

func TestVLLMReleases(t *testing.T) {
	for version, want := range map[string]int{
		"": 32, "0.23.0": 23, "0.32.0": 32, "v0.30.1": 30, "0.31.0rc2": 31, "0.33.1.dev7+g1a2b3c": 33,
		"0.34.0": 34, "0.99.0": 34, "1.2.0": 34, "dev": 34, "0.dev": 34,
	} {
		if got, err := vllmRelease(version); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", version, got, err, want)
		}
	}
	if _, err := vllmRelease("0.11.2"); err == nil {
		t.Error("0.11.2: want an error, its rules are not known")
	}
}

// TestVLLMRulesByRelease shows each rule on both sides of the release that
// brought it, with templates that dump what they see.
func TestVLLMRulesByRelease(t *testing.T) {
	const (
		messages = `{{ messages | tojson }}`
		parts    = `{% for m in messages %}{% for p in m.content %}{{ p | tojson }}{% endfor %}{% endfor %}`
		tools    = `{{ tools | tojson }}`
	)
	refused := "refused"
	for _, c := range []struct {
		name, template, body string
		release              int // that brought the new reading
		before, after        string
	}{
		{
			"strict in a tool", tools,
			`{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"strict":1,"name":"f"}}]}`, vllmStrictTools,
			`[{"type": "function", "function": {"name": "f", "description": null, "parameters": null, "strict": 1}}]`,
			`[{"type": "function", "function": {"name": "f", "description": null, "parameters": null, "strict": true}}]`,
		},
		{
			"unknown members of a tool", tools,
			`{"messages":[{"role":"user","content":"a"}],"tools":[{"x":null,"type":"function","function":{"type":2,"name":"f"},"name":"t"}]}`, vllmClosedTools,
			`[{"type": "function", "function": {"name": "f", "description": null, "parameters": null, "type": 2}, "x": null, "name": "t"}]`,
			`[{"type": "function", "function": {"name": "f", "description": null, "parameters": null}}]`,
		},
		{
			"unknown members of a part", parts,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]}`, vllmPartExtras,
			`{"type": "text", "text": "a"}`,
			`{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}`,
		},
		{
			"arguments that are no object", messages,
			`{"messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"[1]"}}]}]}`, vllmAnyArguments,
			`[{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"arguments": [1], "name": "f"}, "type": "function"}]}]`,
			`[{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"arguments": {}, "name": "f"}, "type": "function"}]}]`,
		},
		{
			"arguments that are no JSON", `x`,
			`{"messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{"}}]}]}`, vllmAnyArguments,
			refused, `x`,
		},
		{
			"a billing header", messages,
			`{"messages":[{"role":"system","content":"x-anthropic-billing-header: 1\nBe kind."}]}`, vllmBilling,
			`[{"role": "system", "content": "x-anthropic-billing-header: 1\nBe kind."}]`,
			`[{"role": "system", "content": "Be kind."}]`,
		},
		{
			"an empty list of tools", tools,
			`{"messages":[{"role":"user","content":"a"}],"tools":[],"tool_choice":"auto"}`, vllmNoEmptyTools,
			refused, `null`,
		},
		{
			"parts in a namespace", `{% set ns = namespace(all=messages) %}{% for m in ns.all %}{% for p in m.content %}{{ p }},{% endfor %}{% endfor %}`,
			`{"messages":[{"role":"user","content":"ab"}]}`, vllmNamespaces,
			`a,b,`, `{'type': 'text', 'text': 'ab'},`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := newTokenizer(t, c.template)
			for release := vllmOldest; release <= vllmNewest; release++ {
				tok.dialect = vllm{release: release, format: "auto"}
				want := c.before
				if release >= c.release {
					want = c.after
				}
				got, err := tok.Render(&Prompt{Kind: Chat, Body: []byte(c.body)})
				if err != nil {
					if got = err.Error(); reasonOf(t, err) == reasonBadRequest {
						got = refused
					}
				}
				if got != want {
					t.Errorf("0.%d: %s\nwant %s", release, got, want)
				}
			}
		})
	}
}

func TestTransformersPrepareMessages(t *testing.T) {
	for version, want := range map[string]string{
		"4.57.6": `{"role": "assistant", "content": "b", "reasoning": "r", "name": null}`,
		"5.20.2": `{"role": "assistant", "content": "b", "reasoning": "r", "name": null}`,
		"5.21.0": `{"thinking": "r", "role": "assistant", "content": "b", "reasoning": "r", "name": null, "reasoning_content": "r"}`,
		"5.24.0": `{"thinking": "r", "role": "assistant", "content": "b", "reasoning": "r", "reasoning_content": "r"}`,
	} {
		library, err := transformersRelease(version)
		if err != nil {
			t.Fatal(err)
		}
		m, err := jinja.DecodeJSON([]byte(`{"role":"assistant","content":"b","reasoning":"r","name":null}`))
		if err != nil {
			t.Fatal(err)
		}
		vars := jinja.NewDict(1)
		vars.Set("messages", jinja.FromList(library.prepare(jinja.NewList(m))))
		tpl, err := jinja.Parse(`{{ messages[0] | tojson }}`)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tpl.Render(nil, vars, jinja.Options{}); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", version, got, err, want)
		}
	}
	for _, version := range []string{"5", "new", "5.x"} {
		if _, err := transformersRelease(version); err == nil {
			t.Errorf("%q is taken for a version", version)
		}
	}
}
