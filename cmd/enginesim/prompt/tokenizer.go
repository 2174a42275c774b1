// Package prompt turns requests into token ids as a vLLM front end does, from
// the model's own tokenizer files.
//
// It shares the template engine with the picker and nothing else: request
// preparation and the call into the tokenizer library are its own, so that the
// two agreeing on a prompt means something.
package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/daulet/tokenizers"

	"github.com/warmroute/warmroute/cmd/enginesim/server"
	"github.com/warmroute/warmroute/tokenize/jinja"
)

// Tokenizer is one model's tokenizer and chat template. It is used by many
// goroutines at once and lives as long as the process.
type Tokenizer struct {
	library  *tokenizers.Tokenizer
	slots    chan struct{} // bounds the threads that native calls take
	template *jinja.Template
	parts    bool              // the template reads content as a list of parts
	special  map[string]string // bos_token and the like
}

// Load reads tokenizer.json, tokenizer_config.json and chat_template.jinja from
// a model directory. Without a chat template only plain prompts can be encoded.
func Load(dir string) (*Tokenizer, error) {
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		return nil, fmt.Errorf("prompt: %w", err)
	}
	if data, err = untruncated(data); err != nil {
		return nil, fmt.Errorf("prompt: %s/tokenizer.json: %w", dir, err)
	}
	library, err := tokenizers.FromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("prompt: %s/tokenizer.json: %w", dir, err)
	}
	t := &Tokenizer{library: library, slots: make(chan struct{}, runtime.GOMAXPROCS(0)), special: map[string]string{}}
	source, err := t.readConfig(dir)
	if err != nil {
		return nil, err
	}
	// Transformers prefers the file to the configuration's template.
	if file, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja")); err == nil {
		source = string(file)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("prompt: %w", err)
	}
	if source == "" {
		return t, nil
	}
	if err := t.setTemplate(source); err != nil {
		return nil, fmt.Errorf("prompt: chat template of %s: %w", dir, err)
	}
	return t, nil
}

func (t *Tokenizer) setTemplate(source string) (err error) {
	t.template, err = jinja.Parse(source)
	t.parts = readsParts(source)
	return err
}

// untruncated is a tokenizer.json without its truncation and padding, which
// engines reset.
func untruncated(data []byte) ([]byte, error) {
	var file map[string]json.RawMessage
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	delete(file, "truncation")
	delete(file, "padding")
	return json.Marshal(file)
}

// readConfig reads the special tokens and, if it is there, the chat template
// of tokenizer_config.json.
func (t *Tokenizer) readConfig(dir string) (template string, err error) {
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("prompt: %w", err)
	}
	var config map[string]json.RawMessage
	if err := json.Unmarshal(data, &config); err != nil {
		return "", fmt.Errorf("prompt: %s/tokenizer_config.json: %w", dir, err)
	}
	for key, raw := range config {
		if !strings.HasSuffix(key, "_token") {
			continue
		}
		var text string
		var added struct{ Content string }
		if json.Unmarshal(raw, &text) != nil {
			if json.Unmarshal(raw, &added) != nil {
				continue // add_bos_token and other switches
			}
			text = added.Content
		}
		if text != "" {
			t.special[key] = text
		}
	}
	var named []struct{ Name, Template string }
	if json.Unmarshal(config["chat_template"], &template) != nil && json.Unmarshal(config["chat_template"], &named) == nil {
		for _, n := range named {
			if n.Name == "default" {
				template = n.Template
			}
		}
	}
	return template, nil
}

// readsParts recognizes templates that take content as a list of parts: they
// loop over it, or hand it to a macro that does. vLLM follows aliases through
// the template's syntax tree; this sees the direct forms.
func readsParts(source string) bool {
	if loopsOverContent.MatchString(source) {
		return true
	}
	for _, m := range macros.FindAllStringSubmatch(source, -1) {
		name, parameter, body := m[1], m[2], m[3]
		loops := regexp.MustCompile(`\bfor\s+\w+\s+in\s+` + parameter + `\s*-?%}`)
		called := regexp.MustCompile(`\b` + name + `\(\s*\w+(\[\d+\])?` + ofMessage)
		if loops.MatchString(body) && called.MatchString(source) {
			return true
		}
	}
	return false
}

const ofMessage = `(\.content\b|\[\s*['"]content['"]\s*\])`

var (
	loopsOverContent = regexp.MustCompile(`\bfor\s+\w+\s+in\s+\w+` + ofMessage)
	macros           = regexp.MustCompile(`(?s)\bmacro\s+(\w+)\(\s*(\w+)(.*?)\bendmacro\b`)
)

// Encode encodes a text; special adds what the tokenizer puts around a sequence.
func (t *Tokenizer) Encode(text string, special bool) ([]uint32, error) {
	if strings.ContainsRune(text, 0) {
		return nil, errors.New("prompt: the text has a NUL character, which the tokenizer library cuts at")
	}
	if text == "" && !special {
		return nil, nil
	}
	t.slots <- struct{}{}
	defer func() { <-t.slots }()
	ids, _, err := t.library.EncodeErr(text, special)
	if err != nil {
		return nil, fmt.Errorf("prompt: %w", err)
	}
	return ids, nil
}

// Decode is the text of token ids, special tokens included.
func (t *Tokenizer) Decode(ids []uint32) string {
	if len(ids) == 0 {
		return ""
	}
	t.slots <- struct{}{}
	defer func() { <-t.slots }()
	text, err := t.library.DecodeErr(ids, false)
	if err != nil {
		return ""
	}
	return text
}

// Vocabulary is the words that this tokenizer writes as one token, or the plain
// vocabulary when there are none.
func (t *Tokenizer) Vocabulary() (server.Vocabulary, error) {
	var v server.Vocabulary
	for _, w := range server.Words {
		for text, list := range map[string]*[]server.Word{w: &v.First, " " + w: &v.Next} {
			ids, err := t.Encode(text, false)
			if err != nil {
				return v, err
			}
			if len(ids) == 1 {
				*list = append(*list, server.Word{ID: ids[0], Text: text})
			}
		}
	}
	if len(v.First) == 0 || len(v.Next) == 0 {
		return server.PlainVocabulary(), nil
	}
	return v, nil
}
