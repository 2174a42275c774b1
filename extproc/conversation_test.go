package extproc

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/warmroute/warmroute/scheduler"
	"github.com/warmroute/warmroute/tokenize"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

// fakePicker returns what the case says and keeps what it was asked.
type fakePicker struct {
	decision scheduler.Decision
	err      error
	asked    []scheduler.Request
}

func (p *fakePicker) Pick(_ context.Context, req *scheduler.Request) (scheduler.Decision, error) {
	seen := *req
	seen.Tokens = append([]uint32(nil), req.Tokens...)
	p.asked = append(p.asked, seen)
	return p.decision, p.err
}

// fakeTokenizer makes as many tokens as the body has bytes.
type fakeTokenizer struct{ err error }

func (f fakeTokenizer) Append(_ context.Context, dst []uint32, _ string, p *tokenize.Prompt) ([]uint32, error) {
	return append(dst, make([]uint32, len(p.Body))...), f.err
}

var testDecision = scheduler.Decision{
	Endpoint: netip.MustParseAddrPort("127.0.0.1:8001"), Rank: -1,
	Reason: scheduler.ReasonPrefix, Matched: 32, Prompt: 58,
}

// fakeConn is a stream whose messages come from a test and whose answers stay in it.
type fakeConn struct {
	grpc.ServerStream
	ctx      context.Context
	messages []*extprocv3.ProcessingRequest
	sent     []*extprocv3.ProcessingResponse
}

func (c *fakeConn) Context() context.Context { return c.ctx }

func (c *fakeConn) Recv() (*extprocv3.ProcessingRequest, error) {
	if len(c.messages) == 0 {
		return nil, io.EOF
	}
	msg := c.messages[0]
	c.messages = c.messages[1:]
	return msg, nil
}

func (c *fakeConn) Send(r *extprocv3.ProcessingResponse) error {
	c.sent = append(c.sent, proto.CloneOf(r))
	return nil
}

// TestConversations plays each testdata/*.txtar: a paragraph of prose, what the
// server is set up with, the messages Envoy sends, and what we answered to
// each, together with what the picker was asked.
//
// Messages are protojson, one a line, with two liberties that make them
// readable: a header may have "text" for rawValue, and a body "text" for body or
// "fill" for a chat request of that many bytes (with "from" and "to" to send a
// part of it). A line "deadline" lets the deadline pass.
func TestConversations(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sections := map[string]*txtar.File{}
			for i := range archive.Files {
				sections[archive.Files[i].Name] = &archive.Files[i]
			}
			setup, envoy, ours := sections["setup"], sections["envoy"], sections["warmroute"]
			if setup == nil || envoy == nil || ours == nil {
				t.Fatal("want the sections setup, envoy and warmroute")
			}
			got := converse(t, string(setup.Data), string(envoy.Data))
			if *update {
				ours.Data = []byte(got)
				if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(ours.Data), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("answers differ (-want +got):\n%s", diff)
			}
		})
	}
}

