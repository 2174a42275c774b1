package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// serveFlags binds the command line of serve to c. config and check are the
// two flags that are no setting.
func (c *config) serveFlags(stderr io.Writer) (fs *flag.FlagSet, file *string, check *bool) {
	fs = flag.NewFlagSet("serve", flag.ContinueOnError)
	fs.SetOutput(stderr)
	file = fs.String("config", "", "configuration `file` (YAML); flags override it")
	check = fs.Bool("check", false, "validate, print the effective configuration and exit")
	for _, k := range c.keys() {
		if k.flag == "" {
			continue
		}
		doc := k.doc
		if k.unit != "" {
			doc = "`" + k.unit + "`: " + doc
		}
		switch v := k.value.(type) {
		case *string:
			fs.StringVar(v, k.flag, *v, doc)
		case *float64:
			fs.Float64Var(v, k.flag, *v, doc)
		case *bool:
			fs.BoolVar(v, k.flag, *v, doc)
		case *time.Duration:
			fs.DurationVar(v, k.flag, *v, doc)
		case *[]string:
			fs.Var((*listFlag)(v), k.flag, doc)
		default:
			panic(fmt.Sprintf("flag %s: no flag type for %T", k.flag, k.value))
		}
	}
	fs.Var((*tokenizerFlag)(&c.Models), "tokenizer", "`NAME=DIR`: tokenizer directory of the model NAME (repeatable)")
	return fs, file, check
}

// effectiveConfig is the defaults, under the file, under the flags.
func effectiveConfig(args []string, stderr io.Writer) (c config, check bool, err error) {
	scratch := defaultConfig()
	fs, file, _ := scratch.serveFlags(stderr)
	if err := parse(fs, args); err != nil {
		return c, false, err
	}
	c = defaultConfig()
	if *file != "" {
		if err := c.load(*file); err != nil {
			return c, false, err
		}
	}
	fs, _, checked := c.serveFlags(io.Discard)
	if err := parse(fs, args); err != nil {
		return c, false, err
	}
	return c, *checked, c.validate()
}

// listFlag is a comma-separated list; giving the flag replaces what stood
// there before.
type listFlag []string

func (l *listFlag) String() string { return strings.Join(*l, ",") }

func (l *listFlag) Set(text string) error {
	*l = nil
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			*l = append(*l, part)
		}
	}
	return nil
}

// tokenizerFlag adds a model, or gives a model of the file another tokenizer.
type tokenizerFlag []modelConfig

func (t *tokenizerFlag) String() string { return "" }

func (t *tokenizerFlag) Set(text string) error {
	name, dir, ok := strings.Cut(text, "=")
	if !ok || name == "" || dir == "" {
		return errors.New("want NAME=DIR, the model name as clients write it and the directory of its tokenizer.json")
	}
	at := slices.IndexFunc(*t, func(m modelConfig) bool { return m.Name == name })
	if at < 0 {
		*t = append(*t, modelConfig{Name: name, Tokenizer: dir})
		return nil
	}
	(*t)[at].Tokenizer = dir
	return nil
}
