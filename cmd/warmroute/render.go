package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// longestContext bounds one line of template variables.
const longestContext = 256 << 20

// renderCommand renders a template once for each line of variables on stdin.
func renderCommand(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("render", flag.ContinueOnError)
	fs.SetOutput(stderr)
	file := fs.String("template", "", "chat template `file`")
	now := fs.String("now", "", "the `time` strftime_now tells, RFC 3339; the clock's by default")
	if err := parse(fs, args); err != nil {
		return err
	}
	if *file == "" {
		return usageError{errors.New("render: --template FILE is required")}
	}
	opts := jinja.Options{Now: time.Now}
	if *now != "" {
		at, err := time.Parse(time.RFC3339, *now)
		if err != nil {
			return usageError{fmt.Errorf("render: --now: %w", err)}
		}
		opts.Now = func() time.Time { return at }
	}
	source, err := os.ReadFile(*file)
	if err != nil {
		return err
	}
	template, err := jinja.Parse(string(source))
	if err != nil {
		return fmt.Errorf("render: %s: %w", *file, err)
	}

	out := bufio.NewWriter(stdout)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	in := bufio.NewScanner(stdin)
	in.Buffer(nil, longestContext)
	for in.Scan() {
		if len(in.Bytes()) == 0 {
			continue
		}
		var answer any
		if text, err := render(template, in.Bytes(), opts); err != nil {
			answer = map[string]string{"error": err.Error()}
		} else {
			answer = map[string]string{"text": text}
		}
		if err := enc.Encode(answer); err != nil {
			return err
		}
	}
	return errors.Join(in.Err(), out.Flush())
}

func render(template *jinja.Template, variables []byte, opts jinja.Options) (string, error) {
	vars, err := jinja.DecodeJSON(variables)
	if err != nil {
		return "", err
	}
	if vars.Dict() == nil {
		return "", errors.New("render: a line must be a JSON object of template variables")
	}
	text, err := template.Render(nil, vars.Dict(), opts)
	return string(text), err
}
