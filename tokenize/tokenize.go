// Package tokenize turns a request into the token ids the engine will compute.
//
// It prepares the messages the way the engine does, renders the model's chat
// template and encodes the text with the model's tokenizer. A Tokenizer is
// immutable and may be used from many goroutines at once.
package tokenize

// Kind says which API a prompt came through, and so how the engine reads it.
type Kind uint8

// The request shapes that are tokenized.
const (
	Chat       Kind = iota + 1 // POST /v1/chat/completions
	Completion                 // POST /v1/completions
)

// Prompt is one request as the client sent it.
type Prompt struct {
	Kind Kind
	Body []byte // the JSON request body; only read
}
