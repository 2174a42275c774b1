package tokenize

import (
	"strings"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// compiled is a chat template and what engines conclude from its source.
type compiled struct {
	parsed *jinja.Template
	source string
	// parts: the template reads message content as a list of parts, by each
	// rule, so that the engine hands it one, and a string otherwise.
	parts [partsRules]bool
	// developer: the template knows the role developer.
	developer bool
}

func compile(source string) (*compiled, error) {
	parsed, err := jinja.Parse(source)
	if err != nil {
		return nil, err
	}
	return &compiled{
		parsed:    parsed,
		source:    source,
		parts:     readsParts(source),
		developer: strings.Contains(source, `"developer"`) || strings.Contains(source, `'developer'`),
	}, nil
}

// templates are the chat templates of a model: one, or several by name.
type templates struct {
	named map[string]*compiled
	// failed says why a name has no usable template; under "" why the model has
	// none at all.
	failed map[string]error
}

// choose returns the template transformers picks
// (PreTrainedTokenizerBase.get_chat_template).
func (t *templates) choose(tools bool) (*compiled, error) {
	name := "default"
	if _, broken := t.failed["tool_use"]; tools && (broken || t.named["tool_use"] != nil) {
		name = "tool_use"
	}
	if c := t.named[name]; c != nil {
		return c, nil
	}
	if err := t.failed[name]; err != nil {
		return nil, err
	}
	return nil, t.failed[""]
}

// set compiles source under name.
func (t *templates) set(name, source string) {
	c, err := compile(source)
	if err != nil {
		t.failed[name] = &Error{Reason: reasonTemplateUnsupported, Err: err}
		return
	}
	t.named[name] = c
}

// finalMessage is the text of a conversation's last message that the model is
// to continue, marked so that the rendered prompt can be cut right behind it.
type finalMessage struct {
	text string
}

// The mark of transformers' render_jinja_template. A template that strips its
// input takes the blank off, which tells how to cut.
const (
	finalMark        = "CONTINUE_FINAL_MESSAGE_TAG "
	finalMarkTrimmed = "CONTINUE_FINAL_MESSAGE_TAG"
)

// markFinal adds the mark to the last message, which must belong to the caller.
func markFinal(messages *jinja.List, template *compiled) (*finalMessage, error) {
	if !strings.Contains(template.source, "content") {
		return nil, refusef("continue_final_message: the template does not read content")
	}
	last := messages.At(messages.Len() - 1).Dict()
	content, _ := last.Get("content")
	if content.Kind() == jinja.KindString {
		last.Set("content", jinja.String(content.Str()+finalMark))
		return &finalMessage{content.Str()}, nil
	}
	parts := content.List()
	if parts == nil {
		return nil, refusef("continue_final_message: the last message has no content")
	}
	for i := parts.Len() - 1; i >= 0; i-- {
		part := parts.At(i).Dict()
		text, ok := part.Get("text")
		if !ok {
			continue
		}
		if text.Kind() != jinja.KindString {
			return nil, refusef("continue_final_message: the last part is not text")
		}
		part.Set("text", jinja.String(text.Str()+finalMark))
		return &finalMessage{text.Str()}, nil
	}
	return nil, refusef("continue_final_message: the last message has no text")
}

// cut returns the rendered prompt up to where the model continues.
func (f *finalMessage) cut(rendered string) (string, error) {
	at := strings.LastIndex(rendered, finalMarkTrimmed)
	if at < 0 || !strings.Contains(rendered, strings.TrimFunc(f.text, pythonSpace)) {
		return "", failf(reasonTemplateError, "continue_final_message: the template leaves the last message out")
	}
	if strings.HasPrefix(rendered[at:], finalMark) {
		return rendered[:at], nil
	}
	return strings.TrimRightFunc(rendered[:at], pythonSpace), nil
}

// pythonSpace is what str.strip removes.
func pythonSpace(r rune) bool {
	switch {
	case r >= 0x09 && r <= 0x0d, r >= 0x1c && r <= 0x20, r == 0x85, r == 0xa0, r == 0x1680,
		r >= 0x2000 && r <= 0x200a, r == 0x2028, r == 0x2029, r == 0x202f, r == 0x205f, r == 0x3000:
		return true
	default:
		return false
	}
}
