package tokenize

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// vllm reads requests as vLLM 0.23 to 0.34 with transformers 5 does. The rules
// are those of vllm/entrypoints/openai/chat_completion/protocol.py,
// vllm/renderers/{online_renderer,chat_utils,hf,params}.py and transformers'
// apply_chat_template; testdata/vllm-0.32.jsonl holds what they made of requests.
// Releases were compared function by function; those of 0.23 and 0.32 also ran.
//
// Members that do not touch the prompt are not looked at. Where one of them
// makes the engine refuse the request, it was tokenized for nothing, which harms
// nobody.
type vllm struct {
	release int // the 32 of 0.32
	library transformers
	// trustTemplate: the engine runs with --trust-request-chat-template.
	trustTemplate bool
	// format is --chat-template-content-format: "auto", "string" or "openai".
	format string
}

// The releases of vLLM that read chat requests in another way than the one
// before.
const (
	vllmOldest       = 23 // before, a developer message was none of a system's
	vllmStrictTools  = 24 // a function declares strict
	vllmPartExtras   = 26 // members of a part that no type declares reach the template
	vllmClosedTools  = 27 // those of a tool do not any more
	vllmReusedIDs    = 27 // ids that a prefill engine sent along are the prompt
	vllmAnyArguments = 29 // arguments of a call that are no object become an empty one
	vllmMacroParts   = 30 // macros count in finding out the content format
	vllmBilling      = 32 // a coding client's billing header is dropped
	vllmNamespaces   = 33 // and so do members of a namespace
	vllmNoEmptyTools = 34 // an empty list of tools is none, and no error
	vllmNewest       = 34

	// vllmOtherAPIs is the one release whose reading of the Responses and the
	// Anthropic API is known: it changed with every one.
	vllmOtherAPIs = 32
)

// vllmRelease reads a version as vLLM tells it. Development versions count as
// the release they lead to, and what is not a version as the newest one.
func vllmRelease(version string) (int, error) {
	if version == "" {
		return vllmOtherAPIs, nil
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	release, err := strconv.Atoi(minor)
	if major != "0" || err != nil {
		return vllmNewest, nil //nolint:nilerr // whatever it is, it is not old
	}
	if release < vllmOldest {
		return 0, fmt.Errorf("vLLM %s is not known: releases from 0.%d on are", version, vllmOldest)
	}
	return min(release, vllmNewest), nil
}

// chatFields are the members of a chat request that decide its prompt. One that
// was not sent is undefined.
type chatFields struct {
	messages, tools, toolChoice, documents         jinja.Value
	addGeneration, continueFinal, addSpecial, echo jinja.Value
	template, templateKwargs, effort               jinja.Value
	mediaKwargs, processorKwargs, keep, side       jinja.Value
	// transfer is kv_transfer_params as sent: it may hold a prompt's token ids.
	transfer []byte
}

func (c *chatFields) read(body []byte) error {
	f := newFields(body)
	for f.next() {
		if f.key == "kv_transfer_params" {
			c.transfer = f.value
			continue
		}
		into := c.member(f.key)
		if into == nil {
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

// member returns where the member's value belongs, nil when nowhere.
func (c *chatFields) member(name string) *jinja.Value {
	switch name {
	case "messages":
		return &c.messages
	case "tools":
		return &c.tools
	case "tool_choice":
		return &c.toolChoice
	case "documents":
		return &c.documents
	case "add_generation_prompt":
		return &c.addGeneration
	case "continue_final_message":
		return &c.continueFinal
	case "add_special_tokens":
		return &c.addSpecial
	case "echo":
		return &c.echo
	case "chat_template":
		return &c.template
	case "chat_template_kwargs":
		return &c.templateKwargs
	case "reasoning_effort":
		return &c.effort
	case "media_io_kwargs":
		return &c.mediaKwargs
	case "mm_processor_kwargs":
		return &c.processorKwargs
	case "truncate_prompt_tokens":
		return &c.keep
	case "truncation_side":
		return &c.side
	default:
		return nil
	}
}

// chat prepares a /v1/chat/completions request.
func (e vllm) chat(t *Tokenizer, body []byte) (prepared, error) {
	var fields chatFields
	if err := fields.read(body); err != nil {
		return prepared{}, err
	}
	if fields.tools.List() != nil && fields.tools.List().Len() == 0 {
		if e.release < vllmNoEmptyTools || fields.toolChoice.Dict() != nil {
			return prepared{}, refusef("tools is an empty list")
		}
		fields.tools = jinja.None()
		if isText(fields.toolChoice, "auto") || isText(fields.toolChoice, "required") {
			fields.toolChoice = jinja.String("none")
		}
	}
	return e.prepare(t, &fields)
}

// prepare makes of a chat request what its template sees. Every request shape
// that ends in the chat template comes through here.
func (e vllm) prepare(t *Tokenizer, fields *chatFields) (prepared, error) {
	req, err := e.decode(fields)
	if err != nil {
		return prepared{}, err
	}
	if e.release >= vllmReusedIDs {
		if ids, err := fields.reusedIDs(req); err != nil || ids != nil {
			return prepared{ids: ids}, err
		}
	}
	ready := prepared{special: req.addSpecial, cut: req.cut}
	vars, err := req.variables(t)
	if err != nil {
		return prepared{}, err
	}
	tools, _ := vars.Get("tools")
	if ready.template, err = e.template(t, req, !tools.IsNone()); err != nil {
		return prepared{}, err
	}
	parts := ready.template.parts[e.partsRule()]
	if e.format != "auto" {
		parts = e.format == "openai"
	}
	messages, err := e.messagesOf(req.messages, parts)
	if err != nil {
		return prepared{}, err
	}
	if !ready.template.developer {
		if messages, err = developerAsSystem(messages); err != nil {
			return prepared{}, err
		}
	}
	if messages.Len() == 0 {
		return prepared{}, refusef("no messages")
	}
	messages = e.library.prepare(messages)
	if req.continueFinal {
		if ready.final, err = markFinal(messages, ready.template); err != nil {
			return prepared{}, err
		}
	}
	vars.Set("messages", jinja.FromList(messages))
	ready.vars = vars
	return ready, nil
}

// vllmTransformers is what the images of a release bring, by its requirements:
// the first that matters came out with 0.33, which excludes it.
func vllmTransformers(release int) transformers {
	if release > 33 {
		return transformers{5, 22}
	}
	return transformers{5, 19}
}

// partsRule is how e finds out whether a template reads parts.
func (e vllm) partsRule() partsRule {
	switch {
	case e.release >= vllmNamespaces:
		return partsNamespaces
	case e.release >= vllmMacroParts:
		return partsMacros
	default:
		return partsPlain
	}
}

// maxRequestTemplate bounds what one request costs to compile, in bytes; the
// largest template of a known model has 30 KB.
const maxRequestTemplate = 128 << 10

// template returns the request's own template where it is trusted, else the
// model's.
func (e vllm) template(t *Tokenizer, req *vllmRequest, tools bool) (*compiled, error) {
	if req.template == nil {
		return t.templates.choose(tools)
	}
	if !e.trustTemplate {
		return nil, failf(reasonRequestTemplate, "the request brings a chat template")
	}
	if *req.template == "" {
		return t.templates.choose(tools)
	}
	if c := t.templates.named[*req.template]; c != nil {
		return c, nil
	}
	if len(*req.template) > maxRequestTemplate {
		return nil, failf(reasonTemplateLimit, "the request's chat template has %d bytes, at most %d", len(*req.template), maxRequestTemplate)
	}
	c, err := compile(*req.template)
	if err != nil {
		return nil, renderError(err)
	}
	return c, nil
}
