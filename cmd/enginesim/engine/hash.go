package engine

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/fxamacker/cbor/v2"
)

// Hash is the digest that names a block and everything before it.
type Hash [sha256.Size]byte

// Wire is the form that KV events carry: the low 64 bits of the digest read as
// one big-endian number (vLLM: VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES, its default).
func (h Hash) Wire() uint64 { return binary.BigEndian.Uint64(h[len(h)-8:]) }

// DefaultHashSeed is the text that vLLM 0.30 and later hash into the parent of
// every first block when PYTHONHASHSEED is not set.
const DefaultHashSeed = "vllm-none-hash"

// Adapter is a LoRA adapter. The zero value is the base model.
type Adapter struct {
	// ID is the per-process counter that events show; the first adapter is 1.
	ID int
	// Name and Path both enter the block hashes (vLLM 0.31 and later).
	Name, Path string
}

// hasher computes block hashes as vLLM's sha256_cbor does: SHA-256 over the
// canonical CBOR of (parent digest, token ids, extra keys or null).
type hasher struct {
	mode cbor.EncMode
	root Hash
}

func newHasher(seed string) (*hasher, error) {
	mode, err := cbor.CanonicalEncOptions().EncMode()
	if err != nil {
		return nil, err
	}
	text, err := mode.Marshal(seed)
	if err != nil {
		return nil, err
	}
	return &hasher{mode: mode, root: sha256.Sum256(text)}, nil
}

// block is the hash of one full block. extra is nil for a block without extra keys.
func (h *hasher) block(parent Hash, tokens []uint32, extra any) (Hash, error) {
	input := struct {
		_      struct{} `cbor:",toarray"`
		Parent []byte
		Tokens []uint32
		Extra  any
	}{Parent: parent[:], Tokens: tokens, Extra: extra}
	b, err := h.mode.Marshal(input)
	if err != nil {
		return Hash{}, err
	}
	return sha256.Sum256(b), nil
}

// extraKeys are the tagged extra keys of the block that starts at token start:
// ("lora", name, path) on every block, ("cache_salt", salt) on the first one
// (vLLM 0.31 and later), or the bare name and salt before that. It is nil when
// there are none.
func extraKeys(r *Request, start int, plain bool) any {
	if plain {
		if keys := shownKeys(r, start); keys != nil {
			return keys
		}
		return nil
	}
	var keys [][]string
	if r.Adapter.Name != "" {
		keys = append(keys, []string{"lora", r.Adapter.Name, r.Adapter.Path})
	}
	if start == 0 && r.Salt != "" {
		keys = append(keys, []string{"cache_salt", r.Salt})
	}
	if keys == nil {
		return nil
	}
	return keys
}

// shownKeys are the extra keys as the event shows them: untagged, the adapter's
// path left out. It is nil when the block has none.
func shownKeys(r *Request, start int) []string {
	var keys []string
	if r.Adapter.Name != "" {
		keys = append(keys, r.Adapter.Name)
	}
	if start == 0 && r.Salt != "" {
		keys = append(keys, r.Salt)
	}
	return keys
}
