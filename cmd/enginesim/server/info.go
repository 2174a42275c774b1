package server

import (
	"net/http"
	"strconv"
)

type modelCard struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Created     int64             `json:"created"`
	OwnedBy     string            `json:"owned_by"`
	Root        string            `json:"root"`
	Parent      *string           `json:"parent"`
	MaxModelLen *int              `json:"max_model_len"`
	Permission  []modelPermission `json:"permission"`
}

type modelPermission struct {
	ID            string  `json:"id"`
	Object        string  `json:"object"`
	Created       int64   `json:"created"`
	CreateEngine  bool    `json:"allow_create_engine"`
	Sampling      bool    `json:"allow_sampling"`
	Logprobs      bool    `json:"allow_logprobs"`
	SearchIndices bool    `json:"allow_search_indices"`
	View          bool    `json:"allow_view"`
	FineTuning    bool    `json:"allow_fine_tuning"`
	Organization  string  `json:"organization"`
	Group         *string `json:"group"`
	Blocking      bool    `json:"is_blocking"`
}

// models lists the base model, its aliases and the adapters.
func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	created := s.start.Unix()
	var cards []modelCard
	add := func(id, root string, parent *string, maxLen *int) {
		cards = append(cards, modelCard{
			ID: id, Object: "model", Created: created, OwnedBy: "vllm", Root: root, Parent: parent, MaxModelLen: maxLen,
			Permission: []modelPermission{{
				ID: "modelperm-" + id, Object: "model_permission", Created: created,
				Sampling: true, Logprobs: true, View: true, Organization: "*",
			}},
		})
	}
	for _, name := range append([]string{s.cfg.Model}, s.cfg.Aliases...) {
		add(name, s.cfg.Root, nil, &s.cfg.Engine.MaxModelLen)
	}
	for _, a := range s.cfg.Adapters {
		add(a.Name, a.Path, &s.cfg.Model, nil)
	}
	writeJSON(w, http.StatusOK, struct {
		Object string      `json:"object"`
		Data   []modelCard `json:"data"`
	}{"list", cards})
}

// eventSources announces where the KV events are (vLLM 0.32: one object per rank).
func (s *Server) eventSources(w http.ResponseWriter, _ *http.Request) {
	type source struct {
		Enabled        bool   `json:"enable_kv_cache_events"`
		Publisher      string `json:"publisher"`
		Endpoint       string `json:"endpoint"`
		ReplayEndpoint string `json:"replay_endpoint"`
		BufferSteps    int    `json:"buffer_steps"`
		HWM            int    `json:"hwm"`
		MaxQueueSize   int    `json:"max_queue_size"`
		Topic          string `json:"topic"`
	}
	writeJSON(w, http.StatusOK, map[string]source{strconv.Itoa(s.cfg.Events.Rank): {
		Enabled: true, Publisher: "zmq",
		Endpoint: s.eventsAddr, ReplayEndpoint: s.replayAddr,
		BufferSteps: s.cfg.Events.BufferSteps, HWM: s.cfg.Events.HWM, MaxQueueSize: 100000,
		Topic: s.cfg.Events.Topic,
	}})
}

// serverInfo is the part of vLLM's answer that identifies the engine.
func (s *Server) serverInfo(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{
		"vllm_config": map[string]any{
			"model_config": map[string]any{
				"model": s.cfg.Root, "tokenizer": s.cfg.Root, "served_model_name": s.cfg.Model,
				"max_model_len": s.cfg.Engine.MaxModelLen,
			},
			"cache_config": map[string]any{
				"block_size": s.cfg.Engine.BlockSize, "num_gpu_blocks": s.cfg.Engine.Blocks,
				"enable_prefix_caching": true, "prefix_caching_hash_algo": "sha256_cbor",
			},
			"kv_events_config": map[string]any{
				"enable_kv_cache_events": true, "publisher": "zmq",
				"endpoint": s.eventsAddr, "replay_endpoint": s.replayAddr,
				"topic": s.cfg.Events.Topic,
			},
		},
	})
}
