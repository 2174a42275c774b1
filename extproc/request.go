package extproc

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmroute/warmroute/tokenize"
)

// Why a request has no tokens, as far as this package decides it. The values
// are metric labels; tokenize adds its own.
const (
	untokenizedBodyUnseen  = "body_unseen"     // the body mode shows us no body before the pick
	untokenizedBodyPartial = "body_partial"    // only the beginning of the body was sent
	untokenizedTooLarge    = "body_too_large"  // above Config.MaxBody
	untokenizedCompressed  = "compressed"      // content-encoding hides the prompt
	untokenizedOtherAPI    = "other_api"       // a path whose prompt is not read
	untokenizedInvalidJSON = "invalid_json"    // the body is no JSON object
	untokenizedNoModel     = "no_model"        // the body names no model
	untokenizedNoTokenizer = "no_tokenizer"    // none is configured
	untokenizedDeadline    = "deadline"        // Config.Deadline passed first
	untokenizedPanic       = "tokenizer_panic" // a defect; counted and logged
	untokenizedError       = "tokenize_error"  // an error without a reason of its own
)

// request is what is known of one HTTP request.
type request struct {
	id          []byte        // x-request-id, for the log
	kind        tokenize.Kind // zero for a path or method whose prompt is not read
	post        bool
	jsonContent bool // content-type says JSON, or nothing
	compressed  bool
	bodyless    bool

	model       string
	salt        string
	untokenized string // why there will be no tokens; empty while there may be

	// forged lists the headers the client sent although only we may: they
	// leave with every answer to the request headers.
	forged []string

	subset    []netip.AddrPort
	hasSubset bool
}

// readHeaders takes what matters from the request headers.
func (r *request) readHeaders(h *extprocv3.HttpHeaders) {
	r.jsonContent = true
	for _, header := range h.GetHeaders().GetHeaders() {
		switch key := header.GetKey(); key {
		case ":method":
			r.post = string(headerValue(header)) == "POST"
		case ":path":
			r.kind = tokenize.KindOf(string(headerValue(header)))
		case "content-type":
			r.jsonContent = bytes.Contains(bytes.ToLower(headerValue(header)), []byte("json"))
		case "content-encoding":
			coding := headerValue(header)
			r.compressed = len(coding) > 0 && !bytes.EqualFold(coding, []byte("identity"))
		case "x-request-id":
			r.id = headerValue(header)
		default:
			if ownHeader(key) && !slices.Contains(r.forged, key) {
				r.forged = append(r.forged, key)
			}
		}
	}
	if !r.post {
		r.kind = 0
	}
}

// headerValue returns the value of a header. Envoy fills raw_value; versions
// before 1.29 filled value.
func headerValue(h *corev3.HeaderValue) []byte {
	if raw := h.GetRawValue(); len(raw) > 0 {
		return raw
	}
	return []byte(h.GetValue())
}

// opaque reports that no body could tell anything about the request. What comes
// after the headers of a GET or a CONNECT is no body but another protocol.
func (r *request) opaque() bool {
	return r.compressed || r.kind == 0 && (!r.post || !r.jsonContent)
}

// readBody takes the model and the salt from the body and settles whether it
// can be tokenized. cut says that the body continues unseen.
func (r *request) readBody(body []byte, cut bool) {
	switch {
	case r.compressed:
		r.untokenized = untokenizedCompressed
		return
	case r.opaque():
		r.untokenized = untokenizedOtherAPI
		return
	}
	// Of a broken or cut body the members before the break still restrict the
	// candidates to the endpoints that serve the model.
	fields, err := scanFields(body)
	r.model, r.salt = fields.model, fields.salt
	switch {
	case err != nil && cut:
		r.untokenized = untokenizedBodyPartial
	case r.kind == 0:
		r.untokenized = untokenizedOtherAPI
	case err != nil:
		r.untokenized = untokenizedInvalidJSON
	case r.model == "":
		r.untokenized = untokenizedNoModel
	}
}

// Where the subset is found (EPP protocol, Subset).
const (
	subsetNamespace = "envoy.lb.subset_hint"
	subsetKey       = destinationHeader + "-subset"
)

