package zmtp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/google/go-cmp/cmp"
)

// start runs a socket on a free port until the test ends.
func start(t *testing.T, serve func(context.Context, net.Listener) error) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

func subscribe(t *testing.T, addr, topic string) zmq4.Socket {
	t.Helper()
	sub := zmq4.NewSub(t.Context())
	t.Cleanup(func() { sub.Close() }) //nolint:errcheck // the test is over
	if err := sub.Dial("tcp://" + addr); err != nil {
		t.Fatal(err)
	}
	if err := sub.SetOption(zmq4.OptionSubscribe, topic); err != nil {
		t.Fatal(err)
	}
	return sub
}

func waitFor(t *testing.T, p *Publisher, n int) {
	t.Helper()
	for p.Subscribers() != n {
		if t.Context().Err() != nil {
			t.Fatal("the subscription never arrived")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestPublisherFiltersByTopic(t *testing.T) {
	p := NewPublisher(10)
	addr := start(t, p.Serve)
	sub := subscribe(t, addr, "kv@a")
	waitFor(t, p, 1)
	p.Publish([]byte("kv@b@model"), []byte("not for us"))
	p.Publish([]byte("kv@a@model"), bytes.Repeat([]byte{7}, 300), nil)
	msg, err := sub.Recv()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]byte{[]byte("kv@a@model"), bytes.Repeat([]byte{7}, 300), {}}
	if diff := cmp.Diff(want, msg.Frames); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}

// rawSubscriber shakes hands by hand and then reads nothing.
func rawSubscriber(t *testing.T, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() }) //nolint:errcheck // the test is over
	hello := greeting()
	hello = appendFrame(hello, flagCommand, appendProperty([]byte("\x05READY"), "Socket-Type", "SUB"))
	hello = appendFrame(hello, flagCommand, []byte("\x09SUBSCRIBE"))
	if _, err := nc.Write(hello); err != nil {
		t.Fatal(err)
	}
	return nc
}

func TestStalledSubscriberHoldsUpNobody(t *testing.T) {
	const hwm = 64
	p := NewPublisher(hwm)
	addr := start(t, p.Serve)
	rawSubscriber(t, addr)
	waitFor(t, p, 1)
	payload := make([]byte, 1<<20)
	for range 3 * hwm { // more than the queue and the kernel's buffers hold
		p.Publish(nil, payload)
	}
	sub := subscribe(t, addr, "")
	waitFor(t, p, 2)
	p.Publish([]byte("last"))
	msg, err := sub.Recv()
	if err != nil || string(msg.Frames[0]) != "last" {
		t.Errorf("got %q, %v, want the last message", msg.Frames, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.subs {
		s.mu.Lock()
		if len(s.queue) > hwm {
			t.Errorf("got %d messages queued for one subscriber, want at most %d", len(s.queue), hwm)
		}
		s.mu.Unlock()
	}
}

func TestPingIsAnswered(t *testing.T) {
	p := NewPublisher(10)
	nc := rawSubscriber(t, start(t, p.Serve))
	if _, err := nc.Write(appendFrame(nil, flagCommand, []byte("\x04PING\x00\x64hello"))); err != nil {
		t.Fatal(err)
	}
	ready := appendProperty(appendProperty([]byte("\x05READY"), "Socket-Type", "PUB"), "Identity", "")
	want := append(greeting(), appendFrame(nil, flagCommand, ready)...)
	want = append(want, appendFrame(nil, flagCommand, []byte("\x04PONGhello"))...)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(nc, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bytes (-want +got):\n%s", diff)
	}
}

func TestBadPeersLoseTheirConnectionOnly(t *testing.T) {
	ready := func(kind string) []byte {
		return appendFrame(greeting(), flagCommand, appendProperty([]byte("\x05READY"), "Socket-Type", kind))
	}
	curve := greeting()
	copy(curve[12:], "CURVE")
	old := greeting()
	old[10] = 1
	cases := map[string][]byte{
		"HTTP":                        bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 8),
		"another mechanism":           curve,
		"an old version":              old,
		"a socket that does not fit":  ready("PULL"),
		"a READY of nothing":          appendFrame(greeting(), flagCommand, []byte("\x05READY")),
		"a READY with a wrong length": appendFrame(greeting(), flagCommand, []byte("\x05READY\x0bSocket-Type\xff\xff\xff\xffSUB")),
		"a frame of 2^63 bytes":       append(ready("SUB"), flagLong, 0x80, 0, 0, 0, 0, 0, 0, 0),
		"a message without end":       append(ready("SUB"), bytes.Repeat([]byte{flagMore, 0}, maxParts+1)...),
	}
	p := NewPublisher(10)
	addr := start(t, p.Serve)
	for name, bytes := range cases {
		t.Run(name, func(t *testing.T) {
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close() //nolint:errcheck // the test is over
			if _, err := nc.Write(bytes); err != nil {
				t.Fatal(err)
			}
			// Ends when the publisher hangs up.
			if _, err := io.Copy(io.Discard, nc); err != nil {
				t.Log(err) // a reset is as good
			}
		})
	}
	sub := subscribe(t, addr, "")
	waitFor(t, p, 1)
	p.Publish([]byte("still here"))
	if _, err := sub.Recv(); err != nil {
		t.Error(err)
	}
}

func TestRouterAnswersEachPeer(t *testing.T) {
	addr := start(t, func(ctx context.Context, ln net.Listener) error {
		return ServeRouter(ctx, ln, func(parts [][]byte, reply func(...[]byte) error) {
			for i := range 3 {
				if reply(nil, fmt.Appendf(nil, "%s %d", parts[len(parts)-1], i)) != nil {
					return
				}
			}
		})
	})
	for _, name := range []string{"a", "b"} {
		dealer := zmq4.NewDealer(t.Context())
		defer dealer.Close() //nolint:errcheck // the test is over
		if err := dealer.Dial("tcp://" + addr); err != nil {
			t.Fatal(err)
		}
		if err := dealer.Send(zmq4.NewMsgFrom(nil, []byte(name))); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			msg, err := dealer.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("%s %d", name, i); string(msg.Frames[1]) != want {
				t.Errorf("got %q, want %q", msg.Frames[1], want)
			}
		}
	}
}

func FuzzAccept(f *testing.F) {
	f.Add(append(appendFrame(greeting(), flagCommand, appendProperty([]byte("\x05READY"), "Socket-Type", "SUB")), 0, 1, 1))
	f.Add(greeting())
	f.Fuzz(func(t *testing.T, in []byte) {
		client, peer := net.Pipe()
		go func() {
			go io.Copy(io.Discard, client) //nolint:errcheck // ends with the pipe
			_, _ = client.Write(in)
			_ = client.Close()
		}()
		defer peer.Close() //nolint:errcheck // a pipe
		c, err := accept(peer, "PUB", "SUB")
		for err == nil {
			_, _, err = c.readMessage()
		}
	})
}
