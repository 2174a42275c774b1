package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// maxBody bounds a request body.
const maxBody = 64 << 20

// apiError is an answer in the shape of vLLM's error bodies.
type apiError struct {
	status  int
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

func (e *apiError) Error() string { return "server: " + e.Message }

// badRequest is what vLLM's handlers say; param names the field, "" for none.
func badRequest(param, format string, args ...any) *apiError {
	return newError(http.StatusBadRequest, "BadRequestError", param, fmt.Sprintf(format, args...))
}

// invalid is what vLLM's body validation says.
func invalid(loc, kind, format string, args ...any) *apiError {
	msg := fmt.Sprintf("1 validation error:\n  {'type': '%s', 'loc': '%s', 'msg': '%s'}", kind, loc, fmt.Sprintf(format, args...))
	return newError(http.StatusBadRequest, "Bad Request", loc, msg)
}

func newError(status int, kind, param, message string) *apiError {
	e := &apiError{status: status, Message: message, Type: kind, Code: status}
	if param != "" {
		e.Param = &param
	}
	return e
}

func writeError(w http.ResponseWriter, err error) {
	var e *apiError
	if !errors.As(err, &e) {
		e = newError(http.StatusInternalServerError, "InternalServerError", "", err.Error())
	}
	writeJSON(w, e.status, map[string]*apiError{"error": e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	b := bytes.TrimRight(buf.Bytes(), "\n")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that is gone has nothing to be told
}

// decode reads a JSON body as vLLM's front end does.
func decode(w http.ResponseWriter, r *http.Request, v any) ([]byte, error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, newError(http.StatusBadRequest, "Bad Request", "",
			"1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, newError(http.StatusRequestEntityTooLarge, "RequestEntityTooLargeError", "", err.Error())
	}
	err = json.Unmarshal(body, v)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &syntax):
		return nil, invalid("body."+strconv.FormatInt(syntax.Offset, 10), "json_invalid", "JSON decode error")
	case errors.As(err, &kind) && kind.Field == "":
		return nil, invalid("body", "model_attributes_type", "Input should be a valid dictionary or object to extract fields from")
	case errors.As(err, &kind):
		return nil, invalid("body."+kind.Field, "type_error", "Input should be a valid %s", kind.Type)
	}
	return nil, invalid("body", "value_error", "%s", err)
}

// sampling is what both kinds of generation requests have.
type sampling struct {
	Model               string  `json:"model"`
	MaxTokens           *int    `json:"max_tokens"`
	MaxCompletionTokens *int    `json:"max_completion_tokens"`
	Stream              bool    `json:"stream"`
	CacheSalt           *string `json:"cache_salt"`
	ReturnTokenIDs      bool    `json:"return_token_ids"`
	StreamOptions       struct {
		IncludeUsage    bool `json:"include_usage"`
		ContinuousUsage bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
}

// validate checks what does not depend on the prompt.
func (s *sampling) validate(maxLen int) error {
	for name, n := range map[string]*int{"max_tokens": s.MaxTokens, "max_completion_tokens": s.MaxCompletionTokens} {
		switch {
		case n == nil:
		case *n < 1:
			return badRequest(name, "%s must be at least 1, got %d. (parameter=%s, value=%d)", name, *n, name, *n)
		case *n > maxLen:
			return badRequest(name, "%s=%d cannot be greater than max_model_len=%d. Please request fewer output tokens. (parameter=%s, value=%d)",
				name, *n, maxLen, name, *n)
		}
	}
	if s.CacheSalt != nil {
		salt := *s.CacheSalt
		if salt == "" || len([]rune(salt)) > 128 || strings.ContainsAny(salt, "@/\\\x00") {
			return invalid("body.cache_salt", "value_error",
				"Value error, cache_salt must be a non-empty string of at most 128 characters without @, slash, backslash or NUL")
		}
	}
	return nil
}

// length is the output length asked for; 0 when the request leaves it open.
func (s *sampling) length() int {
	if s.MaxCompletionTokens != nil {
		return *s.MaxCompletionTokens
	}
	if s.MaxTokens != nil {
		return *s.MaxTokens
	}
	return 0
}

// completionRequest is the body of /v1/completions.
type completionRequest struct {
	sampling
	Prompt           json.RawMessage `json:"prompt"`
	AddSpecialTokens *bool           `json:"add_special_tokens"`
}

// prompts is the prompt field as a list: each a text or token ids.
func (c *completionRequest) prompts(encode func(text string, special bool) ([]uint32, error)) ([][]uint32, error) {
	special := c.AddSpecialTokens == nil || *c.AddSpecialTokens
	var text string
	var texts []string
	var ids []uint32
	var lists [][]uint32
	switch {
	case len(c.Prompt) == 0 || bytes.Equal(c.Prompt, []byte("null")):
		return nil, invalid("body.prompt", "missing", "Field required")
	case json.Unmarshal(c.Prompt, &text) == nil:
		texts = []string{text}
	case json.Unmarshal(c.Prompt, &texts) == nil:
	case json.Unmarshal(c.Prompt, &ids) == nil:
		return [][]uint32{ids}, nil
	case json.Unmarshal(c.Prompt, &lists) == nil:
		return lists, nil
	default:
		return nil, invalid("body.prompt", "type_error", "Input should be a text, a list of texts, token ids or a list of those")
	}
	for _, s := range texts {
		t, err := encode(s, special)
		if err != nil {
			return nil, badRequest("prompt", "%s", err)
		}
		lists = append(lists, t)
	}
	if len(lists) == 0 {
		return nil, badRequest("prompt", "Either prompt or prompt_embeds must be provided and non-empty.")
	}
	return lists, nil
}

// usage is how many tokens a request took.
type usage struct {
	PromptTokens     int            `json:"prompt_tokens"`
	TotalTokens      int            `json:"total_tokens"`
	CompletionTokens int            `json:"completion_tokens"`
	PromptDetails    *promptDetails `json:"prompt_tokens_details"`
	OutputDetails    *struct{}      `json:"completion_tokens_details"`
}

type promptDetails struct {
	Cached     int       `json:"cached_tokens"`
	Created    *int      `json:"created_cache_tokens"`
	Multimodal *struct{} `json:"multimodal_tokens"`
}

// streamUsage is usage as the last chunk of a stream has it: without nulls.
type streamUsage struct {
	PromptTokens     int                  `json:"prompt_tokens"`
	TotalTokens      int                  `json:"total_tokens"`
	CompletionTokens int                  `json:"completion_tokens"`
	PromptDetails    *streamPromptDetails `json:"prompt_tokens_details,omitempty"`
}

type streamPromptDetails struct {
	Cached  int  `json:"cached_tokens"`
	Created *int `json:"created_cache_tokens,omitempty"`
}

func (u *usage) stream() *streamUsage {
	s := &streamUsage{PromptTokens: u.PromptTokens, TotalTokens: u.TotalTokens, CompletionTokens: u.CompletionTokens}
	if u.PromptDetails != nil {
		s.PromptDetails = &streamPromptDetails{u.PromptDetails.Cached, u.PromptDetails.Created}
	}
	return s
}

// methods answers with handle for one method and 405 for the others, in the
// words of vLLM's front end.
func method(name string, handle http.HandlerFunc) http.HandlerFunc {
	allowed := []string{name}
	if name == http.MethodGet {
		allowed = append(allowed, http.MethodHead)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(allowed, r.Method) {
			w.Header().Set("Allow", name)
			writeJSON(w, http.StatusMethodNotAllowed, map[string]string{"detail": "Method Not Allowed"})
			return
		}
		handle(w, r)
	}
}
