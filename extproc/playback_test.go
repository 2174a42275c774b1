package extproc

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// TestPlayback feeds what a real Envoy sent (testdata/README.md) and checks that
// every answer is one Envoy waits for. A request whose end was recorded must
// have got its pick.
func TestPlayback(t *testing.T) {
	names, err := filepath.Glob("testdata/envoy-*/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			for n, messages := range recorded(t, name) {
				t.Run(strconv.Itoa(n+1), func(t *testing.T) {
					play(t, messages)
				})
			}
		})
	}
}

// play feeds the messages of one stream until we end it.
func play(t *testing.T, messages []*extprocv3.ProcessingRequest) {
	t.Helper()
	server := NewServer(Config{Picker: &fakePicker{decision: testDecision}, Tokenizer: fakeTokenizer{}, Deadline: time.Hour})
	conn := &fakeConn{ctx: t.Context()}
	x := &exchange{s: server, conn: conn}
	x.st.maxBody = server.cfg.MaxBody
	defer func() { x.close(nil) }()
	var envoy filter
	for i, msg := range messages {
		envoy.sends(msg)
		finished, err := x.handle(msg)
		if err != nil {
			t.Fatalf("message %d: %v", i+1, err)
		}
		for _, r := range conn.sent {
			if err := envoy.receives(r); err != nil {
				t.Fatalf("message %d: %v", i+1, err)
			}
		}
		conn.sent = nil
		if finished {
			if err := envoy.ends(); err != nil {
				t.Fatalf("message %d: %v", i+1, err)
			}
			return
		}
	}
	if envoy.complete && !envoy.observing && envoy.picks == 0 {
		t.Error("the request was complete and got no pick")
	}
}

var (
	recordLine = regexp.MustCompile(`^\[(\d+)\] > (.*)$`)
	cutBody    = regexp.MustCompile(`"body":"@(\d+) bytes sha256=[0-9a-f]*"`)
)

// recorded returns the messages of each stream in a recording.
func recorded(t *testing.T, name string) [][]*extprocv3.ProcessingRequest {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var streams [][]*extprocv3.ProcessingRequest
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		found := recordLine.FindSubmatch(lines.Bytes())
		if found == nil {
			continue
		}
		n, err := strconv.Atoi(string(found[1]))
		if err != nil {
			t.Fatal(err)
		}
		streams = slices.Grow(streams, max(0, n-len(streams)))
		streams = streams[:max(n, len(streams))]
		text := cutBody.ReplaceAllFunc(found[2], func(m []byte) []byte {
			size, err := strconv.Atoi(string(cutBody.FindSubmatch(m)[1]))
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Appendf(nil, `"body":%q`, base64.StdEncoding.EncodeToString(chatBody(size)))
		})
		var msg extprocv3.ProcessingRequest
		if err := protojson.Unmarshal(text, &msg); err != nil {
			t.Fatal(err)
		}
		streams[n-1] = append(streams[n-1], &msg)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return streams
}
