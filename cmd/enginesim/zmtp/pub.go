package zmtp

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"
)

// Publisher is a PUB socket. Publish never waits for a subscriber: each has its
// own queue, and a message that finds the queue full is dropped for that
// subscriber only, as ZeroMQ does at its high-water mark.
type Publisher struct {
	hwm int

	mu   sync.Mutex
	subs map[*subscriber]struct{}
}

type subscriber struct {
	conn *conn
	wake chan struct{} // capacity 1: the queue has something

	mu      sync.Mutex
	topics  [][]byte
	queue   [][]byte
	dropped uint64
}

// NewPublisher returns a PUB socket whose subscribers each hold up to hwm messages.
func NewPublisher(hwm int) *Publisher {
	return &Publisher{hwm: hwm, subs: make(map[*subscriber]struct{})}
}

// Serve accepts subscribers on ln until ctx ends; it closes ln and every connection.
func (p *Publisher) Serve(ctx context.Context, ln net.Listener) error {
	return serve(ctx, ln, func(ctx context.Context, nc net.Conn) {
		c, err := accept(nc, "PUB", "SUB", "XSUB")
		if err != nil {
			return
		}
		s := &subscriber{conn: c, wake: make(chan struct{}, 1)}
		p.mu.Lock()
		p.subs[s] = struct{}{}
		p.mu.Unlock()
		var writer sync.WaitGroup
		wctx, stop := context.WithCancel(ctx)
		writer.Go(func() { s.write(wctx) })
		s.read()
		stop()
		p.mu.Lock()
		delete(p.subs, s)
		p.mu.Unlock()
		nc.Close() //nolint:errcheck // it is over either way
		writer.Wait()
	})
}

// Publish sends one message to every subscriber of a prefix of its first part.
func (p *Publisher) Publish(parts ...[]byte) {
	wire := appendMessage(nil, parts...)
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.subs {
		s.push(parts[0], wire, p.hwm)
	}
}

// Subscribers is how many connections have at least one subscription.
func (p *Publisher) Subscribers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for s := range p.subs {
		s.mu.Lock()
		if len(s.topics) > 0 {
			n++
		}
		s.mu.Unlock()
	}
	return n
}

func (s *subscriber) push(topic, wire []byte, hwm int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.topics, func(t []byte) bool { return bytes.HasPrefix(topic, t) }) {
		return
	}
	if len(s.queue) >= hwm {
		s.dropped++
		return
	}
	s.queue = append(s.queue, wire)
	s.signal()
}

func (s *subscriber) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// read follows the peer's subscriptions until the connection ends.
func (s *subscriber) read() {
	for {
		parts, command, err := s.conn.readMessage()
		if err != nil {
			return
		}
		body := parts[0]
		if command {
			// ZMTP 3.1 peers use commands; older ones a message led by 1 or 0.
			if topic, ok := bytes.CutPrefix(body, []byte("\x09SUBSCRIBE")); ok {
				s.subscribe(topic)
			} else if topic, ok := bytes.CutPrefix(body, []byte("\x06CANCEL")); ok {
				s.cancel(topic)
			} else if answer, ok := pong(body); ok {
				s.mu.Lock()
				s.queue = append(s.queue, answer)
				s.signal()
				s.mu.Unlock()
			}
			continue
		}
		switch {
		case len(body) > 0 && body[0] == 1:
			s.subscribe(body[1:])
		case len(body) > 0 && body[0] == 0:
			s.cancel(body[1:])
		}
	}
}

func (s *subscriber) subscribe(topic []byte) {
	s.mu.Lock()
	s.topics = append(s.topics, topic)
	s.mu.Unlock()
}

func (s *subscriber) cancel(topic []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.topics, func(t []byte) bool { return bytes.Equal(t, topic) }); i >= 0 {
		s.topics = slices.Delete(s.topics, i, i+1)
	}
}

// write drains the queue until ctx ends or the peer is gone.
func (s *subscriber) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		s.mu.Lock()
		batch := net.Buffers(s.queue)
		s.queue = nil
		s.mu.Unlock()
		if _, err := batch.WriteTo(s.conn.Conn); err != nil {
			s.conn.Close() //nolint:errcheck // wakes the reader; it is over either way
			return
		}
	}
}
