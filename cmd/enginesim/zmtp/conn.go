// Package zmtp is the engine's side of ZeroMQ: a PUB and a ROUTER socket that
// bind, over TCP, with the NULL mechanism (RFC 23/ZMTP 3.0, 28/REQREP, 29/PUBSUB).
//
// It exists because github.com/go-zeromq/zmq4 writes to all subscribers under
// one lock, so that one stalled subscriber stops the others, and because an
// implementation that shares nothing with the picker's makes their agreement
// mean something. A peer that breaks the protocol loses its connection, never more.
package zmtp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4

	// maxFrame bounds what a peer may make us hold; subscriptions and replay
	// requests are a few bytes.
	maxFrame = 64 << 10
	// maxParts bounds the frames of one message.
	maxParts = 16

	handshakeTimeout = 10 * time.Second
)

// conn is one peer after the handshake.
type conn struct {
	net.Conn
	r *bufio.Reader
}

// greeting is what a ZMTP 3.0 peer sends first: signature, version, mechanism,
// as-server and filler.
func greeting() []byte {
	g := make([]byte, 64)
	g[0], g[9] = 0xff, 0x7f
	g[10] = 3
	copy(g[12:], "NULL")
	return g
}

// accept shakes hands as a socket of type own with a peer of one of the types allowed.
func accept(nc net.Conn, own string, allowed ...string) (*conn, error) {
	if err := nc.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	if _, err := nc.Write(greeting()); err != nil {
		return nil, err
	}
	c := &conn{Conn: nc, r: bufio.NewReader(nc)}
	var g [64]byte
	if _, err := io.ReadFull(c.r, g[:]); err != nil {
		return nil, err
	}
	if g[0] != 0xff || g[9]&1 == 0 || g[10] < 3 {
		return nil, errors.New("zmtp: peer does not speak ZMTP 3")
	}
	if m := bytes.TrimRight(g[12:32], "\x00"); string(m) != "NULL" {
		return nil, fmt.Errorf("zmtp: peer wants mechanism %q, only NULL is served", m)
	}
	ready := []byte("\x05READY")
	ready = appendProperty(ready, "Socket-Type", own)
	ready = appendProperty(ready, "Identity", "")
	if _, err := nc.Write(appendFrame(nil, flagCommand, ready)); err != nil {
		return nil, err
	}
	flags, body, err := c.readFrame()
	if err != nil {
		return nil, err
	}
	peer, err := socketType(body)
	if err != nil {
		return nil, err
	}
	if flags&flagCommand == 0 || !slices.Contains(allowed, peer) {
		return nil, fmt.Errorf("zmtp: a %s socket does not talk to %q", own, peer)
	}
	return c, nc.SetDeadline(time.Time{})
}

func appendProperty(dst []byte, name, value string) []byte {
	dst = append(dst, byte(len(name)))
	dst = append(dst, name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

// socketType reads the peer's socket type from the body of its READY command.
func socketType(body []byte) (string, error) {
	rest, ok := bytes.CutPrefix(body, []byte("\x05READY"))
	for ok && len(rest) > 0 {
		n := int(rest[0])
		if len(rest) < 1+n+4 {
			break
		}
		name := string(rest[1 : 1+n])
		size := int(binary.BigEndian.Uint32(rest[1+n:]))
		rest = rest[1+n+4:]
		if size > len(rest) {
			break
		}
		if name == "Socket-Type" {
			return string(rest[:size]), nil
		}
		rest = rest[size:]
	}
	return "", errors.New("zmtp: peer's READY command has no socket type")
}

// readFrame reads one frame, message or command.
func (c *conn) readFrame() (flags byte, body []byte, err error) {
	if flags, err = c.r.ReadByte(); err != nil {
		return 0, nil, err
	}
	var size uint64
	if flags&flagLong != 0 {
		var b [8]byte
		if _, err = io.ReadFull(c.r, b[:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(b[:])
	} else {
		b, err := c.r.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		size = uint64(b)
	}
	if size > maxFrame {
		return 0, nil, fmt.Errorf("zmtp: peer sent a frame of %d bytes", size)
	}
	body = make([]byte, size)
	_, err = io.ReadFull(c.r, body)
	return flags, body, err
}

// readMessage reads the next message; a lone command is returned with command set.
func (c *conn) readMessage() (parts [][]byte, command bool, err error) {
	for {
		flags, body, err := c.readFrame()
		if err != nil {
			return nil, false, err
		}
		if flags&flagCommand != 0 {
			return [][]byte{body}, true, nil
		}
		parts = append(parts, body)
		if flags&flagMore == 0 {
			return parts, false, nil
		}
		if len(parts) == maxParts {
			return nil, false, errors.New("zmtp: peer sent a message of too many frames")
		}
	}
}

// appendMessage appends the wire form of one message.
func appendMessage(dst []byte, parts ...[]byte) []byte {
	for i, p := range parts {
		flags := byte(flagMore)
		if i == len(parts)-1 {
			flags = 0
		}
		dst = appendFrame(dst, flags, p)
	}
	return dst
}

func appendFrame(dst []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		dst = append(dst, flags|flagLong)
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(body)))
	} else {
		dst = append(dst, flags, byte(len(body)))
	}
	return append(dst, body...)
}

// pong answers a PING command (ZMTP 3.1) and reports whether body was one.
func pong(body []byte) (answer []byte, ok bool) {
	rest, ok := bytes.CutPrefix(body, []byte("\x04PING"))
	if !ok || len(rest) < 2 {
		return nil, false
	}
	return appendFrame(nil, flagCommand, append([]byte("\x04PONG"), rest[2:]...)), true
}
