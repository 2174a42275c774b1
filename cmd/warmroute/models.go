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
func loadModels(ctx context.Context, configured []modelConfig, log *slog.Logger) (*tokenize.Models, []*tokenize.Tokenizer, error) {
	models := tokenize.NewModels()
	if len(configured) == 0 {
		log.LogAttrs(ctx, slog.LevelWarn, "no tokenizer is configured: requests are placed by load alone; give --tokenizer NAME=DIR")
	}
	var loaded []*tokenize.Tokenizer
	for _, m := range configured {
		start := time.Now()
		tok, err := m.load()
		if err != nil {
			closeTokenizers(loaded)
			return nil, nil, fmt.Errorf("model %q: %w", m.Name, err)
		}
		loaded = append(loaded, tok)
		models.Set(m.Name, tok)
		for _, alias := range m.Aliases {
			models.Alias(alias, m.Name)
		}
		log.LogAttrs(ctx, slog.LevelInfo, "tokenizer loaded",
			slog.String("model", m.Name), slog.String("directory", m.Tokenizer), slog.Float64("seconds", time.Since(start).Seconds()))
	}
	return models, loaded, nil
}

func (m *modelConfig) load() (*tokenize.Tokenizer, error) {
	cfg := tokenize.Config{
		Dir: m.Tokenizer, ChatTemplate: m.ChatTemplate,
		ContentFormat: m.ContentFormat, TrustRequestTemplate: m.TrustTemplates,
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

func closeTokenizers(loaded []*tokenize.Tokenizer) {
	for _, tok := range loaded {
		tok.Close()
	}
}
