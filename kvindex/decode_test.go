package kvindex

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"
)

// line is one line of a capture; see testdata/vllm/README.md.
type line struct {
	Kind string `json:"kind"`
	Note string `json:"note"`

	VLLM    string `json:"vllm"`
	Payload string `json:"payload"`
	Decoded []any  `json:"decoded"`

	Frame   []string   `json:"frame"`
	Start   uint64     `json:"start"`
	Socket  string     `json:"socket"`
	Replies [][]string `json:"replies"`

	Status       int               `json:"status"`
	Headers      map[string]string `json:"headers"`
	PromptTokens []uint32          `json:"prompt_token_ids"`
	CachedTokens *int              `json:"cached_tokens"`
	Concurrent   bool              `json:"concurrent"`
	Body         struct {
		Model          string `json:"model"`
		Salt           string `json:"cache_salt"`
		PromptLogprobs int    `json:"prompt_logprobs"`
	} `json:"body"`
}

func readCapture(tb testing.TB, name string) []line {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "vllm", name+".jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	var lines []line
	scan := bufio.NewScanner(bytes.NewReader(data))
	scan.Buffer(nil, 1<<24)
	for scan.Scan() {
		dec := json.NewDecoder(bytes.NewReader(scan.Bytes()))
		dec.UseNumber()
		var l line
		if err := dec.Decode(&l); err != nil {
			tb.Fatalf("%s: line %d: %v", name, len(lines)+1, err)
		}
		lines = append(lines, l)
	}
	if err := scan.Err(); err != nil {
		tb.Fatal(err)
	}
	return lines
}

func unhex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// captureNames are the captures that hold event streams.
func captureNames(tb testing.TB) []string {
	tb.Helper()
	paths, err := filepath.Glob("testdata/vllm/*.jsonl")
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no captures: %v", err)
	}
	var names []string
	for _, p := range paths {
		if name := strings.TrimSuffix(filepath.Base(p), ".jsonl"); name != "classes-by-version" {
			names = append(names, name)
		}
	}
	return names
}

// TestDecodeEveryRelease reads what the message classes of each vLLM release
// write, against the values they were made from.
func TestDecodeEveryRelease(t *testing.T) {
	versions := make(map[string]bool)
	for _, l := range readCapture(t, "classes-by-version") {
		if l.Kind != "payload" {
			continue
		}
		versions[l.VLLM] = true
		t.Run(l.VLLM+"/"+l.Note, func(t *testing.T) {
			got, err := DecodeBatch(unhex(t, l.Payload))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, batchOf(t, l.Decoded)); diff != "" {
				t.Errorf("batch (-got +want):\n%s", diff)
			}
		})
	}
	if len(versions) < 11 {
		t.Errorf("%d releases, want at least 11", len(versions))
	}
}

// batchOf builds the expected batch from the decoded form of a capture.
func batchOf(t *testing.T, v []any) EventBatch {
	t.Helper()
	b := EventBatch{Timestamp: jsonFloat(t, v[0]), Rank: -1}
	if len(v) > 2 && v[2] != nil {
		b.Rank = int(jsonInt(t, v[2]))
	}
	for _, item := range v[1].([]any) {
		fields := make(map[string]any)
		switch item := item.(type) {
		case map[string]any:
			fields = item
		case []any:
			names := map[string][]string{
				"BlockStored": {
					"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
					"extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
				},
				"BlockRemoved":     {"type", "block_hashes", "medium", "group_idx"},
				"AllBlocksCleared": {"type"},
			}[item[0].(string)]
			for i, x := range item {
				fields[names[i]] = x
			}
		}
		b.Events = append(b.Events, eventOf(t, fields))
	}
	return b
}

