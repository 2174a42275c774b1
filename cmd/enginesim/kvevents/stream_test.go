package kvevents

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"github.com/warmroute/warmroute/cmd/enginesim/engine"
)

// captured is one recorded conversation with a replay socket.
type captured struct {
	Kind    string     `json:"kind"`
	Note    string     `json:"note"`
	Socket  string     `json:"socket"`
	Request []string   `json:"request"`
	Replies [][]string `json:"replies"`
}

func readReplays(t *testing.T, name string) []captured {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var all []captured
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var c captured
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		if c.Kind == "replay" && c.Socket == "DEALER" {
			all = append(all, c)
		}
	}
	return all
}

// serve starts a stream on free ports until the test ends.
func serve(t *testing.T, cfg Config) (s *Stream, events, replay string) {
	t.Helper()
	s = NewStream(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var lns [2]net.Listener
	for i := range lns {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		lns[i] = ln
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, lns[0], lns[1]) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, "tcp://" + lns[0].Addr().String(), "tcp://" + lns[1].Addr().String()
}

// publishCapture runs a capture through the model and publishes what it does,
// at the times of the recorded frames.
func publishCapture(t *testing.T, s *Stream, name string) {
	t.Helper()
	lines := without(readCapture(t, name), "")
	var times []float64
	for _, l := range lines {
		if l.Kind == "frame" {
			_, rest, err := msgp.ReadArrayHeaderBytes(unhex(t, l.Frame[2]))
			if err != nil {
				t.Fatal(err)
			}
			at, _, err := msgp.ReadFloat64Bytes(rest)
			if err != nil {
				t.Fatal(err)
			}
			times = append(times, at)
		}
	}
	n := 0
	playCapture(t, lines, s.cfg.Format, nil, func(events []engine.Event) {
		s.Publish(times[n], events)
		n++
	})
}

// TestReplayAnswersAsCaptured asks a stream what was asked of a real vLLM in
// the same state, and wants the same frames.
func TestReplayAnswersAsCaptured(t *testing.T) {
	cases := []struct {
		name, state, conversation string
		format                    Format
	}{
		{"0.32, with a topic frame", "first-shared", "replay", Maps},
		{"0.23, without", "v0.23-arrays", "v0.23-arrays", Arrays},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			topic := ""
			for _, l := range readCapture(t, c.state) {
				if l.Kind == "frame" {
					topic = string(unhex(t, l.Frame[0]))
				}
			}
			s, _, addr := serve(t, Config{Format: c.format, Topic: topic, BufferSteps: 100, HWM: 100})
			publishCapture(t, s, c.state)
			for _, conversation := range readReplays(t, c.conversation) {
				got := ask(t, addr, conversation.Request, len(conversation.Replies))
				if diff := cmp.Diff(conversation.Replies, got); diff != "" {
					t.Errorf("%s (-vLLM +stream):\n%s", conversation.Note, diff)
				}
			}
		})
	}
}

// ask sends frames to a replay socket and returns the first n answers, in hexadecimal.
func ask(t *testing.T, addr string, frames []string, n int) [][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	dealer := zmq4.NewDealer(ctx)
	defer dealer.Close() //nolint:errcheck // the test is over
	if err := dealer.Dial(addr); err != nil {
		t.Fatal(err)
	}
	var parts [][]byte
	for _, f := range frames {
		parts = append(parts, unhex(t, f))
	}
	if err := dealer.Send(zmq4.NewMsgFrom(parts...)); err != nil {
		t.Fatal(err)
	}
	got := [][]string{}
	for range n {
		msg, err := dealer.Recv()
		if err != nil {
			t.Fatal(err)
		}
		var answer []string
		for _, f := range msg.Frames {
			answer = append(answer, hex.EncodeToString(f))
		}
		got = append(got, answer)
	}
	return got
}

func TestReplayReachesBackAsFarAsTheRing(t *testing.T) {
	s, _, addr := serve(t, Config{Topic: "kv", BufferSteps: 3, HWM: 100})
	for range 5 {
		s.Publish(1, []engine.Event{engine.Cleared{}})
	}
	var got []string
	for _, answer := range ask(t, addr, []string{"", "0000000000000000"}, 4) {
		got = append(got, answer[2])
	}
	want := []string{"0000000000000002", "0000000000000003", "0000000000000004", "ffffffffffffffff"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sequences (-want +got):\n%s", diff)
	}
}

func TestSubscriberGetsThreeFrames(t *testing.T) {
	s, addr, _ := serve(t, Config{Topic: "kv@x@tiny", BufferSteps: 10, HWM: 100})
	sub := zmq4.NewSub(t.Context())
	defer sub.Close() //nolint:errcheck // the test is over
	if err := sub.Dial(addr); err != nil {
		t.Fatal(err)
	}
	if err := sub.SetOption(zmq4.OptionSubscribe, "kv@"); err != nil {
		t.Fatal(err)
	}
	for s.Subscribers() == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 2 {
		s.Publish(100.5, []engine.Event{engine.Cleared{}})
	}
	for seq := range byte(2) {
		msg, err := sub.Recv()
		if err != nil {
			t.Fatal(err)
		}
		want := [][]byte{
			[]byte("kv@x@tiny"),
			{0, 0, 0, 0, 0, 0, 0, seq},
			unhex(t, "93cb40592000000000009181a474797065b0416c6c426c6f636b73436c656172656400"),
		}
		if diff := cmp.Diff(want, msg.Frames); diff != "" {
			t.Errorf("frames (-want +got):\n%s", diff)
		}
	}
}
