package tokenize

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// messagesOf makes what the template sees of the messages of a request
// (parse_chat_messages in vllm/renderers/chat_utils.py). With parts, content
// becomes a list of parts, otherwise a string. The result shares nothing that
// changes with the request.
func (e vllm) messagesOf(sent *jinja.List, parts bool) (*jinja.List, error) {
	out := jinja.NewList()
	for i, v := range sent.All() {
		m, err := e.message(v.Dict(), parts)
		if err != nil {
			return nil, inMessage(err, i)
		}
		out.Append(jinja.FromDict(m))
	}
	return out, nil
}

// inMessage adds the place to a reason.
func inMessage(err error, i int) error {
	failure, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	return failf(failure.Reason, "message %d: %w", i, failure.Err)
}

func (e vllm) message(sent *jinja.Dict, parts bool) (*jinja.Dict, error) {
	if sent == nil {
		return nil, refusef("not an object")
	}
	m, err := checkMessage(sent)
	if err != nil {
		return nil, err
	}
	content, err := e.content(m, parts)
	if err != nil {
		return nil, err
	}
	out := jinja.NewDict(6)
	out.Set("role", jinja.String(m.role))
	out.Set("content", content)
	switch m.role {
	case "assistant":
		if m.toolCalls != nil && m.toolCalls.Len() > 0 {
			calls, err := e.toolCalls(m.toolCalls)
			if err != nil {
				return nil, err
			}
			out.Set("tool_calls", jinja.FromList(calls))
		}
		if given(m.reasoning) {
			out.Set("reasoning", m.reasoning)
			out.Set("reasoning_content", m.reasoning)
		}
	case "tool":
		if id, ok := sent.Get("tool_call_id"); ok {
			out.Set("tool_call_id", id)
		}
		if content, err = flattened(content); err != nil {
			return nil, err
		}
		out.Set("content", content)
	}
	for _, key := range [...]string{"name", "task"} {
		if v := lookup(sent, key); v.Kind() == jinja.KindString {
			out.Set(key, v)
		}
	}
	if m.role == "developer" {
		out.Set("tools", orNone(m.tools))
	}
	return out, nil
}

// content returns the content that the template sees.
func (e vllm) content(m *checkedMessage, parts bool) (jinja.Value, error) {
	if m.content.Kind() == jinja.KindString {
		text := m.content.Str()
		if m.role == "system" && e.release >= vllmBilling {
			text, _ = withoutBilling(text)
		}
		switch {
		case !parts:
			return jinja.String(text), nil
		case text == "" && m.content.Str() != "":
			return jinja.FromList(nil), nil // the header was all there was
		default:
			return jinja.FromList(jinja.NewList(textPart(jinja.String(text)))), nil
		}
	}
	list := jinja.NewList()
	var joined []string
	for _, v := range m.parts.All() {
		part, ok, err := e.part(m, v)
		if err != nil {
			return part, err
		}
		if !ok {
			continue
		}
		if parts {
			list.Append(part)
			continue
		}
		text := part
		if d := part.Dict(); d != nil {
			if text = lookup(d, "text"); isText(lookup(d, "type"), "tool_reference") {
				text = lookup(d, "name")
			}
		}
		if !truthy(text) {
			continue
		}
		if text.Kind() != jinja.KindString {
			return text, refusef("a part is not text")
		}
		joined = append(joined, text.Str())
	}
	if parts {
		return jinja.FromList(list), nil
	}
	return jinja.String(strings.Join(joined, "\n")), nil
}

func textPart(text jinja.Value) jinja.Value {
	d := jinja.NewDict(2)
	d.Set("type", jinja.String("text"))
	d.Set("text", text)
	return jinja.FromDict(d)
}

// part returns one part as a list of parts shows it, and false when it is left
// out (_parse_chat_message_content_part).
func (e vllm) part(m *checkedMessage, v jinja.Value) (part jinja.Value, ok bool, err error) {
	text := v
	extras := v.Dict()
	if extras != nil {
		kind, _ := extras.Get("type")
		switch kind.Str() {
		case "text", "input_text", "output_text":
			text = lookup(extras, "text")
		case "refusal", "thinking":
			text = lookup(extras, kind.Str())
		case "tool_reference":
			d := jinja.NewDict(2)
			d.Set("type", kind)
			d.Set("name", orNone(lookup(extras, "name")))
			return jinja.FromDict(d), true, nil
		default:
			return v, false, refusef("a part's type is not known")
		}
		if given(lookup(extras, "uuid")) {
			return v, false, refusef("a text part has a uuid")
		}
		text = orNone(text)
		if text.IsNone() && (kind.Str() == "text" || kind.Str() == "refusal") {
			return v, false, nil
		}
	}
	if m.role == "system" && e.release >= vllmBilling && text.Kind() == jinja.KindString && (extras == nil || isText(lookup(extras, "type"), "text")) {
		rest, stripped := withoutBilling(text.Str())
		if stripped && rest == "" {
			return v, false, nil
		}
		text = jinja.String(rest)
	}
	part = textPart(text)
	if extras != nil && e.release >= vllmPartExtras {
		for key, extra := range extras.All() {
			if !knownPartKey(key) {
				part.Dict().Set(key, extra)
			}
		}
	}
	return part, true, nil
}

