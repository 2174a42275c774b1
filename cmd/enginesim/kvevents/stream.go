package kvevents

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/warmroute/warmroute/cmd/enginesim/engine"
	"github.com/warmroute/warmroute/cmd/enginesim/zmtp"
)

// Config describes one engine's event stream.
type Config struct {
	Format Format
	Topic  string
	Rank   int // data-parallel rank, in every batch
	// BufferSteps is how many batches a replay can reach back (vLLM: 10000).
	BufferSteps int
	// HWM is how many batches wait for a slow subscriber before further ones are
	// dropped for it (vLLM: 100000).
	HWM int
}

// endOfReplay stands where a sequence would: -1 as a signed number.
var endOfReplay = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Stream numbers batches from 0, publishes them and keeps the last ones for
// replay. Its methods may be called at once.
type Stream struct {
	cfg Config
	pub *zmtp.Publisher

	mu   sync.Mutex
	next uint64   // sequence of the next batch
	ring [][]byte // payload of batch s at s % BufferSteps
}

// NewStream returns a stream that nobody is connected to yet.
func NewStream(cfg Config) *Stream {
	return &Stream{cfg: cfg, pub: zmtp.NewPublisher(cfg.HWM)}
}

// Serve takes subscribers on events and replay requests on replay until ctx ends.
func (s *Stream) Serve(ctx context.Context, events, replay net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.pub.Serve(ctx, events) })
	g.Go(func() error { return zmtp.ServeRouter(ctx, replay, s.replay) })
	return g.Wait()
}

// Publish sends one batch; seconds is Unix time. It never waits for a subscriber.
func (s *Stream) Publish(seconds float64, events []engine.Event) {
	payload := AppendBatch(nil, s.cfg.Format, seconds, s.cfg.Rank, events)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ring) < s.cfg.BufferSteps {
		s.ring = append(s.ring, payload)
	} else if len(s.ring) > 0 {
		s.ring[s.next%uint64(len(s.ring))] = payload
	}
	s.pub.Publish([]byte(s.cfg.Topic), sequence(s.next), payload)
	s.next++
}

// Batches is how many batches were published.
func (s *Stream) Batches() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// Subscribers is how many peers are subscribed now.
func (s *Stream) Subscribers() int { return s.pub.Subscribers() }

// replay answers a request for the batches from a sequence on. Like vLLM it
// ignores anything but an empty delimiter and eight bytes, and starts with the
// oldest batch it has when asked for older ones.
func (s *Stream) replay(parts [][]byte, reply func(parts ...[]byte) error) {
	if len(parts) != 2 || len(parts[0]) != 0 || len(parts[1]) != 8 {
		return
	}
	// Signed, as in the engine: a negative start asks for everything.
	start := int64(binary.BigEndian.Uint64(parts[1]))
	first, batches := s.since(start)
	head := [][]byte{{}, []byte(s.cfg.Topic)}
	last := [][]byte{{}, {}, endOfReplay, {}}
	if s.cfg.Format == Arrays {
		head, last = head[:1], last[1:]
	}
	for i, payload := range batches {
		if reply(append(slices.Clip(head), sequence(first+uint64(i)), payload)...) != nil {
			return
		}
	}
	_ = reply(last...) // a peer that is gone needs no end
}

// since returns the kept batches from start on and the sequence of the first.
func (s *Stream) since(start int64) (first uint64, batches [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := uint64(len(s.ring))
	first = s.next - n
	if start > 0 {
		first = max(first, uint64(start))
	}
	for q := first; q < s.next; q++ {
		batches = append(batches, s.ring[q%n])
	}
	return first, batches
}

func sequence(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
