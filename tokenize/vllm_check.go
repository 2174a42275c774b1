package tokenize

import (
	"iter"
	"slices"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// checkedMessage is a message of a request after validation.
type checkedMessage struct {
	role      string
	content   jinja.Value // a string, or else parts count
	parts     *jinja.List // not nil
	toolCalls *jinja.List // nil without
	reasoning jinja.Value
	tools     jinja.Value // of a developer message
}

// checkMessage validates a message as vLLM does. It declares a message as a
// union: OpenAI's type for each role, or a type of its own for any role, which
// knows more keys and kinds of parts. Of the types that fit, pydantic takes the
// one that more of the declared keys are given for, parts and calls included,
// and the first one of equals. OpenAI's types leave their parts unread while
// pydantic chooses, so that theirs do not count; and they refuse them later if
// they do not fit after all.
func checkMessage(sent *jinja.Dict) (*checkedMessage, error) {
	role, _ := sent.Get("role")
	if role.Kind() != jinja.KindString {
		return nil, refusef("no role")
	}
	m := &checkedMessage{role: role.Str(), reasoning: lookup(sent, "reasoning"), tools: lookup(sent, "tools")}
	// The older name stands in for the newer one.
	if older := lookup(sent, "reasoning_content"); given(older) && !given(m.reasoning) {
		m.reasoning = older
	}
	m.content, _ = sent.Get("content")
	if m.parts = m.content.List(); m.parts == nil {
		m.parts = jinja.NewList()
	}
	if calls := lookup(sent, "tool_calls"); given(calls) {
		if m.toolCalls = calls.List(); m.toolCalls == nil {
			return nil, refusef("tool_calls is not a list")
		}
	}
	if err := m.media(); err != nil {
		return nil, err
	}
	openAI, fitsOpenAI := m.openAIKeys(sent)
	own, fitsOwn := m.ownKeys(sent)
	switch {
	case fitsOwn && (!fitsOpenAI || own > openAI):
		if m.tools.Kind() == jinja.KindList {
			m.tools = orderedTools(m.tools.List())
		}
		return m, nil
	case fitsOpenAI:
		return m, m.lateChecks()
	default:
		return nil, refusef("a message of role %s has missing or wrong members", m.role)
	}
}

// openAIKeys counts the keys that OpenAI's type for the role declares, if the
// message fits it.
func (m *checkedMessage) openAIKeys(sent *jinja.Dict) (keys int, fits bool) {
	content := lookup(sent, "content")
	isContent := content.Kind() == jinja.KindString || content.Kind() == jinja.KindList
	name := lookup(sent, "name")
	isName := name.IsUndefined() || name.Kind() == jinja.KindString
	keys = count(sent, "role", "content", "name")
	switch m.role {
	case "user", "system", "developer":
		return keys, isContent && isName
	case "tool":
		return count(sent, "role", "content", "tool_call_id"), isContent && lookup(sent, "tool_call_id").Kind() == jinja.KindString
	case "function":
		return keys, (content.Kind() == jinja.KindString || content.IsNone()) && name.Kind() == jinja.KindString
	case "assistant":
		refusal, audio, call := lookup(sent, "refusal"), lookup(sent, "audio"), lookup(sent, "function_call")
		_, nullCalls := sent.Get("tool_calls")
		fits = (isContent || !given(content)) && isName && (m.toolCalls != nil || !nullCalls) &&
			(!given(refusal) || refusal.Kind() == jinja.KindString) &&
			(!given(audio) || areText(audio.Dict(), "id")) &&
			(!given(call) || areText(call.Dict(), "arguments", "name"))
		keys += count(sent, "audio", "function_call", "refusal", "tool_calls")
		return keys + count(audio.Dict(), "id") + count(call.Dict(), "arguments", "name"), fits
	default:
		return 0, false
	}
}

// ownKeys counts the keys that vLLM's own type declares
// (CustomChatCompletionMessageParam), if the message fits it.
func (m *checkedMessage) ownKeys(sent *jinja.Dict) (keys int, fits bool) {
	keys = count(sent, "role", "content", "name", "tool_call_id", "tool_calls", "tools", "task")
	if !m.reasoning.IsUndefined() {
		keys++
	}
	switch m.content.Kind() {
	case jinja.KindString, jinja.KindList, jinja.KindUndefined:
	default:
		return 0, false
	}
	for _, part := range m.parts.All() {
		n, ok := partKeys(part)
		if !ok {
			return 0, false
		}
		keys += n
	}
	name := lookup(sent, "name")
	if !name.IsUndefined() && name.Kind() != jinja.KindString {
		return 0, false
	}
	for _, v := range [...]jinja.Value{lookup(sent, "tool_call_id"), lookup(sent, "task"), m.reasoning} {
		if given(v) && v.Kind() != jinja.KindString {
			return 0, false
		}
	}
	for _, call := range items(m.toolCalls) {
		if !isFunctionCall(call.Dict()) {
			return 0, false
		}
		keys += 5 // id, function, arguments, name, type
	}
	if !given(m.tools) {
		return keys, true
	}
	if m.tools.Kind() != jinja.KindList {
		return 0, false
	}
	for _, tool := range m.tools.List().All() {
		function := lookup(tool.Dict(), "function").Dict()
		if !isText(lookup(tool.Dict(), "type"), "function") || !isFunction(function) {
			return 0, false
		}
		keys += 2 + count(function, "name", "description", "parameters", "strict")
	}
	return keys, true
}

// partKeys counts the keys that the best fitting type of part declares. Some
// types declare no key that must be there, so that every object is a part.
func partKeys(v jinja.Value) (keys int, fits bool) {
	if v.Kind() == jinja.KindString {
		return 0, true
	}
	part := v.Dict()
	if part == nil {
		return 0, false
	}
	if n, ok := openAIPartKeys(part, "text"); ok {
		return n, true
	}
	if n, ok := openAIPartKeys(part, "refusal"); ok {
		return n, true
	}
	if n, ok := openAIPartKeys(part, "thinking"); ok {
		return n, true
	}
	kind, name := lookup(part, "type"), lookup(part, "name")
	if (kind.IsUndefined() || isText(kind, "tool_reference")) && (name.IsUndefined() || name.Kind() == jinja.KindString) {
		keys = count(part, "type", "name")
	}
	if uuid, ok := part.Get("uuid"); ok && (uuid.IsNone() || uuid.Kind() == jinja.KindString) {
		keys = max(keys, 1)
	}
	return keys, true
}

// openAIPartKeys counts the keys of a part of the given type, whose text is
// under that same key, if it is one.
func openAIPartKeys(part *jinja.Dict, kind string) (keys int, fits bool) {
	if !isText(lookup(part, "type"), kind) || lookup(part, kind).Kind() != jinja.KindString {
		return 0, false
	}
	switch kind {
	case "text":
		mark, ok := part.Get("prompt_cache_breakpoint")
		if !ok {
			return 2, true
		}
		return 3 + count(mark.Dict(), "mode", "ttl"), isText(lookup(mark.Dict(), "mode"), "explicit")
	case "thinking":
		closed, ok := part.Get("closed")
		if !ok {
			return 2, true
		}
		_, isBool := laxBool(closed)
		return 3, isBool
	default:
		return 2, true
	}
}

// lateChecks is what OpenAI's types find when their parts and calls are read.
func (m *checkedMessage) lateChecks() error {
	for _, v := range m.parts.All() {
		fits := false
		if part := v.Dict(); part != nil {
			_, fits = openAIPartKeys(part, "text")
			if _, refusal := openAIPartKeys(part, "refusal"); refusal && m.role == "assistant" {
				fits = true
			}
		}
		if !fits {
			return refusef("a part does not fit a message of role %s", m.role)
		}
	}
	if m.role == "assistant" {
		for _, call := range items(m.toolCalls) {
			if !isFunctionCall(call.Dict()) {
				return refusef("a tool call is not a function call")
			}
		}
	}
	return nil
}

// media refuses messages with parts that are not text.
func (m *checkedMessage) media() error {
	for _, v := range m.parts.All() {
		part := v.Dict()
		if part == nil {
			continue
		}
		kind := lookup(part, "type")
		if isText(kind, "prompt_embeds") {
			return failf(reasonPromptEmbeds, "a part holds embeddings")
		}
		if slices.Contains(mediaParts[:], kind.Str()) && kind.Kind() == jinja.KindString {
			return failf(reasonMultimodal, "a part is of type %s", kind.Str())
		}
		if given(kind) && !given(lookup(part, "uuid")) {
			continue
		}
		for _, key := range mediaParts {
			if _, ok := part.Get(key); ok {
				return failf(reasonMultimodal, "a part holds %s", key)
			}
		}
	}
	return nil
}

// hasMedia reports whether a message holds a part that is not text
// (has_non_text_content).
func hasMedia(messages *jinja.List) bool {
	for _, v := range messages.All() {
		for _, part := range items(lookup(v.Dict(), "content").List()) {
			if part.Dict() == nil {
				continue
			}
			for _, key := range mediaParts {
				if _, ok := part.Dict().Get(key); ok {
					return true
				}
			}
			switch kind := lookup(part.Dict(), "type"); {
			case kind.IsUndefined():
			case !slices.Contains(textParts[:], kind.Str()) || kind.Kind() != jinja.KindString:
				return true
			}
		}
	}
	return false
}

// The types of parts vLLM knows, which are also the keys they are found by.
var (
	mediaParts = [...]string{
		"input_image", "image_url", "image_embeds", "audio_embeds", "video_embeds", "prompt_embeds",
		"image_pil", "audio_url", "input_audio", "video_url",
	}
	textParts = [...]string{"text", "input_text", "output_text", "refusal", "thinking", "tool_reference"}
)

// isFunctionCall reports whether a tool call has all that its type declares.
func isFunctionCall(call *jinja.Dict) bool {
	return areText(call, "id", "type") && isText(lookup(call, "type"), "function") &&
		areText(lookup(call, "function").Dict(), "arguments", "name")
}

// isFunction reports whether a developer message's tool is one of OpenAI's type.
func isFunction(f *jinja.Dict) bool {
	description, parameters := lookup(f, "description"), lookup(f, "parameters")
	strict := lookup(f, "strict")
	_, isBool := laxBool(strict)
	return areText(f, "name") &&
		(description.IsUndefined() || description.Kind() == jinja.KindString) &&
		(parameters.IsUndefined() || parameters.Dict() != nil) &&
		(!given(strict) || isBool)
}

// orderedTools orders the tools of a developer message as OpenAI's types do.
func orderedTools(tools *jinja.List) jinja.Value {
	out := jinja.NewList()
	for _, v := range tools.All() {
		tool := ordered(v.Dict(), "function", "type")
		function := ordered(lookup(tool, "function").Dict(), "name", "description", "parameters", "strict")
		tool.Set("function", jinja.FromDict(function))
		out.Append(jinja.FromDict(tool))
	}
	return jinja.FromList(out)
}

// areText reports whether every key of d is there and a string.
func areText(d *jinja.Dict, keys ...string) bool {
	for _, key := range keys {
		if lookup(d, key).Kind() != jinja.KindString {
			return false
		}
	}
	return d != nil
}

// count returns how many of the keys d has.
func count(d *jinja.Dict, keys ...string) int {
	n := 0
	if d == nil {
		return n
	}
	for _, key := range keys {
		if _, ok := d.Get(key); ok {
			n++
		}
	}
	return n
}

// items returns the elements of a list that may be nil.
func items(l *jinja.List) iter.Seq2[int, jinja.Value] {
	if l == nil {
		l = jinja.NewList()
	}
	return l.All()
}
