// Command demo shows what the picker does, on one machine without a GPU: it
// replays the same requests in the same order through a real Envoy to simulated
// engines, once with Envoy's own round robin and once with the picker, and
// prints both side by side.
//
// It ends everything it started, also when it is interrupted. Logs and the
// table stay in .build.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/warmroute/warmroute/e2e/replay"
	"github.com/warmroute/warmroute/e2e/stack"
)

//go:embed trace/conversation.jsonl
var conversation []byte

// The load is the one at which policies have been told apart before, on this
// trace and engine model: four engines of 1 M tokens of KV cache and 8,000
// prompt tokens a second, at 0.7 of the recorded rate (8 engines at 1.4 in the
// larger study). Nothing is chosen by the outcome of this comparison. Every
// setting of the picker is its default.
const (
	model   = "tiny"
	engines = 4
	rate    = 0.7
	// One token sent stands for eight recorded ones, and one engine step for
	// eight: prompts shrink, and with them cache and speed; the shared prefixes
	// stay the same share.
	shrink = 8
	// The engines' clock runs eight times as fast as the wall's: fast enough to
	// wait for, and slow enough for two busy cores.
	scale = 8
	seed  = 1

	blockSize   = 16     // tokens sent, that is 128 recorded ones
	blocks      = 7812   // 1 M recorded tokens
	prefillRate = 8000.0 // recorded tokens per simulated second
	decodeStep  = 15.0   // simulated milliseconds per recorded output token
	decodeSeq   = 0.25   // simulated milliseconds that each further request adds to it
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, os.Stdout)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "\ndemo: interrupted; everything it started has been stopped")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out *os.File) error {
	root, err := stack.FindRoot()
	if err != nil {
		return err
	}
	tokenizer := filepath.Join(root, "examples", "models", model)
	trace, err := replay.ReadTrace(bytes.NewReader(conversation))
	if err != nil {
		return err
	}
	words, err := replay.ReadWords(tokenizer)
	if err != nil {
		return err
	}
	calls, err := replay.Plan(trace, replay.Config{
		Model: model, Words: words, Shrink: shrink, Rate: rate, Scale: scale, Seed: seed,
	})
	if err != nil {
		return err
	}
	last := calls[len(calls)-1].At.Seconds()
	fmt.Fprintf(out, `%d requests of a recorded chat workload over %.0f simulated seconds (%.0f s here), sent through a real Envoy
to %d simulated engines: first in turn, then by warmroute. Same requests, same order, fresh engines.

`, len(calls), last*scale, last, engines)

	base := stack.Config{
		Root: root, Engines: engines, Envoy: "round-robin",
		EngineArgs: []string{
			"--tokenizer", tokenizer, "--model", model, "--time-scale", strconv.Itoa(scale),
			"--block-size", strconv.Itoa(blockSize), "--blocks", strconv.Itoa(blocks),
			"--prefill-tps", fmt.Sprint(prefillRate / shrink),
			"--decode-ms", fmt.Sprint(decodeStep * shrink), "--decode-seq-ms", fmt.Sprint(decodeSeq * shrink),
		},
	}
	picked := base
	picked.Envoy, picked.Picker = "override-host-buffered", true
	picked.PickerArgs = []string{"--tokenizer", model + "=" + tokenizer}

	var sides [2]outcome
	for i, side := range []struct {
		label string
		cfg   stack.Config
	}{{"round robin", base}, {"warmroute", picked}} {
		side.cfg.Dir = filepath.Join(root, ".build", "demo", side.cfg.Envoy)
		if sides[i], err = pass(ctx, out, side.label, side.cfg, calls); err != nil {
			return err
		}
	}
	return report(root, out, &sides[0], &sides[1])
}

// outcome is what one pass gave.
type outcome struct {
	replay.Summary
	decisions map[string]int // the picker's, by reason; nil without a picker
}

// pass starts everything, sends the requests, and stops everything.
func pass(ctx context.Context, out *os.File, label string, cfg stack.Config, calls []replay.Call) (o outcome, err error) {
	s, err := stack.Start(ctx, cfg)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-s.Failed():
			cancel(err)
		case <-ctx.Done():
		}
	}()
	results, err := replay.Run(ctx, s.URL, calls, replay.NewBar(out, label).Draw)
	if err != nil {
		return o, context.Cause(ctx)
	}
	o.Summary = replay.Summarize(results, scale)
	if cfg.Picker {
		o.decisions, err = s.Decisions(ctx)
	}
	return o, err
}

// report prints the table and keeps it as .build/demo.md.
func report(root string, out io.Writer, turn, picked *outcome) error {
	fmt.Fprint(out, "\n", table(&turn.Summary, &picked.Summary, false), legend, "\nWhy warmroute picked as it did:")
	for _, reason := range slices.Sorted(maps.Keys(picked.decisions)) {
		fmt.Fprintf(out, " %s %d", reason, picked.decisions[reason])
	}
	fmt.Fprintln(out)
	if picked.decisions["untokenizable"] > 0 {
		fmt.Fprintln(out, "Untokenizable: placed by load alone, on a machine as busy as this most likely because the picker's deadline passed;\nwarmroute_untokenized_total has the reason.")
	}
	for _, o := range []*outcome{turn, picked} {
		if o.FirstError != nil {
			fmt.Fprintln(out, "First error:", o.FirstError)
		}
	}
	file := filepath.Join(root, ".build", "demo.md")
	if err := os.WriteFile(file, []byte(table(&turn.Summary, &picked.Summary, true)), 0o644); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	fmt.Fprintln(out, "The table is in .build/demo.md, all logs are in .build/demo.")
	if n := turn.Errors + picked.Errors; n > 0 {
		return fmt.Errorf("%d requests failed", n)
	}
	return nil
}
