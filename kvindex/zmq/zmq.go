// Package zmq receives the KV events of an engine over ZeroMQ.
//
// It subscribes to the engine's PUB socket, asks its ROUTER socket for what was
// sent before, and hands every frame to a kvindex.Feed, which puts them in
// order. It reconnects by itself and never gives up; what goes wrong shows in
// the feed's figures.
//
// It speaks the wire protocol itself: a client needs little of it, and the
// Go library for it (github.com/go-zeromq/zmq4 v0.17.0) takes memory as the
// peer's length field says, so that eight bytes from outside end the process,
// waits for a handshake without limit, leaves its reading goroutine blocked
// when it is closed, and does not say when a connection was lost and made
// again, which an index must know.
package zmq

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/warmroute/warmroute/kvindex"
)

// Source is where one rank of an engine publishes. All addresses are
// "host:port" and are connected to.
type Source struct {
	Events string
	Replay string // empty: the engine has no replay socket, and each gap clears the index

	// Topic is a prefix of the topics to receive. Empty is everything, and the
	// right choice: topics differ by engine and by operator, while an address
	// is of one rank.
	Topic string
}

// timing is how long things may take; tests shorten it.
type timing struct {
	minPause, maxPause time.Duration // between connection attempts, doubling
	settle             time.Duration // from subscribing to the first replay: the engine takes notice of the subscription meanwhile
	firstCheck, check  time.Duration // when nothing arrived: is there something beyond what we have?
	reply              time.Duration // the longest wait for the next reply of a replay; engines serve it between two batches
	attempts           int           // per replay
}

var defaultTiming = timing{
	minPause: 100 * time.Millisecond, maxPause: 5 * time.Second, settle: 100 * time.Millisecond,
	firstCheck: time.Second, check: 30 * time.Second, reply: 10 * time.Second, attempts: 3,
}

// Subscribe feeds f from src until ctx ends, and returns its error. It returns
// early only when src is not an address.
func Subscribe(ctx context.Context, src Source, f *kvindex.Feed) error {
	return subscribe(ctx, src, f, defaultTiming)
}

func subscribe(ctx context.Context, src Source, f *kvindex.Feed, tm timing) error {
	for _, addr := range []string{src.Events, src.Replay} {
		if _, _, err := net.SplitHostPort(addr); err != nil && (addr != "" || addr == src.Events) {
			return fmt.Errorf("zmq: source: %w", err)
		}
	}
	for pause := tm.minPause; ; pause = min(2*pause, tm.maxPause) {
		connected, err := session(ctx, src, f, tm)
		if ctx.Err() != nil {
			f.Lost(nil)
			return ctx.Err()
		}
		f.Lost(err)
		if connected {
			pause = tm.minPause
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause/2 + rand.N(pause)): // engines that come back together are not asked together
		}
	}
}

// session is the life of one subscription.
func session(ctx context.Context, src Source, f *kvindex.Feed, tm timing) (connected bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sub, err := dial(ctx, src.Events, "SUB", "PUB", "XPUB")
	if err != nil {
		return false, err
	}
	defer sub.close()
	if err := sub.writeMessage(append([]byte{1}, src.Topic...)); err != nil {
		return false, err
	}
	f.Connected()

	wake := make(chan bool, 1)
	replayed := make(chan struct{})
	go func() {
		defer close(replayed)
		replayLoop(ctx, src.Replay, f, tm, wake)
	}()
	defer func() { <-replayed }()
	defer cancel() // first, so that the wait above ends

	for {
		frames, err := sub.readMessage()
		if err != nil {
			return true, err
		}
		if len(frames) != 3 || len(frames[1]) != 8 {
			f.Malformed()
			continue
		}
		f.Live(binary.BigEndian.Uint64(frames[1]), frames[2])
		select {
		case wake <- true:
		default:
		}
	}
}

// replayLoop asks for replays when the feed wants them. A value in wake says
// that a live frame came.
func replayLoop(ctx context.Context, addr string, f *kvindex.Feed, tm timing, wake <-chan bool) {
	if !sleep(ctx, tm.settle) {
		return
	}
	check := time.NewTimer(tm.firstCheck)
	defer check.Stop()
	quiet := true // nothing came since the last check
	for {
		for {
			from, ok := f.NextReplay()
			if !ok {
				break
			}
			replayOrFail(ctx, addr, from, f, tm)
			if ctx.Err() != nil {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
			quiet = false
		case <-check.C:
			check.Reset(tm.check)
			if addr != "" && quiet { // otherwise a gap has shown by itself
				f.Recheck()
			}
			quiet = true
		}
	}
}

func replayOrFail(ctx context.Context, addr string, from uint64, f *kvindex.Feed, tm timing) {
	if addr == "" {
		f.ReplayFailed()
		return
	}
	for i := range tm.attempts {
		if i > 0 && !sleep(ctx, tm.minPause<<i) {
			break
		}
		got, err := replay(ctx, addr, from, f, tm)
		if err == nil {
			f.ReplayEnd()
			return
		}
		if got {
			break // the feed knows from where to ask again
		}
	}
	f.ReplayFailed()
}

var errReply = errors.New("zmq: malformed replay reply")

// replay asks for the frames from sequence number from on, and hands them over.
func replay(ctx context.Context, addr string, from uint64, f *kvindex.Feed, tm timing) (got bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A REQ socket would be given one reply only, and a request without the
	// empty delimiter none at all (vLLM's replay socket is a ROUTER).
	dealer, err := dial(ctx, addr, "DEALER", "ROUTER")
	if err != nil {
		return false, err
	}
	defer dealer.close()
	if err := dealer.writeMessage(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return false, err
	}
	for {
		_ = dealer.nc.SetReadDeadline(time.Now().Add(tm.reply))
		frames, err := dealer.readMessage()
		if err != nil {
			return got, err
		}
		seq, payload, end, err := parseReply(frames)
		if err != nil {
			f.Malformed()
			return got, err
		}
		if end {
			return got, nil
		}
		f.ReplayFrame(seq, payload)
		got = true
	}
}

// endMark is -1 as a sequence number.
var endMark = bytes.Repeat([]byte{0xff}, 8)

// parseReply reads one reply of a replay. After the delimiter come a sequence
// number and a payload, since vLLM 0.26 with a topic before them; the end is a
// reply with the sequence number -1, in whichever place, and nothing else.
func parseReply(frames [][]byte) (seq uint64, payload []byte, end bool, err error) {
	if len(frames) == 0 || len(frames[0]) != 0 {
		return 0, nil, false, errReply
	}
	frames = frames[1:]
	if len(frames) != 2 && len(frames) != 3 {
		return 0, nil, false, errReply
	}
	marks, empty := 0, 0
	for _, fr := range frames {
		switch {
		case len(fr) == 0:
			empty++
		case bytes.Equal(fr, endMark):
			marks++
		}
	}
	if marks == 1 && marks+empty == len(frames) {
		return 0, nil, true, nil
	}
	number := frames[len(frames)-2]
	if len(number) != 8 {
		return 0, nil, false, errReply
	}
	return binary.BigEndian.Uint64(number), frames[len(frames)-1], false, nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
