package zmq

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	zmq4 "github.com/go-zeromq/zmq4"
	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"github.com/warmroute/warmroute/kvindex"
)

var testTiming = timing{
	minPause: 10 * time.Millisecond, maxPause: 50 * time.Millisecond, settle: 20 * time.Millisecond,
	firstCheck: 200 * time.Millisecond, check: 300 * time.Millisecond, reply: 2 * time.Second, attempts: 2,
}

// storedBatch stores blocks of one token each: first, first+1, ...
func storedBatch(tb testing.TB, first uint64, blocks int) []byte {
	tb.Helper()
	hashes, tokens := make([]any, blocks), make([]any, blocks)
	for i := range blocks {
		hashes[i], tokens[i] = first+uint64(i), uint64(i%150000)
	}
	b, err := msgp.AppendIntf(nil, []any{1.5, []any{[]any{"BlockStored", hashes, nil, tokens, int64(1), nil, "GPU", nil}}, int64(0)})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// following is a Subscribe under test.
type following struct {
	x    *kvindex.Index
	feed *kvindex.Feed
	stop func()
}

func follow(t *testing.T, src Source) *following {
	t.Helper()
	return followAt(t, src, testTiming)
}

func followAt(t *testing.T, src Source, tm timing) *following {
	t.Helper()
	x := kvindex.New()
	x.Attach(0, "m")
	fo := &following{x: x, feed: kvindex.NewFeed(x, 0)}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // it ends before the test's own
	done := make(chan error, 1)
	go func() { done <- subscribe(ctx, src, fo.feed, tm) }()
	stopped := false
	fo.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Subscribe returned %v, want %v", err, context.Canceled)
		}
	}
	t.Cleanup(fo.stop)
	return fo
}

// await waits until the feed's figures are as wanted.
func (fo *following) await(t *testing.T, what string, ok func(kvindex.FeedStats) bool) kvindex.FeedStats {
	t.Helper()
	for range 3000 { // only a hang takes this long
		if s := fo.feed.Stats(); ok(s) {
			return s
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: never; the feed is at %+v", what, fo.feed.Stats())
	return kvindex.FeedStats{}
}

func (fo *following) awaitNext(t *testing.T, what string, next uint64) kvindex.FeedStats {
	t.Helper()
	return fo.await(t, what, func(s kvindex.FeedStats) bool { return s.Synced && s.Next == next })
}

func (fo *following) blocks() int { return fo.x.EndpointStats(0).Blocks[kvindex.TierGPU] }

// libzmq is the publisher of testdata/publisher.py.
type libzmq struct {
	src Source
	in  io.Writer
	out *bufio.Scanner
}

func startLibzmq(t *testing.T) *libzmq {
	t.Helper()
	python := ""
	for _, p := range []string{"../../.build/venv/bin/python", "../../.build/venv-test/bin/python"} {
		if p, err := filepath.Abs(p); err == nil && exec.Command(p, "-c", "import zmq").Run() == nil {
			python = p
			break
		}
	}
	if python == "" {
		t.Skip("NOT TESTED against the real libzmq: no Python with pyzmq under .build/venv, which `make setup` makes")
	}
	cmd := exec.Command(python, "testdata/publisher.py")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // it ends by this
		if err := cmd.Wait(); err != nil {
			t.Errorf("publisher: %v", err)
		}
	})
	l := &libzmq{in: in, out: bufio.NewScanner(out)}
	if !l.out.Scan() {
		t.Fatal("the publisher names no ports")
	}
	events, replay, _ := strings.Cut(l.out.Text(), " ")
	l.src = Source{Events: "127.0.0.1:" + events, Replay: "127.0.0.1:" + replay}
	return l
}

func (l *libzmq) do(t *testing.T, command string, payload ...byte) {
	t.Helper()
	if payload != nil {
		command += " " + hex.EncodeToString(payload)
	}
	if _, err := io.WriteString(l.in, command+"\n"); err != nil {
		t.Fatal(err)
	}
	if !l.out.Scan() || l.out.Text() != "ok" {
		t.Fatalf("the publisher answers %q to %.20s", l.out.Text(), command)
	}
}

