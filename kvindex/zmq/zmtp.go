package zmq

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// The client side of ZMTP 3.0 (rfc.zeromq.org/spec/23) with the NULL mechanism,
// as far as a SUB and a DEALER that connect need it. libzmq speaks 3.1 and
// answers a 3.0 peer in kind.

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4

	greetingSize = 64

	// maxMessage bounds what one message may make us keep. The events of a
	// prompt of a million tokens are some 5 MB.
	maxMessage = 64 << 20
	maxFrames  = 16
	maxCommand = 1 << 16

	// keptBuffer is the largest buffer that is kept for the next message.
	keptBuffer = 4 << 20

	readStep = 1 << 20 // memory is taken as bytes arrive, not as a length claims
)

var (
	errGreeting = errors.New("zmq: peer does not speak ZMTP 3 with the NULL mechanism")
	errTooLarge = errors.New("zmq: message too large")
	errFraming  = errors.New("zmq: malformed frame")
)

// conn is one ZMTP connection. One goroutine reads; any may write.
type conn struct {
	nc     net.Conn
	r      *bufio.Reader
	buf    []byte // frames of the message being read
	ends   []int  // where each ends in buf
	frames [][]byte

	mu  sync.Mutex // guards writing
	out []byte
}

// dial connects to addr as a socket of the given type, and checks that the peer
// is one of peers. The connection closes when ctx ends.
func dial(ctx context.Context, addr, socketType string, peers ...string) (*conn, error) {
	const handshakeTime = 10 * time.Second
	dialer := net.Dialer{
		Timeout:         5 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	nc, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("zmq: %w", err)
	}
	c := &conn{nc: nc, r: bufio.NewReaderSize(nc, 1<<16)}
	context.AfterFunc(ctx, c.close)
	// A deadline can only fail to be set on a closed connection, which the next
	// use reports.
	_ = nc.SetDeadline(time.Now().Add(handshakeTime))
	if err := c.handshake(socketType, peers); err != nil {
		c.close()
		return nil, err
	}
	_ = nc.SetDeadline(time.Time{})
	return c, nil
}

func (c *conn) close() {
	_ = c.nc.Close() // nothing is owed to the peer
}

func (c *conn) handshake(socketType string, peers []string) error {
	greeting := make([]byte, greetingSize)
	greeting[0], greeting[9] = 0xff, 0x7f // signature
	greeting[10] = 3                      // version 3.0
	copy(greeting[12:], "NULL")
	if _, err := c.nc.Write(greeting); err != nil {
		return fmt.Errorf("zmq: greeting: %w", err)
	}
	var theirs [greetingSize]byte
	if _, err := io.ReadFull(c.r, theirs[:]); err != nil {
		return fmt.Errorf("zmq: greeting: %w", err)
	}
	if theirs[0] != 0xff || theirs[9] != 0x7f || theirs[10] < 3 || string(bytes.TrimRight(theirs[12:32], "\x00")) != "NULL" {
		return errGreeting
	}
	ready := []byte("\x05READY")
	for _, p := range [...][2]string{{"Socket-Type", socketType}, {"Identity", ""}} {
		ready = append(ready, byte(len(p[0])))
		ready = append(ready, p[0]...)
		ready = binary.BigEndian.AppendUint32(ready, uint32(len(p[1])))
		ready = append(ready, p[1]...)
	}
	if err := c.writeFrame(flagCommand, ready); err != nil {
		return err
	}
	flags, size, err := c.readHeader()
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 {
		return errFraming
	}
	name, body, err := c.readCommand(size)
	if err != nil {
		return err
	}
	switch name {
	case "READY":
	case "ERROR":
		return fmt.Errorf("zmq: peer refuses: %q", body)
	default:
		return errFraming
	}
	theirType, err := socketTypeOf(body)
	if err != nil {
		return err
	}
	if !slices.Contains(peers, theirType) {
		return fmt.Errorf("zmq: peer is a %q socket, want one of %q", theirType, peers)
	}
	return nil
}

