package extproc

import (
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmroute/warmroute/scheduler"
)

// FuzzMessageOrder sends arbitrary messages in arbitrary order. Whatever comes,
// nothing panics, no answer is one that was not due, and no body is lost.
// The letters of the script are the messages of letterMessage.
func FuzzMessageOrder(f *testing.F) {
	for _, script := range []string{"HBE", "HE", "h", "HBBT", "HT", "BE", "HBEE", "HrbeT", "r", "HDBE", "HHB", "n", "HBDBDE", "HXE", "SHE", "HBEHBE"} {
		for mode := range 8 {
			f.Add(uint8(mode), script)
		}
	}
	f.Fuzz(func(t *testing.T, mode uint8, script string) {
		if len(script) > 64 {
			return
		}
		picker := &fakePicker{decision: testDecision}
		if mode&0x80 != 0 {
			picker.err = scheduler.ErrNoEndpoint
		}
		server := NewServer(Config{Picker: picker, Tokenizer: fakeTokenizer{}, Deadline: time.Hour, MaxBody: 100})
		conn := &fakeConn{ctx: t.Context()}
		x := &exchange{s: server, conn: conn}
		x.st.maxBody = server.cfg.MaxBody
		defer func() { x.close(nil) }()
		var envoy filter
		judge := func() {
			for _, r := range conn.sent {
				if err := envoy.receives(r); err != nil && envoy.known {
					t.Fatal(err)
				}
			}
			conn.sent = nil
		}
		for i, letter := range []byte(script) {
			if letter == 'D' {
				if x.due.IsZero() {
					continue
				}
				x.due = time.Now()
				x.expire()
				judge()
				if x.st.phase == done {
					return
				}
				continue
			}
			msg := letterMessage(letter)
			if msg == nil {
				return
			}
			if i == 0 {
				msg.ObservabilityMode = mode&0x40 != 0
				if m := mode & 7; m < 6 {
					msg.ProtocolConfig = &extprocv3.ProtocolConfiguration{
						RequestBodyMode:                         filterv3.ProcessingMode_BodySendMode(min(m, 4)),
						SendBodyWithoutWaitingForHeaderResponse: m == 5,
					}
					if m == 5 {
						msg.ProtocolConfig.RequestBodyMode = filterv3.ProcessingMode_STREAMED
					}
					if mode&8 != 0 {
						msg.ProtocolConfig.ResponseBodyMode = filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
					}
				}
			}
			if !plausible(script[:i], letter) {
				// Not what an Envoy sends: nothing may break, nothing else is promised.
				envoy.known = false
			}
			envoyKnown := envoy.known || !envoy.opened
			envoy.sends(msg)
			envoy.known = envoy.known && envoyKnown
			finished, err := x.handle(msg)
			judge()
			if err != nil {
				return
			}
			if finished {
				if err := envoy.ends(); err != nil && envoy.known {
					t.Fatal(err)
				}
				if again, err := x.handle(letterMessage('B')); !again || err != nil || len(conn.sent) > 0 {
					t.Fatalf("after the end: finished %t, error %v, %d answers", again, err, len(conn.sent))
				}
				return
			}
		}
		if len(picker.asked) > 2 {
			t.Errorf("%d picks for one request", len(picker.asked))
		}
	})
}

// plausible reports whether Envoy would send the message after those before:
// headers, body, trailers, then the response, each at most once and the body
// until its end.
func plausible(before string, letter byte) bool {
	before = strings.ReplaceAll(before, "D", "")
	ended := strings.ContainsAny(before, "hET")
	responding := strings.ContainsAny(before, "rbe")
	switch letter {
	case 'H', 'h', 'S':
		return before == ""
	case 'B', 'X', 'E', 'T':
		return !ended && !responding && before != ""
	case 'r', 'b', 'e':
		return true
	default:
		return false
	}
}

// letterMessage makes the message a letter of a script stands for, nil for any other letter.
func letterMessage(letter byte) *extprocv3.ProcessingRequest {
	body := func(text string, last bool) *extprocv3.HttpBody {
		return &extprocv3.HttpBody{Body: []byte(text), EndOfStream: last}
	}
	headers := func(last bool) *extprocv3.HttpHeaders {
		return &extprocv3.HttpHeaders{EndOfStream: last, Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			{Key: ":method", RawValue: []byte("POST")},
			{Key: ":path", RawValue: []byte("/v1/chat/completions")},
			{Key: destinationHeader, RawValue: []byte("10.0.0.1:22")},
		}}}
	}
	switch letter {
	case 'H': // headers
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: headers(false)}}
	case 'h': // headers, end
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: headers(true)}}
	case 'S': // headers with a subset
		msg := letterMessage('H')
		hint := &structpb.Struct{Fields: map[string]*structpb.Value{subsetKey: structpb.NewStringValue("10.0.0.1")}}
		msg.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{subsetNamespace: hint}}
		return msg
	case 'B': // a piece of body
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: body(`{"model":"m1",`, false)}}
	case 'X': // a piece of body above every limit
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: body(strings.Repeat(" ", 200), false)}}
	case 'E': // the last piece
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: body(`"a":1}`, true)}}
	case 'T':
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}}
	case 'r':
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: headers(false)}}
	case 'b':
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: body("x", false)}}
	case 'e':
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: body("", true)}}
	case 'n': // no part at all
		return &extprocv3.ProcessingRequest{}
	default:
		return nil
	}
}
