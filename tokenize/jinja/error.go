package jinja

import "fmt"

// Cause groups errors by what went wrong. Its text is a bounded label.
type Cause string

// The causes of errors.
const (
	CauseSyntax      Cause = "syntax"      // the template does not parse
	CauseUnsupported Cause = "unsupported" // the template uses a feature this package does not have
	CauseUndefined   Cause = "undefined"   // use of a value that is not there
	CauseType        Cause = "type"        // an operation Python refuses for these values
	CauseSecurity    Cause = "security"    // an operation the sandbox refuses, such as changing a list
	CauseRaised      Cause = "raised"      // the template called raise_exception
	CauseLimit       Cause = "limit"       // too many steps, too deep, or too much output
)

// Error is what Parse and Render return.
type Error struct {
	Line   int // in the template, from 1
	Cause  Cause
	Reason string
}

// Error returns the line and the reason.
func (e *Error) Error() string {
	return fmt.Sprintf("jinja: line %d: %s", e.Line, e.Reason)
}

// fault is an error before it knows its line: the statement that is running
// adds it.
func fault(c Cause, format string, args ...any) *Error {
	if len(args) == 0 {
		return &Error{Cause: c, Reason: format}
	}
	return &Error{Cause: c, Reason: fmt.Sprintf(format, args...)}
}

// typeFault is a Python TypeError or ValueError.
func typeFault(format string, args ...any) *Error {
	return fault(CauseType, format, args...)
}
