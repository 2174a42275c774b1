package tokenize

import "testing"

func TestKindOf(t *testing.T) {
	for path, want := range map[string]Kind{
		"/v1/chat/completions":         Chat,
		"/v1/completions":              Completion,
		"/v1/responses":                Responses,
		"/v1/messages":                 Messages,
		"/v1/messages/count_tokens":    Messages,
		"/v1/chat/completions?a=b":     Chat,
		"/team/v1/completions":         Completion,
		"/v1/chat/completions/":        0,
		"/v1/responses/resp_1/cancel":  0,
		"/v1/messages/batches":         0,
		"/x?/v1/chat/completions":      0,
		"":                             0,
		"/v1/chat/completions/batches": 0,
	} {
		if got := KindOf(path); got != want {
			t.Errorf("%q: got kind %d, want %d", path, got, want)
		}
	}
}
