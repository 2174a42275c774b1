package tokenize

import (
	"github.com/warmroute/warmroute/tokenize/jinja"
)

// responses prepares a /v1/responses request: vLLM turns its items into chat
// messages (construct_input_messages in entrypoints/openai/responses/utils.py,
// ResponsesRequest in protocol.py, 0.32.0), several items into one message where
// they are one turn of the assistant.
func (e vllm) responses(t *Tokenizer, body []byte) (prepared, error) {
	if e.release != vllmOtherAPIs {
		return prepared{}, failf(reasonEngineVersion, "how vLLM 0.%d reads Responses requests is not known, as of 0.%d it is", e.release, vllmOtherAPIs)
	}
	var r responsesFields
	if err := r.read(body); err != nil {
		return prepared{}, err
	}
	fields, err := r.chat()
	if err != nil {
		return prepared{}, err
	}
	return e.prepare(t, fields)
}

// responsesFields are the members of a Responses request that decide its
// prompt. One that was not sent is undefined.
type responsesFields struct {
	input, instructions, tools, truncation, reasoning jinja.Value
	previousID, previousMessages, prompt              jinja.Value
	templateKwargs, mediaKwargs, processorKwargs      jinja.Value
	transfer                                          []byte
}

func (r *responsesFields) read(body []byte) error {
	f := newFields(body)
	for f.next() {
		var into *jinja.Value
		switch f.key {
		case "input":
			into = &r.input
		case "instructions":
			into = &r.instructions
		case "tools":
			into = &r.tools
		case "truncation":
			into = &r.truncation
		case "reasoning":
			into = &r.reasoning
		case "previous_response_id":
			into = &r.previousID
		case "previous_input_messages":
			into = &r.previousMessages
		case "prompt":
			into = &r.prompt
		case "chat_template_kwargs":
			into = &r.templateKwargs
		case "media_io_kwargs":
			into = &r.mediaKwargs
		case "mm_processor_kwargs":
			into = &r.processorKwargs
		case "kv_transfer_params":
			r.transfer = f.value
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
func (r *responsesFields) chat() (*chatFields, error) {
	switch {
	case given(r.previousID):
		return nil, failf(reasonPreviousResponse, "the conversation so far is the engine's: previous_response_id")
	case given(r.previousMessages):
		return nil, failf(reasonUnsupported, "previous_input_messages")
	case given(r.prompt):
		return nil, refusef("prompt templates are not supported")
	}
	c := &chatFields{
		templateKwargs: r.templateKwargs, mediaKwargs: r.mediaKwargs, processorKwargs: r.processorKwargs,
		transfer: r.transfer,
		// Unlike chat completions, and so twice where the template adds them too.
		addSpecial: jinja.Bool(true),
	}
	if given(r.truncation) && !isText(r.truncation, "disabled") {
		c.keep = jinja.Int(-1)
	}
	if given(r.reasoning) {
		reasoning := r.reasoning.Dict()
		if reasoning == nil {
			return nil, refusef("reasoning is not an object")
		}
		c.effort = lookup(reasoning, "effort")
	}
	messages := jinja.NewList()
	if given(r.instructions) {
		if r.instructions.Kind() != jinja.KindString {
			return nil, refusef("instructions are not text")
		}
		if r.instructions.Str() != "" {
			messages.Append(message("system", r.instructions))
		}
	}
	switch items := r.input.List(); {
	case r.input.Kind() == jinja.KindString:
		messages.Append(message("user", r.input))
	case items != nil:
		for i, item := range items.All() {
			if err := addItem(messages, item.Dict()); err != nil {
				return nil, inMessage(err, i)
			}
		}
		if goesOn(items) {
			c.addGeneration, c.continueFinal = jinja.Bool(false), jinja.Bool(true)
		}
	default:
		return nil, refusef("input is neither text nor a list")
	}
	c.messages = jinja.FromList(messages)
	var err error
	c.tools, err = responsesTools(r.tools)
	return c, err
}

func message(role string, content jinja.Value) jinja.Value {
	d := jinja.NewDict(2)
	d.Set("role", jinja.String(role))
	d.Set("content", content)
	return jinja.FromDict(d)
}

// goesOn reports whether the last item is one that the model is to continue
// (should_continue_final_message).
func goesOn(items *jinja.List) bool {
	if items.Len() == 0 {
		return false
	}
	last := items.At(items.Len() - 1).Dict()
	if kind := lookup(last, "type"); !kind.IsUndefined() && !isText(kind, "message") && !isText(kind, "reasoning") {
		return false
	}
	status := lookup(last, "status")
	return isText(status, "in_progress") || isText(status, "incomplete")
}

// addItem adds an item of the input to the messages, or to the last one: a turn
// of the assistant is an item for its reasoning, its text and each of its calls.
func addItem(messages *jinja.List, item *jinja.Dict) error {
	if item == nil {
		return refusef("not an object")
	}
	kind := lookup(item, "type")
	if given(kind) && kind.Kind() != jinja.KindString {
		return refusef("an item's type is not text")
	}
	switch kind.Str() {
	case "", "message":
		return addMessage(messages, item)
	case "function_call":
		if !areText(item, "call_id", "name", "arguments") {
			return refusef("a function call lacks its id, name or arguments")
		}
		if given(lookup(item, "namespace")) {
			return failf(reasonUnsupported, "a function call with a namespace")
		}
		addCall(messages, lookup(item, "call_id"), lookup(item, "name"), lookup(item, "arguments"))
		return nil
	case "function_call_output":
		output, err := inputContent(lookup(item, "output"))
		if err != nil {
			return err
		}
		if !areText(item, "call_id") {
			return refusef("a function call's output lacks its id")
		}
		m := message("tool", output)
		m.Dict().Set("tool_call_id", lookup(item, "call_id"))
		messages.Append(m)
		return nil
	case "reasoning":
		return addReasoning(messages, item)
	default:
		return failf(reasonUnsupported, "an item of type %s", kind.Str())
	}
}

func addMessage(messages *jinja.List, item *jinja.Dict) error {
	content := lookup(item, "content")
	role := lookup(item, "role")
	if role.Kind() != jinja.KindString {
		return refusef("no role")
	}
	switch role.Str() {
	case "user", "system", "developer":
		content, err := inputContent(content)
		if err != nil {
			return err
		}
		messages.Append(message(role.Str(), content))
		return nil
	case "assistant":
		if parts := content.List(); parts != nil {
			// Only items that say they are messages may have parts; of those the
			// first one counts.
			if !isText(lookup(item, "type"), "message") || parts.Len() == 0 {
				return refusef("an assistant's message is not text")
			}
			for _, v := range parts.All() {
				if !isText(lookup(v.Dict(), "type"), "output_text") || !areText(v.Dict(), "text") {
					return refusef("a part is not of type output_text")
				}
			}
			content = lookup(parts.At(0).Dict(), "text")
		}
		if content.Kind() != jinja.KindString {
			return refusef("an assistant's message is not text")
		}
		addToAssistant(messages, "content", content)
		return nil
	default:
		return refusef("role %q", role.Str())
	}
}

// inputContent returns a text, or the parts of one as chat requests name them.
func inputContent(content jinja.Value) (jinja.Value, error) {
	if content.Kind() == jinja.KindString {
		return content, nil
	}
	if content.List() == nil {
		return content, refusef("content is neither text nor a list")
	}
	parts := jinja.NewList()
	for _, v := range content.List().All() {
		kind, text := lookup(v.Dict(), "type"), lookup(v.Dict(), "text")
		switch {
		case isText(kind, "input_image"), isText(kind, "input_file"), isText(kind, "input_audio"):
			return content, failf(reasonMultimodal, "a part is of type %s", kind.Str())
		case !isText(kind, "input_text") || text.Kind() != jinja.KindString:
			return content, refusef("a part is not of type input_text")
		}
		parts.Append(textPart(text))
	}
	return jinja.FromList(parts), nil
}

func addReasoning(messages *jinja.List, item *jinja.Dict) error {
	if truthy(lookup(item, "encrypted_content")) {
		return refusef("encrypted reasoning")
	}
	text := jinja.String("")
	for _, key := range [...]string{"content", "summary"} {
		parts := lookup(item, key)
		if given(parts) && parts.List() == nil || key == "summary" && parts.List() == nil {
			return refusef("a reasoning's %s is not a list", key)
		}
		for _, part := range items(parts.List()) {
			if !areText(part.Dict(), "text") {
				return refusef("a reasoning's %s holds something else than text", key)
			}
		}
	}
	for _, key := range [...]string{"content", "summary"} {
		if parts := lookup(item, key).List(); parts != nil && parts.Len() > 0 {
			text = lookup(parts.At(0).Dict(), "text")
			break
		}
	}
	addToAssistant(messages, "reasoning", text)
	return nil
}

// addToAssistant completes the last message if that is the assistant's and
// lacks the key, and begins another one otherwise.
func addToAssistant(messages *jinja.List, key string, v jinja.Value) {
	last := lastAssistant(messages)
	if last != nil && !given(lookup(last, key)) {
		last.Set(key, v)
		return
	}
	d := jinja.NewDict(4)
	d.Set("role", jinja.String("assistant"))
	d.Set(key, v)
	messages.Append(jinja.FromDict(d))
}

func addCall(messages *jinja.List, id, name, arguments jinja.Value) {
	function := jinja.NewDict(2)
	function.Set("name", name)
	function.Set("arguments", arguments)
	call := jinja.NewDict(3)
	call.Set("id", id)
	call.Set("function", jinja.FromDict(function))
	call.Set("type", jinja.String("function"))
	if last := lastAssistant(messages); last != nil {
		if calls := lookup(last, "tool_calls").List(); calls != nil {
			calls.Append(jinja.FromDict(call))
			return
		}
	}
	addToAssistant(messages, "tool_calls", jinja.FromList(jinja.NewList(jinja.FromDict(call))))
}

func lastAssistant(messages *jinja.List) *jinja.Dict {
	if messages.Len() == 0 {
		return nil
	}
	last := messages.At(messages.Len() - 1).Dict()
	if !isText(lookup(last, "role"), "assistant") {
		return nil
	}
	return last
}

// responsesTools returns the functions among the tools as chat completions
// declare them (construct_tool_dicts).
func responsesTools(sent jinja.Value) (jinja.Value, error) {
	if sent.IsUndefined() {
		return sent, nil
	}
	list := sent.List()
	if list == nil {
		return sent, refusef("tools is not a list")
	}
	if list.Len() == 0 {
		return jinja.Undefined(), nil
	}
	tools := jinja.NewList()
	for _, v := range list.All() {
		tool := v.Dict()
		kind := lookup(tool, "type")
		switch {
		case isText(kind, "function"):
		case isText(kind, "custom"), isText(kind, "namespace"):
			return sent, failf(reasonUnsupported, "a tool of type %s", kind.Str())
		case kind.Kind() == jinja.KindString:
			continue // the engine's own, which no template sees
		default:
			return sent, refusef("a tool has no type")
		}
		function := jinja.NewDict(5)
		for _, key := range [...]string{"name", "description", "parameters", "strict", "defer_loading"} {
			setGiven(function, key, lookup(tool, key))
		}
		d := jinja.NewDict(2)
		d.Set("type", kind)
		d.Set("function", jinja.FromDict(function))
		tools.Append(jinja.FromDict(d))
	}
	return jinja.FromList(tools), nil
}