// converse plays one conversation and writes down what we did.
func converse(t *testing.T, setup, envoy string) string {
	t.Helper()
	picker := &fakePicker{decision: testDecision}
	cfg := Config{Picker: picker, Tokenizer: fakeTokenizer{}, Deadline: time.Hour}
	for line := range strings.Lines(setup) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "max_body":
			cfg.MaxBody, _ = strconv.Atoi(value)
		case "debug_headers":
			cfg.DebugHeaders = true
		case "rank":
			picker.decision.Rank, _ = strconv.Atoi(value)
		case "pick_error":
			picker.err = map[string]error{
				"no_endpoint": fmt.Errorf("%w: none is up", scheduler.ErrNoEndpoint),
				"other":       errors.New("scheduler: broken"),
			}[value]
		case "tokenize_error":
			cfg.Tokenizer = fakeTokenizer{&tokenize.Error{Reason: value}}
		case "":
		default:
			t.Fatalf("unknown setup %q", key)
		}
	}
	server := NewServer(cfg)
	conn := &fakeConn{ctx: t.Context()}
	x := &exchange{s: server, conn: conn}
	x.st.debug, x.st.maxBody = cfg.DebugHeaders, server.cfg.MaxBody

	var out strings.Builder
	n := 0
	for line := range strings.Lines(envoy) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		n++
		var finished bool
		var err error
		if line == "deadline" {
			fmt.Fprintf(&out, "deadline:\n")
			x.due = time.Now()
			x.expire()
			finished, err = x.st.phase == done, x.sendErr
		} else {
			fmt.Fprintf(&out, "to message %d:\n", n)
			finished, err = x.handle(readMessage(t, line))
		}
		for _, req := range picker.asked {
			fmt.Fprintf(&out, "  pick model=%q salt=%q tokens=%d untokenized=%q bodyless=%t", req.Model, req.Salt, len(req.Tokens), req.Untokenized, req.Bodyless)
			if req.HasSubset {
				fmt.Fprintf(&out, " subset=%v", req.Subset)
			}
			fmt.Fprintln(&out)
		}
		for _, r := range conn.sent {
			fmt.Fprintf(&out, "  %s\n", writeMessage(t, r))
		}
		picker.asked, conn.sent = nil, nil
		if err != nil {
			fmt.Fprintf(&out, "ends: %v\n", err)
			break
		}
		if finished {
			fmt.Fprintf(&out, "ends: OK\n")
			break
		}
	}
	return out.String()
}

// readMessage reads a message in the form described at TestConversations.
func readMessage(t *testing.T, line string) *extprocv3.ProcessingRequest {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal([]byte(line), &tree); err != nil {
		t.Fatalf("message %s: %v", line, err)
	}
	walk(tree, func(node map[string]any) {
		text, ok := node["text"].(string)
		if fill, filled := node["fill"].(float64); filled {
			whole := chatBody(int(fill))
			from, to := 0, len(whole)
			if v, ok := node["from"].(float64); ok {
				from = int(v)
			}
			if v, ok := node["to"].(float64); ok {
				to = int(v)
			}
			text, ok = string(whole[from:to]), true
		}
		for _, key := range []string{"text", "fill", "from", "to"} {
			delete(node, key)
		}
		switch {
		case !ok:
		case node["key"] != nil:
			node["rawValue"] = base64.StdEncoding.EncodeToString([]byte(text))
		default:
			node["body"] = base64.StdEncoding.EncodeToString([]byte(text))
		}
	})
	data, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var msg extprocv3.ProcessingRequest
	if err := protojson.Unmarshal(data, &msg); err != nil {
		t.Fatalf("message %s: %v", line, err)
	}
	return &msg
}

// writeMessage writes an answer in the same form; a long text becomes its length.
func writeMessage(t *testing.T, r *extprocv3.ProcessingResponse) string {
	t.Helper()
	data, err := protojson.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	walk(tree, func(node map[string]any) {
		for _, key := range []string{"rawValue", "body"} {
			coded, ok := node[key].(string)
			if !ok {
				continue
			}
			delete(node, key)
			text, err := base64.StdEncoding.DecodeString(coded)
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > 200 {
				node["bytes"] = len(text)
			} else {
				node["text"] = string(text)
			}
		}
	})
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(tree); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line.String())
}

// walk visits every JSON object below v.
func walk(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(v)
		for _, child := range v {
			walk(child, visit)
		}
	case []any:
		for _, child := range v {
			walk(child, visit)
		}
	}
}

// chatBody returns a chat request of exactly size bytes.
func chatBody(size int) []byte {
	const head, tail = `{"model":"m1","messages":[{"role":"user","content":"`, `"}]}`
	body := make([]byte, 0, size)
	body = append(body, head...)
	for len(body) < size-len(tail) {
		body = append(body, 'a')
	}
	return append(body, tail...)
}
