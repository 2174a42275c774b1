package kvindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// maxDepth bounds the nesting of values that are skipped over. Engines nest
// five deep at most (batch, events, item, extra keys, one key).
const maxDepth = 32

var (
	errLength = errors.New("length beyond the end of the message")
	errDepth  = errors.New("nested too deep")
	errRange  = errors.New("number out of range")
)

// DecodeBatch reads one message payload of an engine's KV event stream, in the
// encoding of any vLLM release: the batch is an array of two elements or more,
// or a map; each item an array that starts with its kind (up to 0.23) or a map
// with the key "type" (from 0.24). Arrays may be shorter or longer than we
// know, maps may have keys we do not know, items of an unknown kind are
// counted and left out.
//
// It never panics, and allocates no more than a small multiple of
// len(payload). The result shares no memory with payload. Any error means that
// nothing of the batch can be used.
func DecodeBatch(payload []byte) (EventBatch, error) {
	b := EventBatch{Rank: -1}
	rest, err := b.decode(payload)
	if err == nil && len(rest) != 0 {
		err = fmt.Errorf("%d bytes after the batch", len(rest))
	}
	if err != nil {
		return EventBatch{}, fmt.Errorf("kvindex: event batch: %w", err)
	}
	return b, nil
}

func (b *EventBatch) decode(p []byte) (rest []byte, err error) {
	if msgp.NextType(p) == msgp.MapType {
		return readMap(p, func(key, p []byte) ([]byte, error) {
			switch string(key) {
			case "ts":
				return b.decodeTimestamp(p)
			case "events":
				return b.decodeEvents(p)
			case "data_parallel_rank":
				return b.decodeRank(p)
			default:
				return skip(p, maxDepth)
			}
		})
	}
	n, p, err := readArrayHeader(p)
	if err != nil {
		return nil, err
	}
	if n < 2 {
		return nil, fmt.Errorf("%d elements, want at least 2", n)
	}
	for i := range n {
		switch i {
		case 0:
			p, err = b.decodeTimestamp(p)
		case 1:
			p, err = b.decodeEvents(p)
		case 2:
			p, err = b.decodeRank(p)
		default:
			p, err = skip(p, maxDepth)
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (b *EventBatch) decodeTimestamp(p []byte) (rest []byte, err error) {
	b.Timestamp, rest, err = readFloat(p)
	if err != nil {
		return nil, fmt.Errorf("timestamp: %w", err)
	}
	return rest, nil
}

func (b *EventBatch) decodeRank(p []byte) (rest []byte, err error) {
	if msgp.IsNil(p) {
		return p[1:], nil
	}
	rank, rest, err := readInt(p)
	if err != nil {
		return nil, fmt.Errorf("rank: %w", err)
	}
	b.Rank = rank
	return rest, nil
}

func (b *EventBatch) decodeEvents(p []byte) (rest []byte, err error) {
	n, p, err := readArrayHeader(p)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	// The smallest item is one byte on the wire and sixteen here; growing by
	// append keeps a message of junk from reserving memory for its claim.
	b.Events = make([]Event, 0, min(n, 64))
	for i := range n {
		if p, err = b.decodeItem(p); err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
	}
	return p, nil
}

func (b *EventBatch) decodeItem(p []byte) (rest []byte, err error) {
	isMap := msgp.NextType(p) == msgp.MapType
	kind, err := itemKind(p, isMap)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "BlockStored":
		var ev BlockStored
		if rest, err = readItem(p, isMap, storedFields[:], ev.decodeField); err == nil {
			b.Events = append(b.Events, ev)
		}
	case "BlockRemoved":
		var ev BlockRemoved
		if rest, err = readItem(p, isMap, removedFields[:], ev.decodeField); err == nil {
			b.Events = append(b.Events, ev)
		}
	case "AllBlocksCleared":
		if rest, err = skip(p, maxDepth); err == nil {
			b.Events = append(b.Events, AllBlocksCleared{})
		}
	default:
		if rest, err = skip(p, maxDepth); err == nil {
			b.Unknown++
		}
	}
	return rest, err
}

// itemKind returns the class name of an item: the first element of an array,
// or the value of "type", wherever it stands, in a map. It is empty when the
// item has none.
func itemKind(p []byte, isMap bool) (string, error) {
	if !isMap {
		if msgp.NextType(p) != msgp.ArrayType {
			return "", nil
		}
		n, p, err := readArrayHeader(p)
		if err != nil || n == 0 || msgp.NextType(p) != msgp.StrType {
			return "", err
		}
		kind, _, err := msgp.ReadStringZC(p)
		return kindName(kind), err
	}
	kind := ""
	_, err := readMap(p, func(key, p []byte) ([]byte, error) {
		if string(key) != "type" || msgp.NextType(p) != msgp.StrType {
			return skip(p, maxDepth)
		}
		v, rest, err := msgp.ReadStringZC(p)
		kind = kindName(v)
		if err == nil && kind != "" {
			return nil, errFound
		}
		return rest, err
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return kind, err
}

// errFound ends a walk over a map early.
var errFound = errors.New("found")

// kindName avoids a string allocation per item.
func kindName(b []byte) string {
	switch string(b) {
	case "BlockStored":
		return "BlockStored"
	case "BlockRemoved":
		return "BlockRemoved"
	case "AllBlocksCleared":
		return "AllBlocksCleared"
	default:
		return ""
	}
}

// The order of array items after the kind, which is the contract of the array
// encoding: later releases only append.
var (
	storedFields = [...]string{
		"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
		"extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
	}
	removedFields = [...]string{"block_hashes", "medium", "group_idx"}
)

// readItem hands each field of an item to field, by name.
func readItem(p []byte, isMap bool, names []string, field func(name string, p []byte) ([]byte, error)) (rest []byte, err error) {
	if isMap {
		return readMap(p, func(key, p []byte) ([]byte, error) {
			for _, name := range names {
				if string(key) == name {
					return readField(name, p, field)
				}
			}
			return skip(p, maxDepth)
		})
	}
	n, p, err := readArrayHeader(p)
	if err != nil {
		return nil, err
	}
	for i := range n {
		if 1 <= i && i <= len(names) {
			p, err = readField(names[i-1], p, field)
		} else {
			p, err = skip(p, maxDepth)
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

func readField(name string, p []byte, field func(name string, p []byte) ([]byte, error)) (rest []byte, err error) {
	if msgp.IsNil(p) { // every field may be null, and null means absent
		return p[1:], nil
	}
	rest, err = field(name, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return rest, nil
}

func (ev *BlockStored) decodeField(name string, p []byte) (rest []byte, err error) {
	switch name {
	case "block_hashes":
		ev.Hashes, rest, err = readHashes(p)
	case "parent_block_hash":
		ev.Parent, rest, err = readHash(p)
		ev.HasParent = true
	case "token_ids":
		ev.Tokens, rest, err = readTokens(p)
	case "block_size":
		ev.BlockSize, rest, err = readInt(p)
	case "lora_id":
		ev.LoraID, rest, err = msgp.ReadInt64Bytes(p)
	case "medium":
		ev.Medium, rest, err = readString(p)
	case "lora_name":
		ev.LoraName, rest, err = readString(p)
	case "extra_keys":
		ev.Extras, rest, err = readExtras(p)
		ev.HasExtras = true
	case "group_idx":
		ev.Group, rest, err = readInt(p)
	case "kv_cache_spec_kind":
		ev.SpecKind, rest, err = readString(p)
	case "kv_cache_spec_sliding_window":
		ev.SlidingWindow, rest, err = readInt(p)
	default:
		rest, err = skip(p, maxDepth)
	}
	return rest, err
}

func (ev *BlockRemoved) decodeField(name string, p []byte) (rest []byte, err error) {
	switch name {
	case "block_hashes":
		ev.Hashes, rest, err = readHashes(p)
	case "medium":
		ev.Medium, rest, err = readString(p)
	case "group_idx":
		ev.Group, rest, err = readInt(p)
	default:
		rest, err = skip(p, maxDepth)
	}
	return rest, err
}

func readHashes(p []byte) (hashes []uint64, rest []byte, err error) {
	n, p, err := readArrayHeader(p)
	if err != nil {
		return nil, nil, err
	}
	hashes = make([]uint64, n) // 8 bytes here for each byte there, at most
	for i := range hashes {
		if hashes[i], p, err = readHash(p); err != nil {
			return nil, nil, err
		}
	}
	return hashes, p, nil
}

// readHash reads an engine hash: an integer of either sign as its 64 bits, or
// a digest by its last 8 bytes, which is what vLLM masks out when it sends
// integers (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES).
func readHash(p []byte) (h uint64, rest []byte, err error) {
	switch msgp.NextType(p) {
	case msgp.BinType:
		digest, rest, err := msgp.ReadBytesZC(p)
		if err != nil {
			return 0, nil, err
		}
		if len(digest) >= 8 {
			return binary.BigEndian.Uint64(digest[len(digest)-8:]), rest, nil
		}
		for _, c := range digest {
			h = h<<8 | uint64(c)
		}
		return h, rest, nil
	case msgp.UintType:
		return msgp.ReadUint64Bytes(p)
	default:
		i, rest, err := msgp.ReadInt64Bytes(p)
		return uint64(i), rest, err
	}
}

// readTokens is where most bytes of a stream are read, so the three encodings
// that token ids have are read in place.
func readTokens(p []byte) (tokens []uint32, rest []byte, err error) {
	n, p, err := readArrayHeader(p)
	if err != nil {
		return nil, nil, err
	}
	tokens = make([]uint32, n)
	for i := range tokens {
		switch {
		case len(p) >= 1 && p[0] < 0x80: // positive fixint
			tokens[i], p = uint32(p[0]), p[1:]
		case len(p) >= 3 && p[0] == 0xcd: // uint 16
			tokens[i], p = uint32(p[1])<<8|uint32(p[2]), p[3:]
		case len(p) >= 5 && p[0] == 0xce: // uint 32
			tokens[i], p = binary.BigEndian.Uint32(p[1:]), p[5:]
		default:
			if tokens[i], p, err = msgp.ReadUint32Bytes(p); err != nil {
				return nil, nil, err
			}
		}
	}
	return tokens, p, nil
}

func readExtras(p []byte) (extras []BlockExtras, rest []byte, err error) {
	n, p, err := readArrayHeader(p)
	if err != nil {
		return nil, nil, err
	}
	for block := range n {
		if msgp.IsNil(p) {
			p = p[1:]
			continue
		}
		m, q, err := readArrayHeader(p)
		if err != nil {
			return nil, nil, err
		}
		p = q
		if m == 0 {
			continue
		}
		keys := make([]ExtraKey, 0, min(m, 8))
		for range m {
			var key ExtraKey
			if key, p, err = readExtraKey(p); err != nil {
				return nil, nil, err
			}
			keys = append(keys, key)
		}
		extras = append(extras, BlockExtras{Block: block, Keys: keys})
	}
	return extras, p, nil
}

func readExtraKey(p []byte) (key ExtraKey, rest []byte, err error) {
	if msgp.NextType(p) == msgp.StrType {
		key.Text, rest, err = readString(p)
		return key, rest, err
	}
	if rest, err = skip(p, maxDepth); err != nil {
		return ExtraKey{}, nil, err
	}
	return ExtraKey{Text: string(p[:len(p)-len(rest)]), Opaque: true}, rest, nil
}

func readString(p []byte) (s string, rest []byte, err error) {
	v, rest, err := msgp.ReadStringZC(p)
	if err != nil {
		return "", nil, err
	}
	// The words of the protocol cost no allocation.
	switch string(v) {
	case "GPU":
		return "GPU", rest, nil
	case "CPU":
		return "CPU", rest, nil
	case "full_attention":
		return "full_attention", rest, nil
	}
	return string(v), rest, nil
}

func readInt(p []byte) (i int, rest []byte, err error) {
	v, rest, err := msgp.ReadInt64Bytes(p)
	if err != nil {
		return 0, nil, err
	}
	if v < math.MinInt32 || v > math.MaxInt32 {
		return 0, nil, errRange
	}
	return int(v), rest, nil
}

func readFloat(p []byte) (f float64, rest []byte, err error) {
	switch msgp.NextType(p) {
	case msgp.IntType, msgp.UintType:
		i, rest, err := msgp.ReadInt64Bytes(p)
		return float64(i), rest, err
	case msgp.Float32Type:
		f, rest, err := msgp.ReadFloat32Bytes(p)
		return float64(f), rest, err
	default:
		return msgp.ReadFloat64Bytes(p)
	}
}

// readArrayHeader refuses a length that the rest of the message cannot hold,
// so that a length can be trusted with memory.
func readArrayHeader(p []byte) (n int, rest []byte, err error) {
	sz, rest, err := msgp.ReadArrayHeaderBytes(p)
	if err != nil {
		return 0, nil, err
	}
	if uint64(sz) > uint64(len(rest)) {
		return 0, nil, errLength
	}
	return int(sz), rest, nil
}

// readMap hands each key and the bytes from its value on to entry, which
// returns what follows the value. Keys that are not text arrive as nil.
func readMap(p []byte, entry func(key, p []byte) ([]byte, error)) (rest []byte, err error) {
	sz, p, err := msgp.ReadMapHeaderBytes(p)
	if err != nil {
		return nil, err
	}
	if uint64(sz)*2 > uint64(len(p)) {
		return nil, errLength
	}
	for range sz {
		var key []byte
		switch msgp.NextType(p) {
		case msgp.StrType:
			key, p, err = msgp.ReadStringZC(p)
		case msgp.BinType:
			key, p, err = msgp.ReadBytesZC(p)
		default:
			p, err = skip(p, maxDepth)
		}
		if err != nil {
			return nil, err
		}
		if p, err = entry(key, p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// skip returns what follows the value at the start of p, going at most depth
// arrays or maps deep.
func skip(p []byte, depth int) (rest []byte, err error) {
	n := 0
	switch msgp.NextType(p) {
	case msgp.ArrayType:
		n, p, err = readArrayHeader(p)
	case msgp.MapType:
		var sz uint32
		sz, p, err = msgp.ReadMapHeaderBytes(p)
		if err == nil && uint64(sz)*2 > uint64(len(p)) {
			err = errLength
		}
		n = 2 * int(sz)
	default:
		return msgp.Skip(p)
	}
	if err != nil {
		return nil, err
	}
	if depth == 0 {
		return nil, errDepth
	}
	for range n {
		if p, err = skip(p, depth-1); err != nil {
			return nil, err
		}
	}
	return p, nil
}
