package kvindex

import "strings"

// Event is what an engine tells about its KV cache: a BlockStored, a
// BlockRemoved or an AllBlocksCleared.
//
//sumtype:decl
type Event interface{ event() }

// EventBatch is one message of an engine: the events of one scheduler step, in
// the order they happened.
type EventBatch struct {
	Timestamp float64 // seconds since the Unix epoch by the engine's clock
	Rank      int     // data-parallel rank, -1 when the engine does not say
	Events    []Event
	Unknown   int // items of a kind we do not know, left out of Events
}

// BlockStored says that a run of full blocks, one after the other in one
// prompt, now exists in a tier. Every physical copy is announced by itself.
//
// Fields follow vllm/distributed/kv_events.py; a field an engine release does
// not have keeps the value that means absent.
type BlockStored struct {
	Hashes    []uint64 // the engine's own hashes: integers as they are, bytes by their low 64 bits, big-endian
	Parent    uint64   // engine hash of the block before Hashes[0]; meaningful only when HasParent
	HasParent bool     // false: the run starts at the first token of the prompt
	Tokens    []uint32 // the token ids of all blocks; empty in a placeholder, which only adds a tier to known hashes
	BlockSize int      // tokens a block; 0 in a placeholder

	LoraID   int64  // per-process adapter number, deprecated; 0 when absent
	LoraName string // adapter name; empty for the base model and before vLLM 0.14.1

	// Medium is the tier's name as the engine spells it; empty means the GPU
	// where tokens are present.
	Medium string

	// Extras lists the blocks whose hash takes in more than tokens. It is
	// meaningful only when HasExtras is set; without it the engine did not
	// say (before vLLM 0.17.1, and always in events of offload tiers).
	Extras    []BlockExtras
	HasExtras bool

	Group         int    // KV cache group, 0 when absent
	SpecKind      string // kv_cache_spec_kind of the group; empty when absent
	SlidingWindow int    // kv_cache_spec_sliding_window in tokens; 0 when absent
}

// BlockExtras are the extra keys of one block of a BlockStored.
type BlockExtras struct {
	Block int // index into Hashes
	Keys  []ExtraKey
}

// ExtraKey is one value that an engine mixes into a block's hash. vLLM's order
// is adapter name, multimodal identifiers, cache salt (first block only),
// prompt-embedding digest (vllm/v1/core/kv_cache_utils.py).
type ExtraKey struct {
	Text   string // the string, or the MessagePack bytes of any other value
	Opaque bool   // Text holds MessagePack bytes
}

// BlockRemoved says that one physical copy of each block left a tier.
type BlockRemoved struct {
	Hashes []uint64
	Medium string // empty means the GPU
	Group  int    // 0 when absent
}

// AllBlocksCleared says that the engine forgot every block of its GPU cache.
// Offload tiers keep theirs: it is the same event for a reset with and without
// them, and after the plain one vLLM does reuse offloaded blocks.
type AllBlocksCleared struct{}

func (BlockStored) event()      {}
func (BlockRemoved) event()     {}
func (AllBlocksCleared) event() {}

// Tier is where a copy of a block lives.
type Tier uint8

// The tiers. Blocks in GPU and CPU count as a held prefix; TierOther (disk,
// remote and unknown stores) is counted and never credited, since engines
// announce such copies without saying whether they can be read back.
const (
	TierGPU Tier = iota
	TierCPU
	TierOther
	numTiers
)

func (t Tier) String() string {
	switch t {
	case TierGPU:
		return "gpu"
	case TierCPU:
		return "cpu"
	default:
		return "other"
	}
}

// tierOf reads a medium as the engines spell it: "GPU", "gpu", "CPU", "cpu",
// "CPU_PINNED", "DISK", "STORAGE", "FS", "OBJ", "EXTERNAL". Absent means GPU.
func tierOf(medium string) Tier {
	switch {
	case medium == "" || strings.EqualFold(medium, "GPU"):
		return TierGPU
	case strings.EqualFold(medium, "CPU") || strings.EqualFold(medium, "CPU_PINNED"):
		return TierCPU
	default:
		return TierOther
	}
}

// provesPrefix says whether a block of a group of this kind stands for every
// token before it. Windowed, recurrent and encoder groups keep only part of
// them (kv_cache_spec_kind of vLLM; absent in releases that had no others on
// the wire).
func provesPrefix(specKind string) bool {
	switch specKind {
	case "", "full_attention", "mla_attention", "sink_full_attention":
		return true
	default:
		return false
	}
}
