package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/warmroute/warmroute/tokenize"
)

// tokenized is what an engine would see of one request.
type tokenized struct {
	Text   *string  `json:"text"` // rendered prompt; null when there is none
	Tokens []uint32 `json:"tokens"`
	Exact  bool     `json:"exact"`  // Tokens are the engine's own
	Reason string   `json:"reason"` // why they are not; empty when they are
}

// tokenizeCommand prints the tokens of one request on stdin, or of one a line.
func tokenizeCommand(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("tokenize", flag.ContinueOnError)
	fs.SetOutput(stderr)
	dir := fs.String("tokenizer", "", "`directory` of tokenizer.json, tokenizer_config.json and chat_template.jinja")
	template := fs.String("chat-template", "", "template `file` that replaces the directory's")
	path := fs.String("path", "/v1/chat/completions", "request `path`: /v1/chat/completions or /v1/completions")
	lines := fs.Bool("jsonl", false, `read one {"path": …, "body": …} a line and print one object a line, in order`)
	if err := parse(fs, args); err != nil {
		return err
	}
	if *dir == "" {
		return usageError{errors.New("tokenize: --tokenizer DIR is required")}
	}
	tok, err := tokenize.Load(tokenize.Config{Dir: *dir, ChatTemplate: *template})
	if err != nil {
		return err
	}
	defer tok.Close()

	out := bufio.NewWriter(stdout)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if !*lines {
		body, err := io.ReadAll(stdin)
		if err != nil {
			return err
		}
		if err := enc.Encode(asEngine(tok, *path, body)); err != nil {
			return err
		}
		return out.Flush()
	}
	dec := json.NewDecoder(stdin)
	for n := 1; ; n++ {
		var line struct {
			Path string          `json:"path"`
			Body json.RawMessage `json:"body"`
		}
		switch err := dec.Decode(&line); {
		case errors.Is(err, io.EOF):
			return out.Flush()
		case err != nil:
			return errors.Join(fmt.Errorf("tokenize: object %d on standard input: %w", n, err), out.Flush())
		}
		if err := enc.Encode(asEngine(tok, line.Path, line.Body)); err != nil {
			return err
		}
	}
}

// asEngine tokenizes body as an engine that serves path would.
func asEngine(tok *tokenize.Tokenizer, path string, body []byte) tokenized {
	p := tokenize.Prompt{Kind: tokenize.KindOf(path), Body: body}
	if p.Kind == 0 {
		return tokenized{Tokens: []uint32{}, Reason: "path"}
	}
	answer := tokenized{Tokens: []uint32{}}
	if text, err := tok.Render(&p); err == nil {
		answer.Text = &text
	}
	tokens, err := tok.Append(context.Background(), nil, &p)
	if err != nil {
		answer.Reason = err.Error()
		return answer
	}
	answer.Exact = true
	answer.Tokens = append(answer.Tokens, tokens...)
	return answer
}
