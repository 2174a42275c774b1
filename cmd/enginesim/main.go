// Command enginesim runs simulated LLM inference engines: vLLM's HTTP API, KV
// events and metrics over a real paged KV cache, with scaled time instead of a
// GPU. Every engine has its own port; all share one process.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warmroute/warmroute/cmd/enginesim/kvevents"
	"github.com/warmroute/warmroute/cmd/enginesim/prompt"
	"github.com/warmroute/warmroute/cmd/enginesim/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "enginesim:", err)
		os.Exit(1)
	}
}

// started is the line that tells where one engine listens.
type started struct {
	Engine int    `json:"engine"`
	HTTP   string `json:"http"`
	Events string `json:"events"`
	Replay string `json:"replay"`
}

// run starts the engines, prints one line for each and serves until ctx ends.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	f, err := parseFlags(args, os.Stderr)
	if err != nil {
		return err
	}
	var tokenizer server.Tokenizer
	vocabulary := server.PlainVocabulary()
	root := f.model
	if f.tokenizer != "" {
		t, err := prompt.Load(f.tokenizer)
		if err != nil {
			return err
		}
		if vocabulary, err = t.Vocabulary(); err != nil {
			return err
		}
		tokenizer = t
		if root, err = filepath.Abs(f.tokenizer); err != nil {
			return err
		}
	}

	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	out := json.NewEncoder(stdout)
	var bound []net.Listener
	for i := range f.engines {
		lns, err := f.listen(i)
		bound = append(bound, lns...)
		var s *server.Server
		if err == nil {
			s, err = server.New(server.Config{
				Index: i, Engine: f.engine,
				Events: kvevents.Config{
					Format: f.format, Topic: strings.NewReplacer("ADDRESS", lns[0].Addr().String(), "MODEL", f.model).Replace(f.topic),
					BufferSteps: f.bufferSteps, HWM: f.hwm,
				},
				Model: f.model, Aliases: f.aliases, Root: root, Adapters: f.adapters, Version: f.version,
				Tokenizer: tokenizer, Vocabulary: vocabulary, Seed: f.seed,
				TimeScale: f.timeScale, StreamInterval: f.streamInterval, Served: f.served,
			}, start)
		}
		if err == nil {
			err = out.Encode(started{i, lns[0].Addr().String(), lns[1].Addr().String(), lns[2].Addr().String()})
		}
		if err != nil {
			for _, ln := range bound {
				ln.Close() //nolint:errcheck // the first error is the one to tell
			}
			return err
		}
		g.Go(func() error { return s.Serve(ctx, lns[0], lns[1], lns[2]) })
	}
	return g.Wait()
}

// listen binds engine i's ports: HTTP, events and replay.
func (f *flags) listen(i int) ([]net.Listener, error) {
	at := func(port, step int) int {
		if port == 0 {
			return 0
		}
		return port + step
	}
	var lns []net.Listener
	for _, port := range []int{at(f.port, i), at(f.eventsPort, 2*i), at(f.eventsPort, 2*i+1)} {
		ln, err := net.Listen("tcp", net.JoinHostPort(f.host, strconv.Itoa(port)))
		if err != nil {
			return lns, fmt.Errorf("%w: stop what uses the port, or choose others with --listen and --events-port (0 takes free ones)", err)
		}
		lns = append(lns, ln)
	}
	return lns, nil
}