// socketTypeOf reads the metadata of a READY command.
func socketTypeOf(p []byte) (string, error) {
	for len(p) > 0 {
		n := int(p[0])
		if len(p) < 1+n+4 {
			return "", errFraming
		}
		name, rest := p[1:1+n], p[1+n:]
		size := uint64(binary.BigEndian.Uint32(rest))
		if uint64(len(rest)-4) < size {
			return "", errFraming
		}
		if bytes.EqualFold(name, []byte("Socket-Type")) {
			return string(rest[4 : 4+size]), nil
		}
		p = rest[4+size:]
	}
	return "", errFraming
}

// readMessage returns the frames of the next message. They are valid until the
// next call.
func (c *conn) readMessage() ([][]byte, error) {
	if cap(c.buf) > keptBuffer {
		c.buf = nil
	}
	c.buf, c.ends = c.buf[:0], c.ends[:0]
	for {
		flags, size, err := c.readHeader()
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			if err := c.takeCommand(size); err != nil {
				return nil, err
			}
			continue
		}
		if size > maxMessage-uint64(len(c.buf)) || len(c.ends) == maxFrames {
			return nil, errTooLarge
		}
		for size > 0 {
			n := int(min(size, readStep))
			at := len(c.buf)
			c.buf = slices.Grow(c.buf, n)[:at+n]
			if _, err := io.ReadFull(c.r, c.buf[at:]); err != nil {
				return nil, fmt.Errorf("zmq: %w", err)
			}
			size -= uint64(n)
		}
		c.ends = append(c.ends, len(c.buf))
		if flags&flagMore == 0 {
			break
		}
	}
	c.frames = c.frames[:0]
	start := 0
	for _, end := range c.ends {
		c.frames = append(c.frames, c.buf[start:end:end])
		start = end
	}
	return c.frames, nil
}

func (c *conn) readHeader() (flags byte, size uint64, err error) {
	var b [8]byte
	if flags, err = c.r.ReadByte(); err != nil {
		return 0, 0, fmt.Errorf("zmq: %w", err)
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 {
		return 0, 0, errFraming
	}
	n := 1
	if flags&flagLong != 0 {
		n = 8
	}
	if _, err = io.ReadFull(c.r, b[8-n:]); err != nil {
		return 0, 0, fmt.Errorf("zmq: %w", err)
	}
	return flags, binary.BigEndian.Uint64(b[:]), nil
}

func (c *conn) readCommand(size uint64) (name string, body []byte, err error) {
	if size == 0 || size > maxCommand {
		return "", nil, errFraming
	}
	p := make([]byte, size)
	if _, err := io.ReadFull(c.r, p); err != nil {
		return "", nil, fmt.Errorf("zmq: %w", err)
	}
	n := 1 + int(p[0])
	if n > len(p) {
		return "", nil, errFraming
	}
	return string(p[1:n]), p[n:], nil
}

// takeCommand answers heartbeats (rfc.zeromq.org/spec/37); other commands mean
// nothing to us.
func (c *conn) takeCommand(size uint64) error {
	name, body, err := c.readCommand(size)
	if err != nil || name != "PING" {
		return err
	}
	pong := []byte("\x04PONG")
	if len(body) > 2 { // after the time to live comes a context to give back
		pong = append(pong, body[2:]...)
	}
	return c.writeFrame(flagCommand, pong)
}

// writeMessage sends frames as one message.
func (c *conn) writeMessage(frames ...[]byte) error {
	for i, frame := range frames {
		flags := byte(0)
		if i < len(frames)-1 {
			flags = flagMore
		}
		if err := c.writeFrame(flags, frame); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) writeFrame(flags byte, body []byte) error {
	const writeTime = 10 * time.Second
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(body) < 256 {
		c.out = append(c.out[:0], flags, byte(len(body)))
	} else {
		c.out = append(c.out[:0], flags|flagLong)
		c.out = binary.BigEndian.AppendUint64(c.out, uint64(len(body)))
	}
	c.out = append(c.out, body...)
	_ = c.nc.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := c.nc.Write(c.out); err != nil {
		return fmt.Errorf("zmq: %w", err)
	}
	return nil
}
