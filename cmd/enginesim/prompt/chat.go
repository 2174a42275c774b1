package prompt

import (
	"errors"
	"fmt"
	"strings"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// Chat renders the body of a chat request and encodes the text. Special tokens
// come from the template alone, as vLLM's default is.
func (t *Tokenizer) Chat(body []byte) ([]uint32, error) {
	text, err := t.Render(body)
	if err != nil {
		return nil, err
	}
	return t.Encode(text, false)
}

// Render is the prompt text of a chat request's body.
func (t *Tokenizer) Render(body []byte) (string, error) {
	if t.template == nil {
		return "", errors.New("the model has no chat template")
	}
	v, err := jinja.DecodeJSON(body)
	if err != nil {
		return "", err
	}
	req := v.Dict()
	if req == nil {
		return "", errors.New("the request is not an object")
	}
	vars, err := t.variables(req)
	if err != nil {
		return "", err
	}
	out, err := t.template.Render(nil, vars, jinja.Options{})
	if err != nil {
		return "", err
	}
	return string(out), nil
}

// variables are what the template sees.
func (t *Tokenizer) variables(req *jinja.Dict) (*jinja.Dict, error) {
	vars := jinja.NewDict(16)
	for name, token := range t.special {
		vars.Set(name, jinja.String(token))
	}
	messages, err := t.conversation(get(req, "messages"))
	if err != nil {
		return nil, err
	}
	vars.Set("messages", messages)
	tools, err := toolList(get(req, "tools"))
	if err != nil {
		return nil, err
	}
	vars.Set("tools", tools)
	vars.Set("documents", jinja.None())
	vars.Set("add_generation_prompt", jinja.Bool(true))

	kwargs := get(req, "chat_template_kwargs").Dict()
	if kwargs != nil {
		for k, v := range kwargs.All() {
			if k == "chat_template" || k == "tokenize" {
				return nil, fmt.Errorf("chat_template_kwargs cannot hold %s", k)
			}
			vars.Set(k, v)
		}
	}
	// Fields of the request win over kwargs.
	for _, k := range []string{"add_generation_prompt", "documents", "reasoning_effort"} {
		if v := get(req, k); !absent(v) {
			vars.Set(k, v)
		}
	}
	if effort := get(req, "reasoning_effort"); effort.Kind() == jinja.KindString {
		if _, chosen := vars.Get("enable_thinking"); !chosen {
			vars.Set("enable_thinking", jinja.Bool(effort.Str() != "none"))
		}
	}
	if get(req, "continue_final_message").Bool() {
		return nil, errors.New("enginesim does not continue a final message")
	}
	return vars, nil
}

func (t *Tokenizer) conversation(v jinja.Value) (jinja.Value, error) {
	list := v.List()
	if list == nil {
		return v, errors.New("messages is not a list")
	}
	if list.Len() == 0 {
		return v, errors.New("Cannot apply chat template to an empty conversation. Provide at least one message.") //nolint:staticcheck // vLLM's words
	}
	out := jinja.NewList()
	for i, m := range list.All() {
		d := m.Dict()
		if d == nil || get(d, "role").Kind() != jinja.KindString {
			return v, fmt.Errorf("messages[%d] is not an object with a role", i)
		}
		msg, err := t.message(d)
		if err != nil {
			return v, fmt.Errorf("messages[%d]: %w", i, err)
		}
		out.Append(jinja.FromDict(msg))
	}
	return jinja.FromList(out), nil
}

// message is one message with the keys that reach the template, in vLLM's order.
func (t *Tokenizer) message(m *jinja.Dict) (*jinja.Dict, error) {
	role := get(m, "role").Str()
	if role == "developer" {
		role = "system" // vLLM 0.23 and 0.32
	}
	content, err := t.content(get(m, "content"), role)
	if err != nil {
		return nil, err
	}
	out := jinja.NewDict(6)
	out.Set("role", jinja.String(role))
	out.Set("content", content)
	if role == "assistant" {
		calls, err := toolCalls(get(m, "tool_calls"))
		if err != nil {
			return nil, err
		}
		if calls != nil {
			out.Set("tool_calls", jinja.FromList(calls))
		}
		reasoning := get(m, "reasoning")
		if absent(reasoning) {
			reasoning = get(m, "reasoning_content")
		}
		if !absent(reasoning) {
			out.Set("reasoning", reasoning)
			out.Set("reasoning_content", reasoning)
		}
	}
	if id := get(m, "tool_call_id"); role == "tool" && !absent(id) {
		out.Set("tool_call_id", id)
	}
	if name := get(m, "name"); name.Kind() == jinja.KindString {
		out.Set("name", name)
	}
	return out, nil
}

// content is a message's content as the template's format has it: one string,
// parts joined by a line break, or a list of parts.
func (t *Tokenizer) content(v jinja.Value, role string) (jinja.Value, error) {
	asParts := t.parts && role != "tool"
	part := func(text string) *jinja.Dict {
		d := jinja.NewDict(2)
		d.Set("type", jinja.String("text"))
		d.Set("text", jinja.String(text))
		return d
	}
	switch {
	case absent(v) && asParts:
		return jinja.FromList(jinja.NewList()), nil
	case absent(v):
		return jinja.String(""), nil
	case v.Kind() == jinja.KindString && asParts:
		return jinja.FromList(jinja.NewList(jinja.FromDict(part(v.Str())))), nil
	case v.Kind() == jinja.KindString:
		return v, nil
	case v.List() == nil:
		return v, errors.New("content is neither text nor a list of parts")
	}
	var texts []string
	parts := jinja.NewList()
	for _, p := range v.List().All() {
		text, err := partText(p)
		if err != nil {
			return v, err
		}
		// An empty part is dropped from the string format only; a tool's answer
		// is joined after that.
		if text != "" || t.parts {
			texts = append(texts, text)
		}
		d := part(text)
		for k, extra := range p.Dict().All() {
			if _, set := d.Get(k); !set && k != get(p.Dict(), "type").Str() {
				d.Set(k, extra)
			}
		}
		parts.Append(jinja.FromDict(d))
	}
	if asParts {
		return jinja.FromList(parts), nil
	}
	return jinja.String(strings.Join(texts, "\n")), nil
}

// partText is the text of one content part.
func partText(p jinja.Value) (string, error) {
	d := p.Dict()
	if d == nil {
		return "", errors.New("a content part is not an object")
	}
	key := get(d, "type").Str()
	switch key {
	case "text", "input_text", "output_text":
		key = "text"
	case "refusal", "thinking":
	default:
		return "", fmt.Errorf("a part of type %q: this is not a multimodal model", key)
	}
	text := get(d, key)
	if text.Kind() != jinja.KindString {
		return "", fmt.Errorf("a part of type %q has no text", key)
	}
	return text.Str(), nil
}

// toolCalls are an assistant's calls as vLLM dumps them: arguments parsed,
// keys in the order id, function (arguments, name), type. nil when there are none.
func toolCalls(v jinja.Value) (*jinja.List, error) {
	if absent(v) {
		return nil, nil
	}
	list := v.List()
	if list == nil {
		return nil, errors.New("tool_calls is not a list")
	}
	if list.Len() == 0 {
		return nil, nil
	}
	out := jinja.NewList()
	for _, c := range list.All() {
		fn := get(c.Dict(), "function").Dict()
		if fn == nil {
			return nil, errors.New("a tool call has no function")
		}
		// What is not the JSON of an object becomes an empty one (vLLM 0.32).
		arguments := jinja.FromDict(jinja.NewDict(0))
		switch a := get(fn, "arguments"); {
		case a.Dict() != nil:
			arguments = a
		case a.Kind() == jinja.KindString:
			if parsed, err := jinja.DecodeJSON([]byte(a.Str())); err == nil && parsed.Dict() != nil {
				arguments = parsed
			}
		}
		f := jinja.NewDict(2)
		f.Set("arguments", arguments)
		f.Set("name", get(fn, "name"))
		call := jinja.NewDict(3)
		if id := get(c.Dict(), "id"); !absent(id) {
			call.Set("id", id)
		}
		call.Set("function", jinja.FromDict(f))
		call.Set("type", jinja.String("function"))
		out.Append(jinja.FromDict(call))
	}
	return out, nil
}

// toolList is the tools as vLLM 0.32 dumps its data model: a fixed order of
// keys, null for what is absent, unknown keys dropped.
func toolList(v jinja.Value) (jinja.Value, error) {
	if absent(v) {
		return jinja.None(), nil
	}
	if v.List() == nil || v.List().Len() == 0 {
		return v, errors.New("tools is not a list of at least one tool")
	}
	out := jinja.NewList()
	for _, tool := range v.List().All() {
		fn := get(tool.Dict(), "function").Dict()
		if fn == nil {
			return v, errors.New("a tool has no function")
		}
		f := jinja.NewDict(4)
		f.Set("name", get(fn, "name"))
		for _, k := range []string{"description", "parameters"} {
			value := get(fn, k)
			if absent(value) {
				value = jinja.None()
			}
			f.Set(k, value)
		}
		for _, k := range []string{"strict", "defer_loading"} {
			if value := get(fn, k); !absent(value) {
				f.Set(k, value)
			}
		}
		d := jinja.NewDict(2)
		d.Set("type", jinja.String("function"))
		d.Set("function", jinja.FromDict(f))
		if deferred := get(tool.Dict(), "defer_loading"); !absent(deferred) {
			d.Set("defer_loading", deferred)
		}
		out.Append(jinja.FromDict(d))
	}
	return jinja.FromList(out), nil
}

// get is a key's value, undefined when d is nil or has none.
func get(d *jinja.Dict, key string) jinja.Value {
	if d == nil {
		return jinja.Undefined()
	}
	v, _ := d.Get(key)
	return v
}

func absent(v jinja.Value) bool { return v.IsNone() || v.IsUndefined() }
