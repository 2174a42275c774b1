package tokenize

import (
	"regexp"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// anthropicRules are what vLLM finds out about a model by rendering for its
// Anthropic API: when it starts, and when thinking is first disabled.
type anthropicRules struct {
	// systemFirst: the template refuses system messages that are not in front,
	// so that they are merged into the leading one.
	systemFirst bool
	// disabledEffort is the reasoning effort that stands for disabled thinking:
	// none, or low where the template makes nothing of none.
	disabledEffort string
}

func (e vllm) anthropicRules(t *Tokenizer) anthropicRules {
	return anthropicRules{systemFirst: wantsSystemFirst(t), disabledEffort: e.disabledEffort(t)}
}

// generationTag is one that the engine's probe does not know.
var generationTag = regexp.MustCompile(`\{%[-+]?\s*generation\b`)

// wantsSystemFirst does what _should_merge_inline_system does: its environment
// lacks the functions that transformers adds, so that templates which call them
// fail too.
func wantsSystemFirst(t *Tokenizer) bool {
	vars := jinja.NewDict(5)
	messages := jinja.NewList()
	for _, role := range [...]string{"system", "user", "system", "user"} {
		messages.Append(message(role, jinja.String("t")))
	}
	vars.Set("messages", jinja.FromList(messages))
	vars.Set("add_generation_prompt", jinja.Bool(false))
	vars.Set("raise_exception", jinja.Undefined())
	vars.Set("strftime_now", jinja.Undefined())
	for _, tools := range [...]bool{false, true} {
		template, err := t.templates.choose(tools)
		if err != nil || generationTag.MatchString(template.source) {
			return true
		}
		if _, err := template.parsed.Render(nil, vars, jinja.Options{Now: t.now}); err != nil {
			return true
		}
	}
	return false
}

// disabledEffort does what _probe_disabled_thinking_effort does.
func (e vllm) disabledEffort(t *Tokenizer) string {
	none, ok := e.probe(t, "none")
	if !ok {
		return "low"
	}
	for _, effort := range [...]string{"low", "medium", "high", "xhigh", "max"} {
		if text, ok := e.probe(t, effort); ok && text == none {
			return "low"
		}
	}
	return "none"
}

func (e vllm) probe(t *Tokenizer, effort string) (text string, ok bool) {
	ready, err := e.prepare(t, &chatFields{
		messages: jinja.FromList(jinja.NewList(message("user", jinja.String("Hi")))),
		effort:   jinja.String(effort),
	})
	if err != nil {
		return "", false
	}
	var buf []byte
	text, err = t.text(&buf, &ready)
	return text, err == nil
}