// knownPartKey reports whether some kind of part declares key; other keys of a
// part reach the template.
func knownPartKey(key string) bool {
	switch key {
	case "audio_embeds", "audio_url", "closed", "data", "file", "image_embeds", "image_pil", "image_url",
		"input_audio", "name", "prompt_cache_breakpoint", "refusal", "text", "thinking", "type", "uuid",
		"video_embeds", "video_url":
		return true
	default:
		return false
	}
}

const billingHeader = "x-anthropic-billing-header"

// withoutBilling drops the attribution line that a coding client puts in front
// of its system prompt, and that changes with every request
// (_strip_claude_code_billing_header).
func withoutBilling(text string) (rest string, stripped bool) {
	if !strings.HasPrefix(text, billingHeader) {
		return text, false
	}
	_, rest, _ = strings.Cut(text, "\n")
	return rest, true
}

// flattened returns a tool's answer as a string, which is what templates expect
// of it, unless it holds something else than text.
func flattened(content jinja.Value) (jinja.Value, error) {
	if content.Kind() != jinja.KindList {
		return content, nil
	}
	texts := make([]string, 0, content.List().Len())
	for _, part := range content.List().All() {
		if !isText(lookup(part.Dict(), "type"), "text") {
			return content, nil
		}
	}
	for _, part := range content.List().All() {
		text := lookup(part.Dict(), "text")
		if text.Kind() != jinja.KindString {
			return content, refusef("a part is not text")
		}
		texts = append(texts, text.Str())
	}
	return jinja.String(strings.Join(texts, "\n")), nil
}

// toolCalls orders the calls as OpenAI's types declare them and parses their
// arguments; arguments that are no JSON object become an empty one, so that a
// conversation with a malformed call can go on (_postprocess_messages).
func (e vllm) toolCalls(sent *jinja.List) (*jinja.List, error) {
	out := jinja.NewList()
	for _, v := range sent.All() {
		function := lookup(v.Dict(), "function").Dict()
		if function == nil || !isText(lookup(v.Dict(), "type"), "function") {
			return nil, refusef("a tool call is not a function call")
		}
		arguments := jinja.FromDict(nil)
		sent := []byte(lookup(function, "arguments").Str())
		switch parsed, err := jinja.DecodeJSON(sent); {
		case err == nil && parsed.Dict() != nil:
			arguments = parsed
		case len(sent) == 0 || err == nil && parsed.IsNone():
		case e.release < vllmAnyArguments && err == nil:
			arguments = parsed
		case e.release < vllmAnyArguments:
			return nil, refusef("a tool call's arguments: %w", err)
		case err != nil && json.Valid(sent):
			// Python reads it and fails later on: lone surrogates, endless numbers.
			return nil, refusef("a tool call's arguments: %w", err)
		}
		f := ordered(function, "arguments", "name")
		f.Set("arguments", arguments)
		call := ordered(v.Dict(), "id", "function", "type")
		call.Set("function", jinja.FromDict(f))
		out.Append(jinja.FromDict(call))
	}
	return out, nil
}

// ordered returns d with the given keys first, as pydantic leaves an object
// whose type declares them; the others follow as sent.
func ordered(d *jinja.Dict, first ...string) *jinja.Dict {
	out := jinja.NewDict(d.Len())
	for _, key := range first {
		if v, ok := d.Get(key); ok {
			out.Set(key, v)
		}
	}
	for key, v := range d.All() {
		out.Set(key, v)
	}
	return out
}

// developerAsSystem is for templates that do not know the role developer: such
// messages become system messages, and if a system message is then anywhere but
// in front, all are merged into one there (_convert_developer_to_system and
// _consolidate_system_messages in vllm/renderers/hf.py).
func developerAsSystem(messages *jinja.List) (*jinja.List, error) {
	found := false
	for _, v := range messages.All() {
		if isText(lookup(v.Dict(), "role"), "developer") {
			found = true
			v.Dict().Set("role", jinja.String("system"))
			v.Dict().Delete("tools")
		}
	}
	if !found {
		return messages, nil
	}
	others := jinja.NewList()
	var systems []string
	late := false
	for i, v := range messages.All() {
		if !isText(lookup(v.Dict(), "role"), "system") {
			others.Append(v)
			continue
		}
		late = late || i > 0
		text, err := systemText(lookup(v.Dict(), "content"))
		if err != nil {
			return nil, err
		}
		if text != "" {
			systems = append(systems, text)
		}
	}
	if !late {
		return messages, nil
	}
	merged := jinja.NewDict(2)
	merged.Set("role", jinja.String("system"))
	merged.Set("content", jinja.String(strings.Join(systems, "\n\n")))
	all := jinja.NewList(jinja.FromDict(merged))
	for _, v := range others.All() {
		all.Append(v)
	}
	return all, nil
}

// systemText returns a system message's content as one string.
func systemText(content jinja.Value) (string, error) {
	if content.Kind() != jinja.KindList {
		return content.Str(), nil
	}
	texts := make([]string, 0, content.List().Len())
	for _, part := range content.List().All() {
		text, ok := part.Dict().Get("text")
		if !ok {
			continue
		}
		if text.Kind() != jinja.KindString {
			return "", refusef("a part of a system message is not text")
		}
		texts = append(texts, text.Str())
	}
	return strings.Join(texts, "\n"), nil
}
