package zmtp

import (
	"bufio"
	"context"
	"net"
)

// ServeRouter is a ROUTER socket on ln until ctx ends. handle gets the parts of
// each message that a DEALER or REQ peer sends, without the identity that a
// ROUTER application would see in front: reply already goes to that peer.
// Peers are served side by side, the messages of one peer in order.
func ServeRouter(ctx context.Context, ln net.Listener, handle func(parts [][]byte, reply func(parts ...[]byte) error)) error {
	return serve(ctx, ln, func(_ context.Context, nc net.Conn) {
		c, err := accept(nc, "ROUTER", "DEALER", "REQ", "ROUTER")
		if err != nil {
			return
		}
		w := bufio.NewWriter(nc)
		reply := func(parts ...[]byte) error {
			_, err := w.Write(appendMessage(nil, parts...))
			return err
		}
		for {
			parts, command, err := c.readMessage()
			if err != nil {
				return
			}
			if command {
				answer, ok := pong(parts[0])
				if !ok {
					continue
				}
				if _, err := w.Write(answer); err != nil {
					return
				}
			} else {
				handle(parts, reply)
			}
			if err := w.Flush(); err != nil {
				return
			}
		}
	})
}
