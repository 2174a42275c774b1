package scrape

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/warmroute/warmroute/scheduler"
)

// maxAnswer bounds a JSON answer. A model list grows with the adapters, at
// about 400 bytes each.
const maxAnswer = 4 << 20

// Identity is what an engine says about itself.
type Identity struct {
	scheduler.Identity // BlockSize and KVBlocks are those of one rank

	Engine  string // who owns the models: "vllm", "sglang"; empty when it does not say
	Version string // engine version, empty when it does not say
	Ranks   int    // data-parallel ranks behind the address, at least 1

	// Events are the KV event publishers the engine announces, by rank. Empty
	// when it announces none; releases before 0.24 cannot.
	Events []EventSource

	// Unknown says what the engine did not tell and why, a sentence each.
	Unknown []string
}

// EventSource is where one rank publishes its KV events. Addresses are
// host:port; one that means "here" to the engine has the engine's own host.
type EventSource struct {
	Rank   int // -1 when the address has only one
	Events string
	Replay string // empty when the engine keeps no replay
	Topic  string
}

// identify asks the engine who it is, beyond what its metrics page p says. An
// answer that is refused or missing leaves a gap; one that cannot be had at all
// is an error.
func identify(ctx context.Context, client *http.Client, addr netip.AddrPort, p *page) (Identity, error) {
	id := Identity{Ranks: max(1, len(p.engines))}
	for _, e := range p.engines {
		if e.blockSize > 0 {
			// vLLM 0.32: each rank reports the sum over all ranks.
			id.BlockSize, id.KVBlocks = e.blockSize, e.totalBlocks/id.Ranks
		}
	}
	if id.BlockSize == 0 {
		id.unknown("/metrics", "no cache_config_info")
	}

	var models modelList
	if err := ask(ctx, client, addr, "/v1/models", &id, &models); err != nil {
		return Identity{}, err
	}
	models.identify(&id)
	if id.Base == "" {
		id.Base = p.model
	}

	var version struct {
		Version string `json:"version"`
	}
	if err := ask(ctx, client, addr, "/version", &id, &version); err != nil {
		return Identity{}, err
	}
	id.Version = version.Version

	var sources json.RawMessage
	if err := ask(ctx, client, addr, "/kv_event_sources", &id, &sources); err != nil {
		return Identity{}, err
	}
	id.addSources(addr.Addr(), sources)
	return id, nil
}

func (id *Identity) unknown(path, why string) {
	id.Unknown = append(id.Unknown, "GET "+path+": "+why)
}

// ask reads the JSON answer to path into v. An answer that is not one leaves v
// and is entered as unknown; a server error or none at all is an error.
func ask(ctx context.Context, client *http.Client, addr netip.AddrPort, path string, id *Identity, v any) error {
	resp, err := get(ctx, client, addr, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("scrape: GET %s: %w", path, err)
	case resp.StatusCode >= http.StatusInternalServerError && resp.StatusCode != http.StatusNotImplemented:
		return fmt.Errorf("scrape: GET %s: status %d", path, resp.StatusCode)
	case resp.StatusCode != http.StatusOK:
		id.unknown(path, "status "+strconv.Itoa(resp.StatusCode))
		return nil
	case len(body) > maxAnswer:
		id.unknown(path, "answer is longer than "+strconv.Itoa(maxAnswer)+" bytes")
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		id.unknown(path, "answer is not the JSON expected: "+err.Error())
	}
	return nil
}

// modelList is the answer to GET /v1/models. vLLM lists each served name of
// the base model, with parent null, and each adapter, with the base as parent.
type modelList struct {
	Data []struct {
		ID      string `json:"id"`
		OwnedBy string `json:"owned_by"`
		Parent  string `json:"parent"`
	} `json:"data"`
}

// identify takes the first name of the base model for its name: alone the text
// must be equal for what an engine reports and what is asked of it.
func (l *modelList) identify(id *Identity) {
	for _, m := range l.Data {
		if m.ID == "" {
			continue
		}
		model := scheduler.Model{Name: m.ID}
		if m.Parent != "" {
			model.Adapter = m.ID
		} else if id.Base == "" {
			id.Base, id.Engine = m.ID, m.OwnedBy
		}
		id.Models = append(id.Models, model)
	}
}

// source is one publisher as vLLM describes it.
type source struct {
	Rank      *int    `json:"data_parallel_rank"`
	Enabled   *bool   `json:"enable_kv_cache_events"`
	Publisher *string `json:"publisher"`
	Endpoint  *string `json:"endpoint"`
	Replay    *string `json:"replay_endpoint"`
	Topic     string  `json:"topic"`
}

// addSources reads the answer to GET /kv_event_sources: an object keyed by the
// rank (vLLM 0.32), or a list that names the rank inside.
func (id *Identity) addSources(own netip.Addr, answer json.RawMessage) {
	const path = "/kv_event_sources"
	answer = bytes.TrimSpace(answer)
	if len(answer) == 0 {
		return
	}
	byRank := map[int]source{}
	var err error
	if answer[0] == '[' {
		var list []source
		err = json.Unmarshal(answer, &list)
		for i, s := range list {
			if s.Rank != nil {
				i = *s.Rank
			}
			byRank[i] = s
		}
	} else {
		err = json.Unmarshal(answer, &byRank)
	}
	if err != nil {
		id.unknown(path, "answer is not the JSON expected: "+err.Error())
		return
	}

	for _, rank := range slices.Sorted(maps.Keys(byRank)) {
		s := byRank[rank]
		if s.Enabled != nil && !*s.Enabled || s.Publisher != nil && *s.Publisher != "zmq" {
			id.unknown(path, fmt.Sprintf("rank %d publishes no events", rank))
			continue
		}
		src := EventSource{Rank: rank, Topic: s.Topic}
		if src.Events, err = hostPort(own, s.Endpoint); err != nil {
			id.unknown(path, fmt.Sprintf("rank %d: endpoint %v", rank, err))
			continue
		}
		if s.Replay != nil {
			if src.Replay, err = hostPort(own, s.Replay); err != nil {
				id.unknown(path, fmt.Sprintf("rank %d: replay_endpoint %v", rank, err))
			}
		}
		id.Events = append(id.Events, src)
	}
	id.Ranks = max(id.Ranks, len(byRank))
	if id.Ranks == 1 && len(id.Events) == 1 {
		id.Events[0].Rank = -1
	}
}

// hostPort returns host:port of a ZeroMQ endpoint as seen from outside the
// engine: wildcards and loopback mean the engine's own host.
func hostPort(own netip.Addr, endpoint *string) (string, error) {
	if endpoint == nil || *endpoint == "" {
		return "", errors.New("is missing")
	}
	address, ok := strings.CutPrefix(*endpoint, "tcp://")
	if !ok {
		return "", fmt.Errorf("%.100q cannot be reached from here, only tcp:// can", *endpoint)
	}
	i := strings.LastIndexByte(address, ':')
	if i < 0 {
		return "", fmt.Errorf("%.100q has no port", *endpoint)
	}
	host, port := strings.Trim(address[:i], "[]"), address[i+1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%.100q has no port that can be dialled", *endpoint)
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil && (ip.IsLoopback() || ip.IsUnspecified()), host == "" || host == "*" || host == "localhost":
		host = own.String()
	}
	return net.JoinHostPort(host, port), nil
}
