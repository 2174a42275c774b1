package kvevents

import (
	"github.com/tinylib/msgp/msgp"

	"github.com/warmroute/warmroute/cmd/enginesim/engine"
)

// Format is how the items of a batch are laid out.
type Format int

const (
	// Maps is vLLM 0.24 and later; replay as in 0.26 and later, with a topic frame.
	Maps Format = iota
	// Arrays is vLLM 0.22.1 to 0.23; replay without a topic frame.
	Arrays
)

const (
	medium   = "GPU"
	specKind = "full_attention"
)

// AppendBatch appends the msgpack of one batch, byte for byte as vLLM writes it:
// 0.32 for Maps, 0.23 for Arrays. seconds is Unix time.
func AppendBatch(dst []byte, f Format, seconds float64, rank int, events []engine.Event) []byte {
	dst = msgp.AppendArrayHeader(dst, 3)
	dst = msgp.AppendFloat64(dst, seconds)
	dst = msgp.AppendArrayHeader(dst, uint32(len(events)))
	for _, ev := range events {
		switch ev := ev.(type) {
		case engine.Stored:
			dst = f.appendStored(dst, &ev)
		case engine.Removed:
			dst = f.appendRemoved(dst, &ev)
		case engine.Cleared:
			dst = f.appendTag(dst, 0, "AllBlocksCleared")
		}
	}
	return msgp.AppendInt(dst, rank)
}

func (f Format) appendStored(dst []byte, ev *engine.Stored) []byte {
	// 0.23 writes every field, null when unset; 0.32 leaves out defaults, of
	// which only the sliding window is never set here.
	n := uint32(10)
	if f == Arrays {
		n = 11
	}
	dst = f.appendTag(dst, n, "BlockStored")
	dst = f.appendKey(dst, "block_hashes")
	dst = appendHashes(dst, ev.Hashes)
	dst = f.appendKey(dst, "parent_block_hash")
	if ev.Parent == nil {
		dst = msgp.AppendNil(dst)
	} else {
		dst = msgp.AppendUint64(dst, ev.Parent.Wire())
	}
	dst = f.appendKey(dst, "token_ids")
	dst = msgp.AppendArrayHeader(dst, uint32(len(ev.Tokens)))
	for _, t := range ev.Tokens {
		dst = msgp.AppendUint32(dst, t)
	}
	dst = f.appendKey(dst, "block_size")
	dst = msgp.AppendInt(dst, ev.BlockSize)
	adapter := ev.Adapter.Name != ""
	dst = f.appendKey(dst, "lora_id")
	if adapter {
		dst = msgp.AppendInt(dst, ev.Adapter.ID)
	} else {
		dst = msgp.AppendNil(dst)
	}
	dst = f.appendKey(dst, "medium")
	dst = msgp.AppendString(dst, medium)
	dst = f.appendKey(dst, "lora_name")
	if adapter {
		dst = msgp.AppendString(dst, ev.Adapter.Name)
	} else {
		dst = msgp.AppendNil(dst)
	}
	dst = f.appendKey(dst, "extra_keys")
	dst = msgp.AppendArrayHeader(dst, uint32(len(ev.ExtraKeys)))
	for _, keys := range ev.ExtraKeys {
		if keys == nil {
			dst = msgp.AppendNil(dst)
			continue
		}
		dst = msgp.AppendArrayHeader(dst, uint32(len(keys)))
		for _, k := range keys {
			dst = msgp.AppendString(dst, k)
		}
	}
	dst = f.appendKey(dst, "group_idx")
	dst = msgp.AppendInt(dst, 0)
	dst = f.appendKey(dst, "kv_cache_spec_kind")
	dst = msgp.AppendString(dst, specKind)
	if f == Arrays {
		dst = msgp.AppendNil(dst)
	}
	return dst
}

func (f Format) appendRemoved(dst []byte, ev *engine.Removed) []byte {
	dst = f.appendTag(dst, 3, "BlockRemoved")
	dst = f.appendKey(dst, "block_hashes")
	dst = appendHashes(dst, ev.Hashes)
	dst = f.appendKey(dst, "medium")
	dst = msgp.AppendString(dst, medium)
	dst = f.appendKey(dst, "group_idx")
	return msgp.AppendInt(dst, 0)
}

// appendTag opens an item of n fields beside its class name.
func (f Format) appendTag(dst []byte, n uint32, class string) []byte {
	if f == Arrays {
		dst = msgp.AppendArrayHeader(dst, n+1)
	} else {
		dst = msgp.AppendMapHeader(dst, n+1)
		dst = msgp.AppendString(dst, "type")
	}
	return msgp.AppendString(dst, class)
}

func (f Format) appendKey(dst []byte, key string) []byte {
	if f == Arrays {
		return dst
	}
	return msgp.AppendString(dst, key)
}

func appendHashes(dst []byte, hs []engine.Hash) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(hs)))
	for _, h := range hs {
		dst = msgp.AppendUint64(dst, h.Wire())
	}
	return dst
}
