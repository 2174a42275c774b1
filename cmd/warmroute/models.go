package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/warmroute/warmroute/tokenize"
)

// loadModels loads every configured tokenizer. Without any, requests are
// placed by load alone, which is said once here and counted for each request.
func loadModels(
	ctx context.Context, configured []modelConfig, cache *tokenize.Cache, log *slog.Logger,
) (*tokenize.Models, map[string]*tokenize.Tokenizer, error) {
	models := tokenize.NewModels()
	if len(configured) == 0 {
		log.LogAttrs(ctx, slog.LevelWarn, "no tokenizer is configured: requests are placed by load alone; give --tokenizer NAME=DIR")
	}
	loaded := make(map[string]*tokenize.Tokenizer, len(configured))
	for _, m := range configured {
		start := time.Now()
		tok, err := m.load(cache)
		if err != nil {
			closeTokenizers(loaded)
			return nil, nil, fmt.Errorf("model %q: %w", m.Name, err)
		}
		loaded[m.Name] = tok
		models.Set(m.Name, tok)
		for _, alias := range m.Aliases {
			models.Alias(alias, m.Name)
		}
		fast, bytes := tok.Engine()
		log.LogAttrs(ctx, slog.LevelInfo, "tokenizer loaded",
			slog.String("model", m.Name), slog.String("directory", m.Tokenizer),
			slog.Bool("fast", fast), slog.Int64("bytes", bytes), slog.Float64("seconds", time.Since(start).Seconds()))
	}
	return models, loaded, nil
}

func (m *modelConfig) load(cache *tokenize.Cache) (*tokenize.Tokenizer, error) {
	cfg := tokenize.Config{
		Dir: m.Tokenizer, ChatTemplate: m.ChatTemplate,
		ContentFormat: m.ContentFormat, TrustRequestTemplate: m.TrustTemplates,
		Cache: cache,
	}
	if len(m.TemplateKwargs) > 0 {
		kwargs, err := json.Marshal(m.TemplateKwargs)
		if err != nil {
			return nil, fmt.Errorf("template_kwargs: %w", err)
		}
		cfg.TemplateKwargs = kwargs
	}
	return tokenize.Load(cfg)
}

func closeTokenizers(loaded map[string]*tokenize.Tokenizer) {
	for _, tok := range loaded {
		tok.Close()
	}
}