// readSubset takes the subset from the metadata Envoy forwards. Envoy repeats
// metadata on each message, a later one may carry less: only a message that
// has the key changes what is known. A value of an unexpected type restricts
// to nothing rather than to everything.
func (r *request) readSubset(m *corev3.Metadata) {
	value, ok := m.GetFilterMetadata()[subsetNamespace].GetFields()[subsetKey]
	if !ok {
		return
	}
	r.hasSubset = true
	r.subset = r.subset[:0]
	switch kind := value.GetKind().(type) {
	case *structpb.Value_ListValue:
		for _, item := range kind.ListValue.GetValues() {
			r.addSubset(item.GetStringValue())
		}
	case *structpb.Value_StringValue:
		for item := range strings.SplitSeq(kind.StringValue, ",") {
			r.addSubset(item)
		}
	}
}

// addSubset adds one address, "ip" or "ip:port"; anything else matches no endpoint.
func (r *request) addSubset(s string) {
	s = strings.TrimSpace(s)
	if ap, err := netip.ParseAddrPort(s); err == nil {
		r.subset = append(r.subset, ap)
		return
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	if addr, err := netip.ParseAddr(bare); err == nil {
		r.subset = append(r.subset, netip.AddrPortFrom(addr, 0))
	}
}

// bodyFields are the top-level members of a request body that the pick needs.
type bodyFields struct {
	model string // empty when absent or no string
	salt  string // cache_salt; empty when absent or no string
}

var errNoObject = errors.New("extproc: body is not a JSON object")

// scanFields finds the fields of a JSON object without building it. A repeated
// member counts as its last value, as in the engines (Python's json). It is no
// validator: what it accepts may still be malformed inside nested values,
// which tokenize notices. With an error it returns what came before the fault.
func scanFields(body []byte) (bodyFields, error) {
	var f bodyFields
	s := scanner{b: bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))}
	if s.next() != '{' {
		return f, errNoObject
	}
	s.i++
	if s.next() == '}' {
		s.i++
		return f, s.end()
	}
	for {
		if s.next() != '"' {
			return f, errNoObject
		}
		key, ok := s.str()
		if !ok || s.next() != ':' {
			return f, errNoObject
		}
		s.i++
		var field *string
		switch unquote(key) {
		case "model":
			field = &f.model
		case "cache_salt":
			field = &f.salt
		}
		switch isString := s.next() == '"'; {
		case field != nil && isString:
			value, ok := s.str()
			if !ok {
				return f, errNoObject
			}
			*field = unquote(value)
		default:
			if !s.skip() {
				return f, errNoObject
			}
			if field != nil {
				*field = ""
			}
		}
		switch s.next() {
		case ',':
			s.i++
		case '}':
			s.i++
			return f, s.end()
		default:
			return f, errNoObject
		}
	}
}

// unquote returns the text of a JSON string without its quotes. The common
// case without escapes makes no use of the JSON package.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	quoted := make([]byte, 0, len(raw)+2)
	quoted = append(append(append(quoted, '"'), raw...), '"')
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return ""
	}
	return s
}

// scanner walks over JSON values without recursion, so that depth costs nothing.
type scanner struct {
	b []byte
	i int
}

// next skips white space and returns the byte there, 0 at the end.
func (s *scanner) next() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// end fails unless only white space is left.
func (s *scanner) end() error {
	s.next()
	if s.i < len(s.b) {
		return errNoObject
	}
	return nil
}

// str passes the string whose opening quote is next and returns what is
// between its quotes. Prompts are long strings: they are crossed from quote to
// quote, and only the backslashes before a quote are counted.
func (s *scanner) str() ([]byte, bool) {
	start := s.i + 1
	for i := start; ; i++ {
		j := bytes.IndexByte(s.b[i:], '"')
		if j < 0 {
			return nil, false
		}
		i += j
		slashes := i
		for slashes > start && s.b[slashes-1] == '\\' {
			slashes--
		}
		if (i-slashes)%2 == 0 {
			s.i = i + 1
			return s.b[start:i], true
		}
	}
}

// skip passes one value of any kind.
func (s *scanner) skip() bool {
	depth := 0
	first := s.i
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case '"':
			if _, ok := s.str(); !ok {
				return false
			}
			if depth == 0 {
				return true
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return s.i > first // a number, true, false or null ends here
			}
			depth--
			if depth == 0 {
				s.i++
				return true
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return s.i > first
			}
		}
		s.i++
	}
	return false
}
