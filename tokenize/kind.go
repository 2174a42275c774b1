package tokenize

import "strings"

// Kind says which API a prompt came through, and so how the engine reads it.
type Kind uint8

// The request shapes that are tokenized.
const (
	Chat       Kind = iota + 1 // POST /v1/chat/completions
	Completion                 // POST /v1/completions
	Responses                  // POST /v1/responses
	Messages                   // POST /v1/messages and /v1/messages/count_tokens
)

// KindOf says through which API a request path asks, 0 when its prompts are not
// read. A query does not count, nor does what stands before the API's own path:
// that is a route of the gateway.
func KindOf(path string) Kind {
	path, _, _ = strings.Cut(path, "?")
	for _, api := range paths {
		if strings.HasSuffix(path, api.path) {
			return api.kind
		}
	}
	return 0
}

var paths = [...]struct {
	path string
	kind Kind
}{
	{"/v1/chat/completions", Chat},
	{"/v1/completions", Completion},
	{"/v1/responses", Responses},
	{"/v1/messages", Messages},
	{"/v1/messages/count_tokens", Messages},
}
