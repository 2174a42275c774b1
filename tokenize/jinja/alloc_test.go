package jinja

import "testing"

// A render of strings from the variables to the output allocates nothing per
// message.
func TestRenderAllocatesPerRenderNotPerMessage(t *testing.T) {
	tmpl, err := Parse(`{%- for m in messages -%}
{%- if m.role == 'user' or loop.first and m.content is string -%}
{{ '<|im_start|>' + m.role + '\n' + m.content ~ '<|im_end|>' }}
{%- elif m['role'] == 'assistant' and '</think>' not in m.content -%}
{%- set content = m.content.strip() -%}
{{ content }}{{ loop.index }}
{%- endif -%}
{%- endfor -%}`)
	if err != nil {
		t.Fatal(err)
	}
	measure := func(messages int) float64 {
		vars := chat(messages, 100)
		var out []byte
		return testing.AllocsPerRun(20, func() {
			if out, err = tmpl.Render(out[:0], vars, Options{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := measure(2), measure(200)
	// The race detector drops pooled interpreters now and then.
	if few > 20 || many > few+20 {
		t.Errorf("%v allocations for 2 messages and %v for 200, want at most 20 and about as many", few, many)
	}
}
