package zmtp

import (
	"context"
	"errors"
	"net"
	"sync"
)

// serve runs handle for every connection to ln until ctx ends, and returns when
// all have returned. handle may leave the connection open.
func serve(ctx context.Context, ln net.Listener, handle func(context.Context, net.Conn)) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { ln.Close() }) //nolint:errcheck // only to end Accept
	defer stop()
	for {
		nc, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		all.Go(func() {
			defer nc.Close()                                      //nolint:errcheck // nothing is left to lose
			defer context.AfterFunc(ctx, func() { nc.Close() })() //nolint:errcheck // ends reads and writes
			handle(ctx, nc)
		})
	}
}
