package tokenize

import (
	"strings"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// messages prepares an Anthropic request, /v1/messages or its count_tokens:
// vLLM turns it into a chat request (AnthropicServingMessages in
// entrypoints/anthropic/serving.py, 0.32.0).
func (e vllm) messages(t *Tokenizer, body []byte) (prepared, error) {
	if e.release != vllmOtherAPIs {
		return prepared{}, failf(reasonEngineVersion, "how vLLM 0.%d reads Anthropic requests is not known, as of 0.%d it is", e.release, vllmOtherAPIs)
	}
	var a anthropicFields
	if err := a.read(body); err != nil {
		return prepared{}, err
	}
	fields, err := a.chat(t)
	if err != nil {
		return prepared{}, err
	}
	return e.prepare(t, fields)
}

// anthropicFields are the members of an Anthropic request that decide its
// prompt. One that was not sent is undefined.
type anthropicFields struct {
	messages, system, tools, thinking, output, templateKwargs jinja.Value
	transfer                                                  []byte
}

func (a *anthropicFields) read(body []byte) error {
	f := newFields(body)
	for f.next() {
		var into *jinja.Value
		switch f.key {
		case "messages":
			into = &a.messages
		case "system":
			into = &a.system
		case "tools":
			into = &a.tools
		case "thinking":
			into = &a.thinking
		case "output_config":
			into = &a.output
		case "chat_template_kwargs":
			into = &a.templateKwargs
		case "kv_transfer_params":
			a.transfer = f.value
			continue
		default:
			continue
		}
		v, err := valueField(f)
		if err != nil {
			return err
		}
		*into = v
	}
	if f.err != nil {
		return refusef("%w", f.err)
	}
	return nil
}

// chat returns the chat request that the engine renders.
func (a *anthropicFields) chat(t *Tokenizer) (*chatFields, error) {
	sent := a.messages.List()
	if sent == nil {
		return nil, refusef("messages is not a list")
	}
	c := &chatFields{templateKwargs: a.templateKwargs, transfer: a.transfer}
	messages := jinja.NewList()
	system, err := a.systemText(t.anthropic.systemFirst)
	if err != nil {
		return nil, err
	}
	if len(system) > 0 {
		messages.Append(message("system", jinja.String(strings.Join(system, ""))))
	}
	for i, v := range sent.All() {
		if err := addAnthropic(messages, v.Dict(), t.anthropic.systemFirst); err != nil {
			return nil, inMessage(err, i)
		}
	}
	c.messages = jinja.FromList(messages)
	if c.tools, err = anthropicTools(a.tools); err != nil {
		return nil, err
	}
	if c.effort = lookup(a.output.Dict(), "effort"); given(c.effort) && isText(c.effort, "none") {
		return nil, refusef("output_config: effort none")
	}
	if isText(lookup(a.thinking.Dict(), "type"), "disabled") {
		c.effort = jinja.String(t.anthropic.disabledEffort)
	}
	return c, nil
}

// systemText returns the texts of the system prompt. Templates that want their
// system message in front get those among the messages too.
func (a *anthropicFields) systemText(systemFirst bool) ([]string, error) {
	var texts []string
	switch blocks := a.system.List(); {
	case !given(a.system):
	case a.system.Kind() == jinja.KindString:
		if a.system.Str() != "" {
			texts = append(texts, a.system.Str())
		}
	case blocks != nil:
		of, err := systemBlocks(blocks)
		if err != nil {
			return nil, err
		}
		texts = of
	default:
		return nil, refusef("system is neither text nor a list")
	}
	if !systemFirst {
		return texts, nil
	}
	for _, v := range a.messages.List().All() {
		if !isText(lookup(v.Dict(), "role"), "system") {
			continue
		}
		text, err := inlineSystem(lookup(v.Dict(), "content"))
		if err != nil {
			return nil, err
		}
		if text != "" {
			texts = append(texts, text)
		}
	}
	return texts, nil
}

// inlineSystem returns the text of a system message among the others.
func inlineSystem(content jinja.Value) (string, error) {
	if content.Kind() == jinja.KindString {
		if strings.HasPrefix(content.Str(), billingHeader) {
			return "", nil
		}
		return content.Str(), nil
	}
	if content.List() == nil {
		return "", refusef("content is neither text nor a list")
	}
	texts, err := systemBlocks(content.List())
	return strings.Join(texts, ""), err
}

// systemBlocks returns the texts of a system prompt in blocks. A client's
// billing header, which differs with each request, is left out.
func systemBlocks(blocks *jinja.List) ([]string, error) {
	var texts []string
	for _, v := range blocks.All() {
		kind, err := blockType(v.Dict())
		if err != nil {
			return nil, err
		}
		if text := lookup(v.Dict(), "text").Str(); kind == "text" && text != "" && !strings.HasPrefix(text, billingHeader) {
			texts = append(texts, text)
		}
	}
	return texts, nil
}

// blockType checks a block and returns its type.
func blockType(block *jinja.Dict) (string, error) {
	if block == nil {
		return "", refusef("a block is not an object")
	}
	for _, key := range [...]string{"text", "id", "tool_use_id", "name", "thinking", "signature", "data", "tool_name"} {
		if v := lookup(block, key); given(v) && v.Kind() != jinja.KindString {
			return "", refusef("a block's %s is not text", key)
		}
	}
	for _, key := range [...]string{"input", "source"} {
		if v := lookup(block, key); given(v) && v.Dict() == nil {
			return "", refusef("a block's %s is not an object", key)
		}
	}
	kind := lookup(block, "type")
	switch kind.Str() {
	case "text", "image", "tool_use", "tool_result", "tool_reference", "thinking", "redacted_thinking":
		return kind.Str(), nil
	case "tool_addition", "tool_removal":
		return "", failf(reasonUnsupported, "a block of type %s", kind.Str())
	default:
		return "", refusef("a block's type is not known")
	}
}

// addAnthropic adds a message, which may become several: results of tools are
// messages of their own.
func addAnthropic(messages *jinja.List, sent *jinja.Dict, systemFirst bool) error {
	role, content := lookup(sent, "role"), lookup(sent, "content")
	switch role.Str() {
	case "user", "assistant":
	case "system":
		if systemFirst {
			return nil // it is in the leading one
		}
		text, err := inlineSystem(content)
		if err == nil && text != "" {
			messages.Append(message("system", jinja.String(text)))
		}
		return err
	default:
		return refusef("role is none of user, assistant, system")
	}
	if content.Kind() == jinja.KindString {
		messages.Append(message(role.Str(), content))
		return nil
	}
	if content.List() == nil {
		return refusef("content is neither text nor a list")
	}
	turn := anthropicTurn{role: role.Str()}
	for _, v := range content.List().All() {
		if err := turn.add(messages, v.Dict()); err != nil {
			return err
		}
	}
	m := turn.message()
	if _, has := m.Get("content"); has || turn.role != "user" {
		messages.Append(jinja.FromDict(m))
	}
	return nil
}

// anthropicTurn collects the blocks of one message.
type anthropicTurn struct {
	role      string
	parts     []jinja.Value
	calls     []jinja.Value
	reasoning []string
}

func (t *anthropicTurn) message() *jinja.Dict {
	m := jinja.NewDict(4)
	m.Set("role", jinja.String(t.role))
	if len(t.reasoning) > 0 {
		m.Set("reasoning", jinja.String(strings.Join(t.reasoning, "")))
	}
	if len(t.calls) > 0 {
		m.Set("tool_calls", jinja.FromList(jinja.NewList(t.calls...)))
	}
	switch {
	case len(t.parts) == 1:
		m.Set("content", lookup(t.parts[0].Dict(), "text"))
	case len(t.parts) > 1:
		m.Set("content", jinja.FromList(jinja.NewList(t.parts...)))
	}
	return m
}

func (t *anthropicTurn) add(messages *jinja.List, block *jinja.Dict) error {
	kind, err := blockType(block)
	if err != nil {
		return err
	}
	switch kind {
	case "text":
		if text := lookup(block, "text"); text.Str() != "" {
			t.parts = append(t.parts, textPart(text))
		}
	case "image":
		if truthy(lookup(block, "source")) {
			return failf(reasonMultimodal, "an image")
		}
	case "thinking":
		if thinking := lookup(block, "thinking"); given(thinking) {
			t.reasoning = append(t.reasoning, thinking.Str())
		}
	case "tool_use":
		return t.addCall(block)
	case "tool_result":
		if t.role != "user" {
			return failf(reasonUnsupported, "a tool's result of the assistant")
		}
		return addToolResult(messages, block)
	}
	return nil
}

func (t *anthropicTurn) addCall(block *jinja.Dict) error {
	id := lookup(block, "id")
	if id.Str() == "" {
		// The engine makes one of the time, which some templates print.
		return failf(reasonUnsupported, "a tool call without an id")
	}
	input := lookup(block, "input")
	if !given(input) {
		input = jinja.FromDict(nil)
	}
	arguments, err := jinja.EncodeJSON(input)
	if err != nil {
		return renderError(err)
	}
	function := jinja.NewDict(2)
	function.Set("name", jinja.String(lookup(block, "name").Str()))
	function.Set("arguments", jinja.String(arguments))
	call := jinja.NewDict(3)
	call.Set("id", id)
	call.Set("type", jinja.String("function"))
	call.Set("function", jinja.FromDict(function))
	t.calls = append(t.calls, jinja.FromDict(call))
	return nil
}

func addToolResult(messages *jinja.List, block *jinja.Dict) error {
	content := lookup(block, "content")
	var texts []string
	references := jinja.NewList()
	switch list := content.List(); {
	case !given(content):
	case content.Kind() == jinja.KindString:
		texts = append(texts, content.Str())
	case list != nil:
		for _, v := range list.All() {
			item := v.Dict()
			if item == nil {
				return refusef("a part of a tool's result is not an object")
			}
			switch kind := lookup(item, "type"); {
			case isText(kind, "text"):
				text := lookup(item, "text")
				if !text.IsUndefined() && text.Kind() != jinja.KindString {
					return refusef("a part of a tool's result is not text")
				}
				texts = append(texts, text.Str())
			case isText(kind, "image"):
				return failf(reasonMultimodal, "an image in a tool's result")
			case isText(kind, "tool_reference"):
				name := lookup(item, "tool_name")
				if !truthy(name) {
					name = lookup(item, "name")
				}
				if truthy(name) {
					d := jinja.NewDict(2)
					d.Set("type", kind)
					d.Set("name", name)
					references.Append(jinja.FromDict(d))
				}
			}
		}
	default:
		return refusef("a tool's result is neither text nor a list")
	}
	id := jinja.String(lookup(block, "tool_use_id").Str())
	m := message("tool", jinja.String(strings.Join(texts, "\n")))
	m.Dict().Set("tool_call_id", id)
	messages.Append(m)
	if references.Len() > 0 {
		m := message("tool", jinja.FromList(references))
		m.Dict().Set("tool_call_id", id)
		messages.Append(m)
	}
	return nil
}

// anthropicTools returns the tools as chat completions declare them.
func anthropicTools(sent jinja.Value) (jinja.Value, error) {
	if !given(sent) {
		return jinja.Undefined(), nil
	}
	if sent.List() == nil {
		return sent, refusef("tools is not a list")
	}
	tools := jinja.NewList()
	for _, v := range sent.List().All() {
		tool := v.Dict()
		schema := lookup(tool, "input_schema").Dict()
		if !areText(tool, "name") || schema == nil {
			return sent, refusef("a tool lacks its name or input_schema")
		}
		if _, ok := schema.Get("type"); !ok {
			schema = schema.Clone()
			schema.Set("type", jinja.String("object"))
		}
		function := jinja.NewDict(5)
		function.Set("name", lookup(tool, "name"))
		function.Set("parameters", jinja.FromDict(schema))
		for _, key := range [...]string{"description", "strict", "defer_loading"} {
			setGiven(function, key, lookup(tool, key))
		}
		d := jinja.NewDict(2)
		d.Set("type", jinja.String("function"))
		d.Set("function", jinja.FromDict(function))
		tools.Append(jinja.FromDict(d))
	}
	return jinja.FromList(tools), nil
}
