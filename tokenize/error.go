package tokenize

import (
	"context"
	"errors"
	"fmt"

	"github.com/warmroute/warmroute/tokenize/jinja"
	"github.com/warmroute/warmroute/tokenize/native"
)

// Error says why a request has no exact token ids. The request itself may be
// fine; it is placed without them.
type Error struct {
	// Reason is one of a small fixed set of snake_case words, fit for a metric
	// label: abandoned, bad_request, encode_error, multimodal, no_template, no_text, nul,
	// previous_response, prompt_embeds, request_template, suffix, template_error, template_kwargs,
	// template_limit, template_unsupported, too_long, truncated, unknown_model,
	// unsupported.
	Reason string
	Err    error
}

// The reasons.
const (
	// The engine refuses the request too, and answers with its own error.
	reasonBadRequest    = "bad_request"
	reasonTemplateError = "template_error" // the template raised, or used what is not there

	// The engine may well accept the request.
	reasonAbandoned           = "abandoned" // nobody waited for the ids any more
	reasonEncode              = "encode_error"
	reasonEngineVersion       = "engine_version" // how that version reads this API is not known
	reasonMultimodal          = "multimodal"
	reasonNoTemplate          = "no_template"
	reasonNUL                 = "nul"
	reasonPromptEmbeds        = "prompt_embeds"
	reasonPreviousResponse    = "previous_response" // the engine alone knows the conversation so far
	reasonRequestTemplate     = "request_template"  // the request brings a template, and its use is not configured
	reasonSuffix              = "suffix"
	reasonTemplateKwargs      = "template_kwargs" // a template argument that steers the engine itself
	reasonTemplateLimit       = "template_limit"
	reasonTemplateUnsupported = "template_unsupported"
	reasonTooLong             = "too_long"
	reasonTruncated           = "truncated"
	reasonUnknownModel        = "unknown_model"
	reasonUnsupported         = "unsupported"

	reasonNoText = "no_text" // of Render alone
)

// Error returns the reason and what it is about.
func (e *Error) Error() string {
	if e.Err == nil {
		return "tokenize: " + e.Reason
	}
	return "tokenize: " + e.Reason + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func failf(reason, format string, args ...any) error {
	return &Error{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// refusef is the error for what the engine answers 400 to.
func refusef(format string, args ...any) error {
	return failf(reasonBadRequest, format, args...)
}

func encodeError(err error) error {
	switch {
	case errors.Is(err, native.ErrNUL):
		return &Error{Reason: reasonNUL, Err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Error{Reason: reasonAbandoned, Err: err}
	case errors.Is(err, native.ErrTooLong):
		return &Error{Reason: reasonTooLong, Err: err}
	default:
		return &Error{Reason: reasonEncode, Err: err}
	}
}

func renderError(err error) error {
	reason := reasonTemplateError
	if failure, ok := errors.AsType[*jinja.Error](err); ok {
		switch failure.Cause {
		case jinja.CauseLimit:
			reason = reasonTemplateLimit
		case jinja.CauseUnsupported, jinja.CauseSyntax:
			reason = reasonTemplateUnsupported
		case jinja.CauseUndefined, jinja.CauseType, jinja.CauseSecurity, jinja.CauseRaised:
		}
	}
	return &Error{Reason: reason, Err: err}
}