func TestAgainstLibzmq(t *testing.T) {
	for _, layout := range []string{"old", "new"} {
		t.Run(layout+" replay layout", func(t *testing.T) {
			l := startLibzmq(t)
			l.do(t, layout)
			for i := range 5 { // before anybody listens
				l.do(t, "send", storedBatch(t, uint64(1000*(i+1)), 10)...)
			}
			fo := follow(t, l.src)
			fo.awaitNext(t, "what was sent before", 5)

			for i := range 20 {
				l.do(t, "send", storedBatch(t, uint64(1000*(i+6)), 10)...)
			}
			s := fo.awaitNext(t, "live frames", 25)
			if s.Gaps != ([3]uint64{}) || s.Restarts != 0 || s.Frames != 25 {
				t.Errorf("an undisturbed feed has %+v", s)
			}

			l.do(t, "send", storedBatch(t, 1<<40, 131072)...)
			fo.awaitNext(t, "an event of 131072 tokens", 26)
			// All runs start with the same token, and the longest, newest one has them all.
			if got := fo.blocks(); got != 25*10+131072 {
				t.Errorf("%d blocks, want %d", got, 25*10+131072)
			}

			l.do(t, "junk")
			fo.await(t, "junk counted", func(s kvindex.FeedStats) bool { return s.Malformed == 3 })

			l.do(t, "lose", storedBatch(t, 1, 1)...)
			fo.awaitNext(t, "a lost frame with none after it", 27)

			l.do(t, "restart")
			l.do(t, layout)
			s = fo.await(t, "a restart, before the first event", func(s kvindex.FeedStats) bool { return s.Synced && s.Next == 0 })
			if s.Restarts != 1 || s.Connections != 2 || fo.blocks() != 0 {
				t.Errorf("%d restarts, %d connections, %d blocks; want 1, 2, 0", s.Restarts, s.Connections, fo.blocks())
			}
			l.do(t, "send", storedBatch(t, 5000, 3)...)
			fo.awaitNext(t, "the first event of the next life", 1)
			if got := fo.blocks(); got != 3 {
				t.Errorf("%d blocks, want 3", got)
			}
		})
	}
}

// checkOnce is a timing under which, once the first frame has come, only a gap
// asks for a replay: otherwise it would depend on the machine's speed whether
// the gap or a check finds a lost frame. The first check stays, because a
// publisher may take notice of us after that frame.
func checkOnce() timing {
	tm := testTiming
	tm.check = time.Hour
	return tm
}

func TestLibzmqGapIsFilledByReplay(t *testing.T) {
	for _, layout := range []string{"old", "new"} {
		t.Run(layout+" replay layout", func(t *testing.T) {
			l := startLibzmq(t)
			l.do(t, layout)
			fo := followAt(t, l.src, checkOnce())
			fo.awaitNext(t, "connected", 0)
			l.do(t, "send", storedBatch(t, 1000, 7)...)
			fo.awaitNext(t, "a frame", 1)
			l.do(t, "lose", storedBatch(t, 1, 1)...)
			l.do(t, "send", storedBatch(t, 2, 1)...)
			s := fo.awaitNext(t, "a gap filled by replay", 3)
			if s.Gaps != ([3]uint64{kvindex.GapMissed: 1}) || fo.blocks() != 9 {
				t.Errorf("gaps %v, %d blocks; want one missed, 9", s.Gaps, fo.blocks())
			}
		})
	}
}

func TestLibzmqRingTooShort(t *testing.T) {
	l := startLibzmq(t)
	fo := followAt(t, l.src, checkOnce())
	fo.awaitNext(t, "connected", 0)
	l.do(t, "send", storedBatch(t, 1000, 7)...)
	fo.awaitNext(t, "a frame", 1)
	l.do(t, "ring 2")
	for i := range 5 {
		l.do(t, "lose", storedBatch(t, uint64(2000*(i+1)), 10)...)
	}
	l.do(t, "send", storedBatch(t, 20000, 10)...)
	s := fo.awaitNext(t, "what the ring still has", 7)
	if s.Gaps[kvindex.GapReplayRing] != 1 || fo.blocks() != 20 {
		t.Errorf("gaps %v, %d blocks; want one of the ring, 20", s.Gaps, fo.blocks())
	}
}

func TestLibzmqWithoutReplay(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("a replay socket that does not answer: %t", deaf), func(t *testing.T) {
			l := startLibzmq(t)
			src := l.src
			if deaf {
				l.do(t, "deaf")
			} else {
				src.Replay = ""
			}
			l.do(t, "send", storedBatch(t, 1000, 10)...)
			fo := follow(t, src)
			fo.await(t, "in step without a replay", func(s kvindex.FeedStats) bool { return s.Synced })
			l.do(t, "send", storedBatch(t, 2000, 10)...)
			fo.awaitNext(t, "a frame in mid-stream", 2)
			l.do(t, "lose", storedBatch(t, 3000, 10)...)
			l.do(t, "send", storedBatch(t, 4000, 5)...)
			s := fo.awaitNext(t, "past a gap that nobody fills", 4)
			if s.Gaps[kvindex.GapNoReplay] == 0 || fo.blocks() != 5 {
				t.Errorf("gaps %v, %d blocks; want one without replay, 5", s.Gaps, fo.blocks())
			}
		})
	}
}

