package tokenize

import (
	"slices"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// vllmRequest is a chat request after vLLM's checks of it
// (ChatCompletionRequest and its validators).
type vllmRequest struct {
	messages  *jinja.List // as sent
	tools     jinja.Value // vLLM's own dump of them; None without
	documents jinja.Value // None without

	addGeneration, continueFinal, addSpecial, echo bool

	template *string     // the request's own, nil without
	kwargs   *jinja.Dict // chat_template_kwargs
	effort   string      // reasoning_effort, "" without
	cut      truncation
}

func (e vllm) decode(c *chatFields) (*vllmRequest, error) {
	req := &vllmRequest{tools: jinja.None(), documents: jinja.None()}
	if req.messages = c.messages.List(); req.messages == nil {
		return nil, refusef("messages is not a list")
	}
	if err := c.decodeFlags(req); err != nil {
		return nil, err
	}
	if err := e.decodeTools(c, req); err != nil {
		return nil, err
	}
	if err := c.decodeTemplate(req); err != nil {
		return nil, err
	}
	return req, c.decodeDocuments(req)
}

func (c *chatFields) decodeFlags(req *vllmRequest) (err error) {
	if req.addGeneration, err = boolField("add_generation_prompt", c.addGeneration, true); err != nil {
		return err
	}
	if req.continueFinal, err = boolField("continue_final_message", c.continueFinal, false); err != nil {
		return err
	}
	if req.addSpecial, err = boolField("add_special_tokens", c.addSpecial, false); err != nil {
		return err
	}
	if req.echo, err = boolField("echo", c.echo, false); err != nil {
		return err
	}
	if req.continueFinal && req.addGeneration {
		return refusef("continue_final_message needs add_generation_prompt false")
	}
	req.cut, err = truncationFields(c.keep, c.side)
	return err
}

func (c *chatFields) decodeTemplate(req *vllmRequest) error {
	if given(c.template) {
		if c.template.Kind() != jinja.KindString {
			return refusef("chat_template is not text")
		}
		source := c.template.Str()
		req.template = &source
	}
	if given(c.templateKwargs) && c.templateKwargs.Dict() == nil {
		return refusef("chat_template_kwargs is not an object")
	}
	if req.kwargs = c.templateKwargs.Dict(); req.kwargs == nil {
		req.kwargs = jinja.NewDict(0)
	}
	if given(c.effort) {
		req.effort = c.effort.Str()
		if c.effort.Kind() != jinja.KindString || !slices.Contains(vllmEfforts[:], req.effort) {
			return refusef("reasoning_effort is none of %v", vllmEfforts)
		}
	}
	if truthy(c.mediaKwargs) || truthy(c.processorKwargs) {
		return failf(reasonMultimodal, "the request steers the processing of media")
	}
	return nil
}

var vllmEfforts = [...]string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

func (c *chatFields) decodeDocuments(req *vllmRequest) error {
	if !given(c.documents) {
		return nil
	}
	if !isListOfDicts(c.documents) {
		return refusef("documents is not a list of objects")
	}
	for _, document := range c.documents.List().All() {
		for _, text := range document.Dict().All() {
			if text.Kind() != jinja.KindString {
				return refusef("a document holds something else than text")
			}
		}
	}
	req.documents = c.documents
	return nil
}

func isListOfDicts(v jinja.Value) bool {
	if v.Kind() != jinja.KindList {
		return false
	}
	for _, item := range v.List().All() {
		if item.Dict() == nil {
			return false
		}
	}
	return true
}

// reusedIDs returns the prompt's ids, raw, when the prefill stage of a
// disaggregated pair has sent them along (_reused_prompt_token_ids in
// online_renderer.py). Media, and echo, need the messages themselves.
func (c *chatFields) reusedIDs(req *vllmRequest) ([]byte, error) {
	if !isGiven(c.transfer) {
		return nil, nil
	}
	f := newFields(c.transfer)
	var ids []byte
	for f.next() {
		if f.key == "prompt_token_ids" {
			ids = f.value
		}
	}
	switch {
	case f.err != nil:
		return nil, refusef("kv_transfer_params: %w", f.err)
	case !isGiven(ids) || req.echo || hasMedia(req.messages):
		return nil, nil
	case string(ids) == "[]":
		return nil, refusef("kv_transfer_params: prompt_token_ids is empty")
	default:
		return ids, nil
	}
}

// variables returns what the template sees beside the messages, merged as
// ChatParams.with_defaults and apply_chat_template do: later ones win, and of
// the request's arguments null and "auto" count as not given.
func (req *vllmRequest) variables(t *Tokenizer) (*jinja.Dict, error) {
	vars := jinja.NewDict(t.special.Len() + t.defaults.Len() + req.kwargs.Len() + 8)
	for name, v := range t.special.All() {
		vars.Set(name, v)
	}
	vars.Set("tools", jinja.None())
	vars.Set("documents", jinja.None())
	for name, v := range t.defaults.All() {
		vars.Set(name, v)
	}
	if given(req.tools) {
		vars.Set("tools", req.tools)
	}
	thinking := false // enable_thinking is the request's own
	for name, v := range req.kwargs.All() {
		thinking = thinking || name == "enable_thinking"
		if v.IsNone() || v.Kind() == jinja.KindString && v.Str() == "auto" {
			continue
		}
		vars.Set(name, v)
	}
	if req.effort != "" {
		vars.Set("reasoning_effort", jinja.String(req.effort))
		if !thinking {
			vars.Set("enable_thinking", jinja.Bool(req.effort != "none"))
		}
	}
	if given(req.documents) {
		vars.Set("documents", req.documents)
	}
	vars.Set("add_generation_prompt", jinja.Bool(req.addGeneration))
	return vars, checkVariables(vars)
}

// checkVariables takes out the arguments of apply_chat_template that no
// template sees, and refuses those that it or vLLM would stumble over.
func checkVariables(vars *jinja.Dict) error {
	for _, name := range [...]string{"messages", "conversation", "tokenizer", "model_config", "self"} {
		if _, ok := vars.Get(name); ok {
			return refusef("chat_template_kwargs: %s is taken", name)
		}
	}
	if v, _ := vars.Get("chat_template"); given(v) {
		return failf(reasonRequestTemplate, "chat_template_kwargs bring a chat template")
	}
	for _, name := range [...]string{"tokenize", "return_assistant_tokens_mask"} {
		if v, _ := vars.Get(name); truthy(v) {
			return failf(reasonTemplateKwargs, "chat_template_kwargs: %s", name)
		}
		vars.Delete(name)
	}
	for _, name := range [...]string{
		"chat_template", "continue_final_message", "padding", "truncation", "max_length",
		"return_tensors", "return_dict", "tokenizer_kwargs",
	} {
		vars.Delete(name)
	}
	for _, name := range [...]string{"tools", "documents"} {
		if v, _ := vars.Get(name); !v.IsNone() && !isListOfDicts(v) {
			return refusef("chat_template_kwargs: %s is not a list of objects", name)
		}
	}
	return nil
}
