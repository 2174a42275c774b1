package tokenize

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/warmroute/warmroute/tokenize/jinja"
	"github.com/warmroute/warmroute/tokenize/native"
)

// Config says what a model is tokenized with, as its engines were started.
type Config struct {
	// Dir holds the model's tokenizer.json and tokenizer_config.json, and its
	// chat_template.jinja if it has one, which then counts.
	Dir string
	// ChatTemplate is a template file that replaces the model's own: the engine's
	// --chat-template. Default none.
	ChatTemplate string
	// TemplateKwargs is a JSON object of template variables that requests may
	// override: the engine's --default-chat-template-kwargs. Default none.
	TemplateKwargs []byte
	// TrustRequestTemplate renders the template a request brings: the engine's
	// --trust-request-chat-template. Without, such requests have no tokens.
	TrustRequestTemplate bool
	// ContentFormat is the engine's --chat-template-content-format: auto, string
	// or openai. Default auto, which looks at the template.
	ContentFormat string
	// Engine is the engine whose reading of requests counts: vllm. Default vllm.
	Engine string
	// EngineVersion is its version, as the engine tells it. Default the one that
	// is known best.
	EngineVersion string
	// Transformers is the version of the transformers library in the engine's
	// image, which engines do not tell. Default what the engine's release asks for.
	Transformers string
	// Cache keeps the ids of pieces of prompts; one is enough for all models.
	// Default none.
	Cache *Cache
	// Now is the clock of templates that print the date, in the engines' time
	// zone. Default time.Now.
	Now func() time.Time
}

// Load reads a model's tokenizer and templates, which takes a second for large
// vocabularies. A model without a chat template, or with one that does not
// parse, loads all the same: then only its chats have no tokens, for a reason.
// Errors say what to do about them.
func Load(cfg Config) (*Tokenizer, error) {
	t := &Tokenizer{now: cfg.Now, defaults: jinja.NewDict(0)}
	if t.now == nil {
		t.now = time.Now
	}
	if err := t.configure(cfg); err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	enc, err := native.Load(filepath.Join(cfg.Dir, "tokenizer.json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("tokenize: %s has no tokenizer.json: name a directory with the model's tokenizer files "+
			"(tokenizer.json, tokenizer_config.json, chat_template.jinja)", cfg.Dir)
	case err != nil:
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	if err := t.use(withCache(enc, cfg.Cache)); err != nil {
		enc.Close()
		return nil, err
	}
	return t, nil
}

// use makes enc the tokenizer's encoder.
func (t *Tokenizer) use(enc encoder) error {
	bare, err := enc.Append(context.Background(), nil, "a", false)
	if err != nil {
		return fmt.Errorf("tokenize: %w", err)
	}
	special, err := enc.Append(context.Background(), nil, "a", true)
	if err != nil {
		return fmt.Errorf("tokenize: %w", err)
	}
	t.enc, t.addsSpecial = enc, len(special) > len(bare)
	return nil
}

// configure reads everything but the vocabulary.
func (t *Tokenizer) configure(cfg Config) error {
	format := cfg.ContentFormat
	switch format {
	case "":
		format = "auto"
	case "auto", "string", "openai":
	default:
		return fmt.Errorf("content format %q: it is auto, string or openai", format)
	}
	switch cfg.Engine {
	case "", "vllm":
		release, err := vllmRelease(cfg.EngineVersion)
		if err != nil {
			return err
		}
		library := vllmTransformers(release)
		if cfg.Transformers != "" {
			if library, err = transformersRelease(cfg.Transformers); err != nil {
				return err
			}
		}
		t.dialect = vllm{release: release, library: library, trustTemplate: cfg.TrustRequestTemplate, format: format}
	default:
		return fmt.Errorf("engine %q is not known: it is vllm", cfg.Engine)
	}
	if len(cfg.TemplateKwargs) > 0 {
		v, err := jinja.DecodeJSON(cfg.TemplateKwargs)
		if err != nil {
			return fmt.Errorf("template kwargs: %w", err)
		}
		if t.defaults = v.Dict(); t.defaults == nil {
			return errors.New("template kwargs are not a JSON object")
		}
	}
	config, err := readObject(filepath.Join(cfg.Dir, "tokenizer_config.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s has no tokenizer_config.json: name a directory with the model's tokenizer files", cfg.Dir)
	}
	if err != nil {
		return err
	}
	if t.special, err = specialTokens(cfg.Dir, config); err != nil {
		return err
	}
	if err := t.readTemplates(cfg, config); err != nil {
		return err
	}
	t.anthropic = t.dialect.anthropicRules(t)
	return nil
}

// specialTokens returns the tokens templates know by name: those every
// tokenizer has, and those a model names itself. Each is a string, or an object
// that describes an added token (PreTrainedTokenizerBase.special_tokens_map).
func specialTokens(dir string, config *jinja.Dict) (*jinja.Dict, error) {
	special := jinja.NewDict(8)
	set := func(name string, v jinja.Value) {
		if d := v.Dict(); d != nil {
			v = lookup(d, "content")
		}
		if v.Kind() == jinja.KindString {
			special.Set(name, jinja.String(strings.Clone(v.Str())))
		}
	}
	all := func(source *jinja.Dict) {
		for name, v := range source.All() {
			if strings.HasSuffix(name, "_token") {
				set(name, v)
			}
		}
		if named := lookup(source, "extra_special_tokens").Dict(); named != nil {
			for name, v := range named.All() {
				set(name, v)
			}
		}
	}
	all(config)
	// The older file counts only for models that do not list their added tokens
	// in the newer one.
	if _, lists := config.Get("added_tokens_decoder"); lists {
		return special, nil
	}
	older, err := readObject(filepath.Join(dir, "special_tokens_map.json"))
	switch {
	case err == nil:
		all(older)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return special, nil
}

// readTemplates finds the model's chat templates: the configured file, else
// chat_template.jinja with those of additional_chat_templates, else the ones in
// tokenizer_config.json.
func (t *Tokenizer) readTemplates(cfg Config, config *jinja.Dict) error {
	t.templates = templates{named: map[string]*compiled{}, failed: map[string]error{
		"": failf(reasonNoTemplate, "%s has no chat template: give the file the engine uses as the model's chat template", cfg.Dir),
	}}
	if cfg.ChatTemplate != "" {
		source, err := os.ReadFile(cfg.ChatTemplate)
		if err != nil {
			return fmt.Errorf("chat template: %w", err)
		}
		t.templates.set("default", string(source))
		return nil
	}
	files := map[string]string{"default": filepath.Join(cfg.Dir, "chat_template.jinja")}
	more, err := os.ReadDir(filepath.Join(cfg.Dir, "additional_chat_templates"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, file := range more {
		if name, ok := strings.CutSuffix(file.Name(), ".jinja"); ok {
			files[name] = filepath.Join(cfg.Dir, "additional_chat_templates", file.Name())
		}
	}
	found := false
	for name, path := range files {
		source, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		found = true
		t.templates.set(name, string(source))
	}
	if found {
		return nil
	}
	switch v := lookup(config, "chat_template"); v.Kind() {
	case jinja.KindString:
		t.templates.set("default", v.Str())
	case jinja.KindList:
		for _, named := range v.List().All() {
			t.templates.set(lookup(named.Dict(), "name").Str(), lookup(named.Dict(), "template").Str())
		}
	default:
	}
	return nil
}

func readObject(path string) (*jinja.Dict, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	v, err := jinja.DecodeJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if v.Dict() == nil {
		return nil, fmt.Errorf("%s: not a JSON object", path)
	}
	return v.Dict(), nil
}
