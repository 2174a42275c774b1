package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/warmroute/warmroute/cmd/enginesim/engine"
	"github.com/warmroute/warmroute/cmd/enginesim/kvevents"
)

// flags are the command line.
type flags struct {
	engines          int
	host             string
	port, eventsPort int // 0 takes free ports
	tokenizer, model string
	aliases          []string
	adapters         []engine.Adapter
	version          string
	engine           engine.Config
	format           kvevents.Format
	topic            string
	bufferSteps, hwm int
	timeScale        float64
	streamInterval   time.Duration
	served           int
	seed             uint64
}

func parseFlags(args []string, stderr io.Writer) (*flags, error) {
	f := &flags{}
	fs := flag.NewFlagSet("enginesim", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&f.engines, "engines", 1, "simulated engines, each on its own port")
	listen := fs.String("listen", "127.0.0.1:8000", "`address` of the first engine's HTTP port, the others follow; port 0 takes free ones")
	host := fs.String("host", "", "address to bind, instead of the one in --listen")
	fs.IntVar(&f.eventsPort, "events-port", 0, "first KV event `port`: engine i publishes on it + 2i and replays on the next; 0 takes free ones")
	fs.StringVar(&f.tokenizer, "tokenizer", "", "model `directory` with tokenizer.json, tokenizer_config.json and chat_template.jinja; without it prompts must be token ids")
	fs.StringVar(&f.model, "model", "tiny", "served model `name`")
	aliases := fs.String("alias", "", "further names of the model, comma separated")
	fs.Func("lora", "adapter as `NAME=PATH`, repeatable", func(s string) error {
		name, path, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return errors.New("want NAME=PATH")
		}
		f.adapters = append(f.adapters, engine.Adapter{ID: len(f.adapters) + 1, Name: name, Path: path})
		return nil
	})
	fs.StringVar(&f.version, "version", "", "vLLM version to report (default 0.32.0, or 0.23.0 with --event-format array)")
	fs.IntVar(&f.engine.BlockSize, "block-size", 16, "tokens per KV block")
	fs.IntVar(&f.engine.Blocks, "blocks", 7812, "KV blocks of each engine; one is the null block")
	fs.IntVar(&f.engine.MaxModelLen, "max-model-len", 0, "most tokens of prompt and output; 0 means as many as the blocks hold, up to 131072")
	fs.IntVar(&f.engine.MaxRunning, "max-running", 64, "requests in one batch")
	fs.IntVar(&f.engine.TokenBudget, "max-batched-tokens", 2048, "tokens computed in one step: the size of a prefill chunk")
	fs.Float64Var(&f.engine.PrefillRate, "prefill-tps", 8000, "prompt tokens computed per simulated second")
	decode := fs.Float64("decode-ms", 15, "simulated milliseconds of every step: the time per output token of one request")
	perSeq := fs.Float64("decode-seq-ms", 0.25, "simulated milliseconds that each decoding request adds to a step")
	fs.Float64Var(&f.timeScale, "time-scale", 1, "simulated seconds per second")
	fs.DurationVar(&f.streamInterval, "stream-interval", 20*time.Millisecond, "least time between two chunks of a stream after its first token; tokens that come faster share a chunk")
	fs.StringVar(&f.engine.HashSeed, "hash-seed", "", "PYTHONHASHSEED of the engines: text hashed into every first block (default \""+engine.DefaultHashSeed+"\", as an engine without the variable)")
	format := fs.String("event-format", "map", "KV event items: map as vLLM 0.32, or array as 0.23")
	fs.StringVar(&f.topic, "topic", "kv@ADDRESS@MODEL", "`topic` of the KV events; ADDRESS and MODEL stand for the engine's own")
	fs.IntVar(&f.bufferSteps, "buffer-steps", 10000, "batches that a replay can reach back")
	fs.IntVar(&f.hwm, "hwm", 100000, "batches that wait for a slow subscriber before more are dropped for it")
	fs.IntVar(&f.served, "remember", 100000, "finished requests that /sim/requests lists")
	fs.Uint64Var(&f.seed, "seed", 0, "seed of the answers")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("argument %q: enginesim takes flags only, see --help", fs.Arg(0))
	}

	var port string
	var err error
	if f.host, port, err = net.SplitHostPort(*listen); err == nil {
		f.port, err = strconv.Atoi(port)
	}
	if err != nil {
		return nil, fmt.Errorf("--listen %q: want host:port, for example 127.0.0.1:8000", *listen)
	}
	if *host != "" {
		f.host = *host
	}
	if *aliases != "" {
		f.aliases = strings.Split(*aliases, ",")
	}
	switch *format {
	case "map":
	case "array":
		f.format, f.engine.V023 = kvevents.Arrays, true
	default:
		return nil, fmt.Errorf("--event-format %q: want map or array", *format)
	}
	if f.version == "" {
		f.version = map[kvevents.Format]string{kvevents.Maps: "0.32.0", kvevents.Arrays: "0.23.0"}[f.format]
	}
	if f.engines < 1 {
		return nil, fmt.Errorf("--engines %d: want at least 1", f.engines)
	}
	f.engine.StepBase = time.Duration(*decode * float64(time.Millisecond))
	f.engine.StepPerSeq = time.Duration(*perSeq * float64(time.Millisecond))
	if f.engine.MaxModelLen == 0 {
		f.engine.MaxModelLen = min((f.engine.Blocks-1)*f.engine.BlockSize, 131072)
	}
	return f, nil
}
