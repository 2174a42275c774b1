package kvindex

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// stackTokens is the largest block that is hashed from a buffer on the stack.
// Engines use 16 to 128 tokens a block; larger ones are hashed in pieces.
const stackTokens = 128

// Root returns the parent of a prompt's first block in namespace n. The block
// size is part of it, so chains of two block sizes share no hash, and every
// field is length-prefixed, so no two namespaces spell the same bytes. The
// value is stable across processes and architectures.
func (n Namespace) Root(blockSize int) BlockHash {
	buf := make([]byte, 0, 256)
	buf = append(buf, "warmroute/block/1"...)
	buf = binary.LittleEndian.AppendUint64(buf, uint64(blockSize))
	for _, s := range [...]string{n.Model, n.Adapter, n.Salt} {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(len(s)))
		buf = append(buf, s...)
	}
	return BlockHash(xxh3.Hash(buf))
}

// AppendHashes appends to dst the hashes of the full blocks of tokens, each
// chained to the one before and the first to parent; tokens that do not fill a
// block are left out. A hash is XXH3-64 over the parent's 8 bytes and the
// block's token ids as 4 bytes each, all little-endian.
//
// It appends nothing when blockSize is not positive, and allocates only when
// dst is too short.
func AppendHashes(dst []BlockHash, parent BlockHash, tokens []uint32, blockSize int) []BlockHash {
	if blockSize <= 0 {
		return dst
	}
	for len(tokens) >= blockSize {
		parent = hashBlock(parent, tokens[:blockSize])
		dst = append(dst, parent)
		tokens = tokens[blockSize:]
	}
	return dst
}

func hashBlock(parent BlockHash, tokens []uint32) BlockHash {
	if len(tokens) > stackTokens {
		return hashLargeBlock(parent, tokens)
	}
	var buf [8 + 4*stackTokens]byte
	binary.LittleEndian.PutUint64(buf[:8], uint64(parent))
	putTokens(buf[8:], tokens)
	return BlockHash(xxh3.Hash(buf[:8+4*len(tokens)]))
}

func hashLargeBlock(parent BlockHash, tokens []uint32) BlockHash {
	var h xxh3.Hasher
	var buf [4 * stackTokens]byte
	binary.LittleEndian.PutUint64(buf[:8], uint64(parent))
	_, _ = h.Write(buf[:8]) // never fails (xxh3.Hasher)
	for len(tokens) > 0 {
		n := min(len(tokens), stackTokens)
		putTokens(buf[:], tokens[:n])
		_, _ = h.Write(buf[:4*n])
		tokens = tokens[n:]
	}
	return BlockHash(h.Sum64())
}

func putTokens(dst []byte, tokens []uint32) {
	dst = dst[:4*len(tokens)]
	for i, t := range tokens {
		binary.LittleEndian.PutUint32(dst[4*i:], t)
	}
}

// mixExtras returns a parent that no chain of plain tokens has, for a block
// whose content depends on more than its tokens and its namespace (images,
// prompt embeddings). Equal keys give equal parents.
func mixExtras(parent BlockHash, keys []ExtraKey) BlockHash {
	buf := make([]byte, 0, 256)
	buf = append(buf, "warmroute/extra/1"...)
	buf = binary.LittleEndian.AppendUint64(buf, uint64(parent))
	for _, k := range keys {
		kind := byte(0)
		if k.Opaque {
			kind = 1
		}
		buf = append(buf, kind)
		buf = binary.LittleEndian.AppendUint64(buf, uint64(len(k.Text)))
		buf = append(buf, k.Text...)
	}
	return BlockHash(xxh3.Hash(buf))
}
