package extproc

import (
	"encoding/json"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/warmroute/tokenize"
)

func TestScanFields(t *testing.T) {
	type fields = bodyFields
	for _, c := range []struct {
		name string
		body string
		want fields
		ok   bool
	}{
		{"both fields among others", `{"a":1,"model":"m","messages":[{"role":"user"}],"cache_salt":"s","z":null}`, fields{"m", "s"}, true},
		{"an empty object", ` { } `, fields{}, true},
		{"the last of repeated members counts", `{"model":"a","model":"b"}`, fields{"b", ""}, true},
		{"a last member that is no string counts as none", `{"model":"a","model":null}`, fields{}, true},
		{"a nested member of the same name does not count", `{"x":{"model":"inner"},"model":"outer","y":[{"model":"inner"}]}`, fields{"outer", ""}, true},
		{"the name inside a string does not count", `{"x":"\"model\":\"inner\"","model":"outer"}`, fields{"outer", ""}, true},
		{"an escaped key is the same key", `{"mod\u0065l":"m"}`, fields{"m", ""}, true},
		{"an escaped value is decoded", `{"model":"a\/b\"\u00e9"}`, fields{"a/b\"é", ""}, true},
		{"backslashes before a closing quote", `{"x":"\\\\","model":"m\\"}`, fields{`m\`, ""}, true},
		{"brackets in strings are text", `{"x":["}]","{"],"model":"m"}`, fields{"m", ""}, true},
		{"numbers, NaN and literals are passed over", `{"a":-1.5e9,"b":NaN,"c":true,"d":[1,2,3],"model":"m"}`, fields{"m", ""}, true},
		{"a byte order mark is passed over", "\xef\xbb\xbf{\"model\":\"m\"}", fields{"m", ""}, true},
		{"white space everywhere", " \n{ \"model\" :\t\"m\" , \"a\" : 1 }\r\n", fields{"m", ""}, true},
		{"a cut body keeps what came", `{"model":"m","messages":[{"role":"us`, fields{"m", ""}, false},
		{"text behind the object", `{"model":"m"}x`, fields{"m", ""}, false},
		{"an array", `["model","m"]`, fields{}, false},
		{"nothing", ``, fields{}, false},
		{"a member without value", `{"model"}`, fields{}, false},
		{"a comma too many", `{"model":"m",}`, fields{"m", ""}, false},
		{"a missing value", `{"model":,"a":1}`, fields{}, false},
		{"an open string", `{"model":"m`, fields{}, false},
		{"deep nesting costs nothing", `{"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `,"model":"m"}`, fields{"m", ""}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := scanFields([]byte(c.body))
			if got != c.want || (err == nil) != c.ok {
				t.Errorf("got %+v, error %v, want %+v, ok %t", got, err, c.want, c.ok)
			}
		})
	}
}

func TestReadHeaders(t *testing.T) {
	headers := func(pairs ...string) *extprocv3.HttpHeaders {
		var list []*corev3.HeaderValue
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
		}
		return &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: list}}
	}
	for _, c := range []struct {
		name string
		in   *extprocv3.HttpHeaders
		want request
	}{
		{
			"a chat request", headers(":method", "POST", ":path", "/v1/chat/completions", "content-type", "application/json; charset=utf-8", "x-request-id", "r1"),
			request{id: []byte("r1"), kind: tokenize.Chat, post: true, jsonContent: true},
		},
		{
			"a GET of the same path has no prompt", headers(":method", "GET", ":path", "/v1/chat/completions"),
			request{jsonContent: true},
		},
		{
			"a compressed body", headers(":method", "POST", ":path", "/v1/completions", "content-encoding", "gzip"),
			request{kind: tokenize.Completion, post: true, jsonContent: true, compressed: true},
		},
		{
			"identity is no compression", headers(":method", "POST", ":path", "/v1/completions", "content-encoding", "identity"),
			request{kind: tokenize.Completion, post: true, jsonContent: true},
		},
		{
			"multipart is not JSON", headers(":method", "POST", ":path", "/v1/audio/transcriptions", "content-type", "multipart/form-data; boundary=x"),
			request{post: true},
		},
		{
			"a value from before Envoy 1.29", &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
				{Key: ":method", Value: "POST"}, {Key: ":path", Value: "/v1/chat/completions"},
			}}},
			request{kind: tokenize.Chat, post: true, jsonContent: true},
		},
		{
			"forged headers, each once", headers(destinationHeader, "a", destinationHeader, "b", prefillHeader, "c"),
			request{jsonContent: true, forged: []string{destinationHeader, prefillHeader}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got request
			got.readHeaders(c.in)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(request{})); diff != "" {
				t.Errorf("request differs (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzParseRequest compares the scanner with encoding/json wherever that one
// accepts the body.
func FuzzParseRequest(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","cache_salt":"s","messages":[{"role":"user","content":"a\"b"}]}`,
		`{"model":"a","model":7}`, `{"mod\u0065l":"\ud83d\ude00"}`, `{"x":[1,{"y":"]"}],"model":"m"} `, `[`, `{"model":"`, `{"a":1}x`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := scanFields(body)
		var members map[string]json.RawMessage
		if json.Unmarshal(body, &members) != nil || members == nil {
			return // it only must not panic
		}
		if err != nil {
			t.Fatalf("refused valid JSON: %v", err)
		}
		for name, value := range map[string]string{"model": got.model, "cache_salt": got.salt} {
			var want string
			if raw, ok := members[name]; !ok || json.Unmarshal(raw, &want) != nil {
				want = ""
			}
			// encoding/json repairs invalid UTF-8 and the scanner leaves it: the
			// engine refuses such a body anyway.
			if strings.ToValidUTF8(value, "\ufffd") != strings.ToValidUTF8(want, "\ufffd") && !strings.Contains(want, "\ufffd") {
				t.Errorf("%s: got %q, want %q", name, value, want)
			}
		}
	})
}
