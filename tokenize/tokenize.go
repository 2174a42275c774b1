// Package tokenize turns a request into the token ids the engine will compute.
//
// It prepares the messages the way the engine does, renders the model's chat
// template and encodes the text with the model's tokenizer. A Tokenizer is
// immutable and may be used from many goroutines at once. What cannot be
// tokenized exactly is an *Error with a reason, never an approximation.
package tokenize

import (
	"context"
	"sync"
	"time"
	"unsafe"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// Prompt is one request as the client sent it.
type Prompt struct {
	Kind Kind
	Body []byte // the JSON request body; only read
}

// encoder is what a Tokenizer needs of tokenize/native.
type encoder interface {
	Append(ctx context.Context, dst []uint32, text string, addSpecial bool) ([]uint32, error)
	Fast() bool
	Memory() int64
	Close()
}

// dialect is how one engine reads requests: what it refuses, and what it makes
// of a request before the template and the tokenizer see it.
type dialect interface {
	chat(t *Tokenizer, body []byte) (prepared, error)
	completion(body []byte) (prepared, error)
	responses(t *Tokenizer, body []byte) (prepared, error)
	messages(t *Tokenizer, body []byte) (prepared, error)
	anthropicRules(t *Tokenizer) anthropicRules
}

// prepared is a request as the engine would tokenize it: ids, a text, or a
// template with its variables.
type prepared struct {
	ids []byte // JSON array of token ids, or nil

	text     string        // when there is no template
	template *compiled     // nil: text is the prompt
	vars     *jinja.Dict   // of the template
	final    *finalMessage // not nil: the prompt ends within the last message
	special  bool          // the tokenizer adds its special tokens
	cut      truncation    // of the ids
}

// Tokenizer tokenizes for one model as one engine does. Make one with Load.
type Tokenizer struct {
	dialect dialect
	enc     encoder
	// addsSpecial: asked for special tokens, the tokenizer has some to add.
	addsSpecial bool
	templates   templates
	special     *jinja.Dict // bos_token and so on, as the template sees them
	defaults    *jinja.Dict // template variables the engine was started with
	now         func() time.Time
	anthropic   anthropicRules
}

// Append appends the token ids of p to dst. The error is an *Error, and dst is
// then returned as it came. It may wait for its turn to encode, and gives up
// when ctx ends before that turn comes.
func (t *Tokenizer) Append(ctx context.Context, dst []uint32, p *Prompt) ([]uint32, error) {
	ready, err := t.prepare(p)
	if err != nil {
		return dst, err
	}
	before := len(dst)
	if ready.ids != nil {
		if dst, err = appendIDs(dst, ready.ids); err != nil {
			return dst[:before], err
		}
		return ready.cut.apply(dst, before), nil
	}
	buf := buffers.Get().(*[]byte)
	defer release(buf)
	text, err := t.text(buf, &ready)
	if err != nil {
		return dst, err
	}
	ids, err := t.enc.Append(ctx, dst, text, ready.special)
	if err != nil {
		return dst[:before], encodeError(err)
	}
	if ready.special && t.addsSpecial && ready.cut.side == "" && ready.cut.shortens(len(ids)-before) {
		// The engine's tokenizer then keeps the special tokens and cuts between
		// them, which the ids alone do not show.
		return dst[:before], failf(reasonTruncated, "truncate_prompt_tokens with special tokens")
	}
	return ready.cut.apply(ids, before), nil
}

// Render returns the text that Append would encode. A prompt of token ids has
// none, which is an *Error like all that Append returns.
func (t *Tokenizer) Render(p *Prompt) (string, error) {
	ready, err := t.prepare(p)
	if err != nil {
		return "", err
	}
	if ready.ids != nil {
		return "", failf(reasonNoText, "the prompt is token ids")
	}
	var buf []byte
	return t.text(&buf, &ready)
}

// Engine tells whether the fast engine encodes for t, and by how many bytes the
// process grew while t was loaded, 0 where the system does not tell.
func (t *Tokenizer) Engine() (fast bool, bytes int64) { return t.enc.Fast(), t.enc.Memory() }

// Close frees the tokenizer once the calls now running have returned. Later
// calls that need it return an *Error.
func (t *Tokenizer) Close() { t.enc.Close() }

func (t *Tokenizer) prepare(p *Prompt) (prepared, error) {
	switch p.Kind {
	case Chat:
		return t.dialect.chat(t, p.Body)
	case Completion:
		return t.dialect.completion(p.Body)
	case Responses:
		return t.dialect.responses(t, p.Body)
	case Messages:
		return t.dialect.messages(t, p.Body)
	default:
		return prepared{}, failf(reasonUnsupported, "no tokenizer for this kind of request")
	}
}

// text returns the prompt's text, which may lie in buf.
func (t *Tokenizer) text(buf *[]byte, ready *prepared) (string, error) {
	if ready.template == nil {
		return ready.text, nil
	}
	out, err := ready.template.parsed.Render((*buf)[:0], ready.vars, jinja.Options{Now: t.now})
	*buf = out[:0]
	if err != nil {
		return "", renderError(err)
	}
	text := unsafe.String(unsafe.SliceData(out), len(out))
	if ready.final != nil {
		return ready.final.cut(text)
	}
	return text, nil
}

// maxPooledText is the largest rendered prompt whose memory is kept for the
// next: four such buffers per processor are little beside a vocabulary.
const maxPooledText = 1 << 20

var buffers = sync.Pool{New: func() any { return new([]byte) }}

func release(buf *[]byte) {
	if cap(*buf) <= maxPooledText {
		buffers.Put(buf)
	}
}