func eventOf(t *testing.T, f map[string]any) Event {
	t.Helper()
	str := func(name string) string { s, _ := f[name].(string); return s }
	num := func(name string) int64 {
		if f[name] == nil {
			return 0
		}
		return jsonInt(t, f[name])
	}
	var hashes []uint64
	if list, ok := f["block_hashes"].([]any); ok {
		for _, h := range list {
			hashes = append(hashes, jsonHash(t, h))
		}
	}
	switch f["type"] {
	case "BlockStored":
		ev := BlockStored{
			Hashes: hashes, Tokens: []uint32{}, BlockSize: int(num("block_size")), LoraID: num("lora_id"), LoraName: str("lora_name"),
			Medium: str("medium"), Group: int(num("group_idx")), SpecKind: str("kv_cache_spec_kind"), SlidingWindow: int(num("kv_cache_spec_sliding_window")),
		}
		if f["parent_block_hash"] != nil {
			ev.Parent, ev.HasParent = jsonHash(t, f["parent_block_hash"]), true
		}
		for _, tok := range f["token_ids"].([]any) {
			ev.Tokens = append(ev.Tokens, uint32(jsonInt(t, tok)))
		}
		if list, ok := f["extra_keys"].([]any); ok {
			ev.HasExtras = true
			for i, keys := range list {
				if keys == nil {
					continue
				}
				extra := BlockExtras{Block: i}
				for _, k := range keys.([]any) {
					extra.Keys = append(extra.Keys, ExtraKey{Text: k.(string)})
				}
				ev.Extras = append(ev.Extras, extra)
			}
		}
		return ev
	case "BlockRemoved":
		return BlockRemoved{Hashes: hashes, Medium: str("medium"), Group: int(num("group_idx"))}
	default:
		return AllBlocksCleared{}
	}
}