// TestAgainstZMQ4 is the other implementation that publishes to us.
func TestAgainstZMQ4(t *testing.T) {
	pub := zmq4.NewPub(t.Context())
	router := zmq4.NewRouter(t.Context())
	for _, s := range []zmq4.Socket{pub, router} {
		t.Cleanup(func() { _ = s.Close() })
		if err := s.Listen("tcp://127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	payload := storedBatch(t, 1000, 10)
	go func() {
		for {
			req, err := router.Recv()
			if err != nil {
				return
			}
			if len(req.Frames) != 3 || len(req.Frames[1]) != 0 {
				t.Errorf("request of frames %q", req.Frames)
				return
			}
			from := binary.BigEndian.Uint64(req.Frames[2])
			if from == 0 {
				_ = router.SendMulti(zmq4.NewMsgFrom(req.Frames[0], nil, []byte("t"), make([]byte, 8), payload))
			}
			_ = router.SendMulti(zmq4.NewMsgFrom(req.Frames[0], nil, nil, endMark, nil))
		}
	}()
	fo := follow(t, Source{Events: pub.Addr().String(), Replay: router.Addr().String()})
	fo.awaitNext(t, "the replay", 1)
	if err := pub.SendMulti(zmq4.NewMsgFrom([]byte("t"), []byte{0, 0, 0, 0, 0, 0, 0, 1}, storedBatch(t, 2000, 10))); err != nil {
		t.Fatal(err)
	}
	fo.awaitNext(t, "a live frame", 2)
	if got := fo.blocks(); got != 20 {
		t.Errorf("%d blocks, want 20", got)
	}
}

func TestParseReply(t *testing.T) {
	seq, ff := []byte{0, 0, 0, 0, 0, 0, 0, 9}, endMark
	tests := []struct {
		name    string
		frames  [][]byte
		seq     uint64
		payload string
		end     bool
		wantErr bool
	}{
		{"with a topic", [][]byte{nil, []byte("t"), seq, []byte("p")}, 9, "p", false, false},
		{"with an empty topic", [][]byte{nil, nil, seq, []byte("p")}, 9, "p", false, false},
		{"without a topic", [][]byte{nil, seq, []byte("p")}, 9, "p", false, false},
		{"the end with a topic", [][]byte{nil, nil, ff, nil}, 0, "", true, false},
		{"the end the other way round", [][]byte{nil, nil, nil, ff}, 0, "", true, false},
		{"the end without a topic", [][]byte{nil, ff, nil}, 0, "", true, false},
		{"a topic that looks like the end", [][]byte{nil, ff, seq, []byte("p")}, 9, "p", false, false},
		{"no delimiter", [][]byte{[]byte("t"), seq, []byte("p")}, 0, "", false, true},
		{"nothing", nil, 0, "", false, true},
		{"too short a number", [][]byte{nil, seq[1:], []byte("p")}, 0, "", false, true},
		{"too many frames", [][]byte{nil, nil, seq, nil, nil}, 0, "", false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seq, payload, end, err := parseReply(tt.frames)
			if seq != tt.seq || string(payload) != tt.payload || end != tt.end || (err != nil) != tt.wantErr {
				t.Errorf("got %d %q %t %v, want %d %q %t, error %t", seq, payload, end, err, tt.seq, tt.payload, tt.end, tt.wantErr)
			}
		})
	}
}

// peer accepts connections and answers each by script, after the greeting.
func peer(t *testing.T, script func(nc net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				script(nc)
			}()
		}
	}()
	return l.Addr().String()
}

const (
	greetNull = "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL"
	readyPub  = "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"
)

func greet() string { return greetNull + strings.Repeat("\x00", greetingSize-len(greetNull)) }

func TestBadPeersAreRefused(t *testing.T) {
	tests := []struct{ name, sends, want string }{
		{"HTTP", "HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat("x", 64), errGreeting.Error()},
		{"ZMTP 2", strings.Replace(greet(), "\x7f\x03", "\x7f\x01", 1), errGreeting.Error()},
		{"another mechanism", strings.Replace(greet(), "NULL\x00", "CURVE", 1), errGreeting.Error()},
		{"another socket", greet() + strings.ReplaceAll(readyPub, "PUB", "REP"), `zmq: peer is a "REP" socket, want one of ["PUB" "XPUB"]`},
		{"an error", greet() + "\x04\x0a\x05ERROR\x03bad", `zmq: peer refuses: "\x03bad"`},
		{"metadata that is cut", greet() + "\x04\x08\x05READY\x0bS", errFraming.Error()},
		{"a message instead of READY", greet() + "\x00\x01a", errFraming.Error()},
		{"an endless command", greet() + "\x06\x7f\xff\xff\xff\xff\xff\xff\xff", errFraming.Error()},
		{"end of stream", greet(), "zmq: EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			addr := peer(t, func(nc net.Conn) {
				_, _ = io.WriteString(nc, tt.sends)
				_ = nc.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, nc)
			})
			c, err := dial(t.Context(), addr, "SUB", "PUB", "XPUB")
			if err == nil {
				c.close()
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(err.Error(), tt.want); diff != "" {
				t.Errorf("error (-got +want):\n%s", diff)
			}
		})
	}
}

