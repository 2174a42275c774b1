// Command warmroute sends each LLM request to the engine that is already warm
// for it. `warmroute serve` is the Envoy external processor; the other
// sub-commands show what it sees.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker when make builds a release.
var version = "dev"

const usage = `warmroute sends each LLM request to the engine that is already warm for it.

Usage: warmroute COMMAND [flags]

  serve     answer Envoy: the picker
  tokenize  print the token ids an engine would compute for a request
  render    fill in a chat template with given variables
  version   print the version

warmroute COMMAND --help lists the flags of a command.
`

func main() {
	err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintln(os.Stderr, "warmroute:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "warmroute:", err)
		os.Exit(1)
	}
}

// usageError is a mistake on the command line; it ends the program with 2.
type usageError struct{ error }

// run is the whole program: main with its surroundings passed in.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return usageError{errors.New("no command given")}
	}
	command, args := args[0], args[1:]
	switch command {
	case "serve":
		// The others have nothing to finish: a signal ends them at once.
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		return serve(ctx, args, stdout, stderr)
	case "tokenize":
		return tokenizeCommand(args, stdin, stdout, stderr)
	case "render":
		return renderCommand(args, stdin, stdout, stderr)
	case "version", "--version", "-v":
		_, err := fmt.Fprintln(stdout, "warmroute", version)
		return err
	case "help", "--help", "-h":
		_, err := fmt.Fprint(stdout, usage)
		return err
	}
	return usageError{fmt.Errorf("unknown command %q; warmroute help lists them", command)}
}

// parse reads a command's flags; every failure is a usageError except --help.
func parse(fs *flag.FlagSet, args []string) error {
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	if fs.NArg() > 0 {
		return usageError{fmt.Errorf("%s: unexpected argument %q", fs.Name(), fs.Arg(0))}
	}
	return nil
}
