package tokenize

import (
	"bytes"
	"errors"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// fields walks the members of a JSON object and leaves their values undecoded:
// a request has dozens of members of which a few decide the prompt. It checks
// as much of a value as finding its end takes.
type fields struct {
	rest  []byte
	first bool

	key   string
	value []byte
	err   error
}

var (
	errNotObject = errors.New("the body is not a JSON object")
	errJSON      = errors.New("the body is not valid JSON")
)

func newFields(body []byte) fields {
	// Python's json.loads skips a byte order mark.
	rest := space(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")))
	if len(rest) == 0 || rest[0] != '{' {
		return fields{err: errNotObject}
	}
	return fields{rest: space(rest[1:]), first: true}
}

// next advances to the next member and reports whether there is one. Of equal
// keys the last one counts: later members overwrite what earlier ones set.
func (f *fields) next() bool {
	if f.err != nil {
		return false
	}
	if len(f.rest) > 0 && f.rest[0] == '}' {
		if len(space(f.rest[1:])) > 0 {
			f.err = errJSON
		}
		return false
	}
	if !f.first && !f.skip(',') {
		return false
	}
	f.first = false
	key, rest, ok := rawString(f.rest)
	if !ok {
		f.err = errJSON
		return false
	}
	f.rest = space(rest)
	if !f.skip(':') {
		return false
	}
	value, rest, ok := rawValue(f.rest)
	if !ok {
		f.err = errJSON
		return false
	}
	f.key = member(key)
	f.value, f.rest = value, space(rest)
	return true
}

// skip passes one punctuation mark and the blanks behind it.
func (f *fields) skip(c byte) bool {
	if len(f.rest) == 0 || f.rest[0] != c {
		f.err = errJSON
		return false
	}
	f.rest = space(f.rest[1:])
	return true
}

// member returns the name that is written as key, quotes included, or "" for a
// name that no request field has.
func member(key []byte) string {
	if bytes.IndexByte(key, '\\') >= 0 {
		v, err := jinja.DecodeJSON(key)
		if err != nil {
			return ""
		}
		key = []byte(`"` + v.Str() + `"`)
	}
	for _, name := range memberNames {
		if string(key[1:len(key)-1]) == name {
			return name
		}
	}
	return ""
}

// memberNames are the request fields that decide a prompt.
var memberNames = [...]string{
	"messages", "prompt", "tools", "tool_choice", "documents",
	"add_generation_prompt", "continue_final_message", "add_special_tokens", "echo",
	"chat_template", "chat_template_kwargs", "reasoning_effort",
	"media_io_kwargs", "mm_processor_kwargs", "kv_transfer_params",
	"truncate_prompt_tokens", "truncation_side", "prompt_embeds", "suffix", "prompt_token_ids",
	"input", "instructions", "truncation", "reasoning", "previous_response_id", "previous_input_messages",
	"system", "thinking", "output_config",
}

func space(b []byte) []byte {
	for i, c := range b {
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return b[i:]
		}
	}
	return nil
}

// rawString splits a JSON string, quotes included, off the front of b.
func rawString(b []byte) (raw, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, false
	}
	for i := 1; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return nil, nil, false
		}
		i += n
		slashes := 0
		for b[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return b[:i+1], b[i+1:], true
		}
	}
}

// rawValue splits a JSON value off the front of b. Inside of arrays and objects
// it looks at quotes and brackets alone.
func rawValue(b []byte) (raw, rest []byte, ok bool) {
	if len(b) > 0 && b[0] == '[' { // nothing else: for the end of a list each value would search the rest of the body
		if end := bytes.IndexByte(b, ']'); end > 0 && isFlat(b[1:end]) {
			return b[:end+1], b[end+1:], true
		}
	}
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			s, _, ok := rawString(b[i:])
			if !ok {
				return nil, nil, false
			}
			i += len(s) - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if depth > 0 {
				continue
			}
			n := bytes.IndexAny(b[i:], " \n\t\r,:}]{[\"")
			if n < 0 {
				n = len(b) - i
			}
			if n == 0 {
				return nil, nil, false
			}
			i += n - 1
		}
		if depth < 0 {
			return nil, nil, false
		}
		if depth == 0 {
			return b[:i+1], b[i+1:], true
		}
	}
	return nil, nil, false
}

// isFlat reports whether b opens nothing, as the inside of an array of numbers.
func isFlat(b []byte) bool {
	return bytes.IndexByte(b, '"') < 0 && bytes.IndexByte(b, '[') < 0 && bytes.IndexByte(b, '{') < 0
}