func TestMessagesOnTheWire(t *testing.T) {
	long := strings.Repeat("y", 300)
	tests := []struct {
		name, sends string
		want        []string
		wantErr     error
	}{
		{"three frames", "\x01\x01a\x01\x00\x00\x02bc", []string{"a", "", "bc"}, nil},
		{"a long frame", "\x02\x00\x00\x00\x00\x00\x00\x01\x2c" + long, []string{long}, nil},
		{"a heartbeat between", "\x04\x09\x04PING\x00\x05ab\x00\x01a", []string{"a"}, nil},
		{"a command we do not know", "\x04\x04\x03abc\x00\x01a", []string{"a"}, nil},
		{"a length of 2^63-1", "\x02\x7f\xff\xff\xff\xff\xff\xff\xff", nil, errTooLarge},
		{"frames without end", strings.Repeat("\x01\x00", maxFrames+1), nil, errTooLarge},
		{"reserved flags", "\x08\x00", nil, errFraming},
		{"an empty command", "\x04\x00", nil, errFraming},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pong := make(chan string, 1)
			addr := peer(t, func(nc net.Conn) {
				_, _ = io.WriteString(nc, greet()+readyPub+tt.sends)
				got, _ := io.ReadAll(nc)
				pong <- string(got)
			})
			c, err := dial(t.Context(), addr, "SUB", "PUB")
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			frames, err := c.readMessage()
			if !errors.Is(err, tt.wantErr) {
				t.Fatalf("error %v, want %v", err, tt.wantErr)
			}
			var got []string
			for _, fr := range frames {
				got = append(got, string(fr))
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("frames (-got +want):\n%s", diff)
			}
			c.close()
			if sent := <-pong; strings.Contains(tt.name, "heartbeat") != strings.HasSuffix(sent, "\x04\x07\x04PONGab") {
				t.Errorf("the peer was sent %q", sent)
			}
		})
	}
}

// TestLengthsTakeNoMemory claims 60 MB and sends ten bytes.
func TestLengthsTakeNoMemory(t *testing.T) {
	addr := peer(t, func(nc net.Conn) {
		_, _ = io.WriteString(nc, greet()+readyPub+"\x02\x00\x00\x00\x00\x03\x93\x87\x00 ten bytes")
		_ = nc.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, nc)
	})
	c, err := dial(t.Context(), addr, "SUB", "PUB")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if _, err := c.readMessage(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v, want %v", err, io.ErrUnexpectedEOF)
	}
	if cap(c.buf) > 2*readStep {
		t.Errorf("%d bytes kept for a claim", cap(c.buf))
	}
}

func TestEverythingStopsWithTheContext(t *testing.T) {
	before := runtime.NumGoroutine()
	silent := peer(t, func(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) }) // never greets
	greets := peer(t, func(nc net.Conn) {
		_, _ = io.WriteString(nc, greet()+readyPub)
		_, _ = io.Copy(io.Discard, nc)
	})
	for _, src := range []Source{
		{Events: silent}, {Events: greets}, {Events: greets, Replay: silent}, {Events: "127.0.0.1:1"},
	} {
		fo := follow(t, src)
		if src.Events == greets {
			fo.await(t, "connected", func(s kvindex.FeedStats) bool { return s.Connected })
		}
		fo.stop()
	}
	for range 500 {
		if runtime.NumGoroutine() <= before+2 { // the two peers listen until the test ends
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

func TestSubscribeRefusesWhatIsNoAddress(t *testing.T) {
	for _, src := range []Source{{}, {Events: "engine"}, {Events: "engine:1", Replay: "engine"}} {
		f := kvindex.NewFeed(kvindex.New(), math.MaxUint16)
		if err := Subscribe(t.Context(), src, f); err == nil {
			t.Errorf("%+v: no error", src)
		}
	}
}

func FuzzParseReply(f *testing.F) {
	f.Add([]byte("\x00\x01t\x08\x00\x00\x00\x00\x00\x00\x00\x09\x01p"))
	f.Add([]byte("\x00\x00\x08\xff\xff\xff\xff\xff\xff\xff\xff\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var frames [][]byte
		for len(in) > 0 {
			n := min(int(in[0]), len(in)-1)
			frames = append(frames, in[1:1+n])
			in = in[1+n:]
		}
		seq, payload, end, err := parseReply(frames)
		if (end || err != nil) && (seq != 0 || payload != nil) {
			t.Errorf("%d %q beside end %t, error %v", seq, payload, end, err)
		}
	})
}