func jsonInt(t *testing.T, v any) int64 {
	t.Helper()
	i, err := v.(json.Number).Int64()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func jsonFloat(t *testing.T, v any) float64 {
	t.Helper()
	f, err := v.(json.Number).Float64()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func jsonHash(t *testing.T, v any) uint64 {
	t.Helper()
	if m, ok := v.(map[string]any); ok { // a digest
		digest := m["hex"].(string)
		u, err := strconv.ParseUint(digest[len(digest)-16:], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	u, err := strconv.ParseUint(v.(json.Number).String(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// pack encodes v as MessagePack.
func pack(tb testing.TB, v any) []byte {
	tb.Helper()
	b, err := msgp.AppendIntf(nil, v)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestDecodeBatchShapes(t *testing.T) {
	removed := []any{"BlockRemoved", []any{int64(7)}}
	tests := []struct {
		name string
		in   any
		want EventBatch
	}{
		{
			"two elements, as in the first releases",
			[]any{1.5, []any{removed}},
			EventBatch{Timestamp: 1.5, Rank: -1, Events: []Event{BlockRemoved{Hashes: []uint64{7}}}},
		},
		{
			"more elements than we know",
			[]any{1.5, []any{}, int64(3), "later", map[string]any{"a": []any{nil}}},
			EventBatch{Timestamp: 1.5, Rank: 3, Events: []Event{}},
		},
		{
			"a map",
			map[string]any{"ts": 1.5, "events": []any{removed}, "data_parallel_rank": int64(1), "other": []any{int64(1)}},
			EventBatch{Timestamp: 1.5, Rank: 1, Events: []Event{BlockRemoved{Hashes: []uint64{7}}}},
		},
		{
			"a negative hash keeps its bits",
			[]any{int64(1), []any{[]any{"BlockRemoved", []any{int64(-1)}, nil}}, nil},
			EventBatch{Timestamp: 1, Rank: -1, Events: []Event{BlockRemoved{Hashes: []uint64{1<<64 - 1}}}},
		},
		{
			"an unknown kind is counted, whatever it is",
			[]any{1.0, []any{[]any{"BlockMoved", int64(1)}, map[string]any{"type": "Later"}, map[string]any{}, []any{}, int64(5), nil, removed}},
			EventBatch{Timestamp: 1, Rank: -1, Unknown: 6, Events: []Event{BlockRemoved{Hashes: []uint64{7}}}},
		},
		{
			"unknown keys and a longer array are ignored",
			[]any{1.0, []any{
				map[string]any{"type": "BlockRemoved", "block_hashes": []any{int64(7)}, "session_id": "s", "nested": []any{[]any{}}},
				[]any{"BlockRemoved", []any{int64(7)}, "CPU", int64(2), "x", []any{int64(1)}},
			}},
			EventBatch{Timestamp: 1, Rank: -1, Events: []Event{
				BlockRemoved{Hashes: []uint64{7}}, BlockRemoved{Hashes: []uint64{7}, Medium: "CPU", Group: 2},
			}},
		},
		{
			"extra keys of all sorts",
			[]any{1.0, []any{
				[]any{
					"BlockStored",
					[]any{int64(1), int64(2)},
					nil,
					[]any{int64(5), int64(6)},
					int64(1), nil, "GPU", nil,
					[]any{[]any{"salt"}, []any{[]any{"image", int64(-3)}, int64(9)}},
				},
			}},
			EventBatch{Timestamp: 1, Rank: -1, Events: []Event{BlockStored{
				Hashes: []uint64{1, 2}, Tokens: []uint32{5, 6}, BlockSize: 1, Medium: "GPU", HasExtras: true,
				Extras: []BlockExtras{
					{0, []ExtraKey{{Text: "salt"}}},
					{1, []ExtraKey{{Text: "\x92\xa5image\xfd", Opaque: true}, {Text: "\x09", Opaque: true}}},
				},
			}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := DecodeBatch(pack(t, tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("batch (-got +want):\n%s", diff)
			}
		})
	}
}

func TestDecodeBatchRefusesNonsense(t *testing.T) {
	deep := strings.Repeat("\x91", 100000) + "\xc0"
	tests := []struct{ name, in string }{
		{"nothing", ""},
		{"one element", "\x91\x01"},
		{"a string", "\xa3abc"},
		{"an array of 2^32-1 elements", "\xdd\xff\xff\xff\xff"},
		{"a map of 2^32-1 entries", "\xdf\xff\xff\xff\xff"},
		{"2^32-1 events", "\x92\x01\xdd\xff\xff\xff\xff"},
		{"2^32-1 token ids", "\x92\x01\x91\x94\xabBlockStored\x90\xc0\xdd\xff\xff\xff\xff"},
		{"a negative token id", "\x92\x01\x91\x94\xabBlockStored\x90\xc0\x91\xff"},
		{"a block size beyond 32 bits", "\x92\x01\x91\x95\xabBlockStored\x90\xc0\x90\xcf\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"nested too deep", "\x93\x01\x90\xc0"[:0] + "\x94\x01\x90\xc0" + deep},
		{"a digest that is cut", "\x92\x01\x91\x92\xacBlockRemoved\x91\xc4\x20\x00"},
		{"bytes after the batch", "\x92\x01\x90\x00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if b, err := DecodeBatch([]byte(tt.in)); err == nil {
				t.Errorf("got %+v, want an error", b)
			}
		})
	}
}

func TestDecodeEveryPrefixFails(t *testing.T) {
	for _, l := range readCapture(t, "classes-by-version") {
		payload := unhex(t, l.Payload)
		for n := range payload {
			if _, err := DecodeBatch(payload[:n]); err == nil {
				t.Fatalf("%s, %s: the first %d of %d bytes decode", l.VLLM, l.Note, n, len(payload))
			}
		}
	}
}

func FuzzDecodeBatch(f *testing.F) {
	for _, l := range readCapture(f, "classes-by-version") {
		f.Add(unhex(f, l.Payload))
	}
	for _, name := range []string{"salt-lora", "dp2", "two-tier-self", "v0.23-arrays"} {
		for _, l := range readCapture(f, name) {
			if l.Kind == "frame" {
				f.Add(unhex(f, l.Frame[2]))
			}
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		b, err := DecodeBatch(payload)
		if err != nil {
			return
		}
		x := New()
		x.Attach(0, "m")
		if err := x.Apply(0, b); err != nil {
			t.Fatal(err)
		}
		checkInvariants(t, x)
	})
}

func BenchmarkDecodeBatch(b *testing.B) {
	for _, blocks := range []int{1, 16, 256} {
		payload := storedPayload(b, 1, blocks)
		b.Run("blocks="+strconv.Itoa(blocks), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(payload)))
			for b.Loop() {
				if _, err := DecodeBatch(payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// storedPayload is a live 0.32 batch that stores a prompt of 16-token blocks.
func storedPayload(tb testing.TB, seed uint64, blocks int) []byte {
	tb.Helper()
	var hashes, tokens, extras []any
	for i := range blocks {
		hashes = append(hashes, seed<<40|uint64(i)|1<<63)
		extras = append(extras, nil)
	}
	for i := range blocks * 16 {
		tokens = append(tokens, (seed*31+uint64(i)*7919)%150000) // unsigned, as engines write them
	}
	return pack(tb, []any{100.5, []any{map[string]any{
		"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": nil, "token_ids": tokens, "block_size": int64(16),
		"lora_id": nil, "medium": "GPU", "lora_name": nil, "extra_keys": extras, "group_idx": int64(0), "kv_cache_spec_kind": "full_attention",
	}}, int64(0)})
}
