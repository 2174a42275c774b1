package tokenize

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Cache keeps the ids of pieces of prompts, so that of a conversation only what
// is new is encoded. It is meant to be shared by all Tokenizers of a process.
// Each piece is kept with its text and found by it: never a wrong id, at the
// price of memory. All methods may be called at once from many goroutines.
type Cache struct {
	seed   maphash.Seed
	shards [16]cacheShard
	limit  int64 // of a shard, in bytes

	hits, misses atomic.Uint64 // in bytes of text
}

// CacheStats tells how a Cache is doing.
type CacheStats struct {
	Pieces int
	Bytes  int64 // memory of the pieces, about
	// HitBytes and MissBytes count the text that was looked up: whose ids were
	// there, and whose ids had to be computed.
	HitBytes, MissBytes uint64
}

// NewCache returns a cache that keeps at most about limit bytes, 0 for nothing. A
// token takes eight to nine of them, four for its id and the rest for its text.
func NewCache(limit int64) *Cache {
	c := &Cache{seed: maphash.MakeSeed()}
	c.limit = limit / int64(len(c.shards))
	for i := range c.shards {
		c.shards[i].pieces = make(map[pieceKey]*piece)
	}
	return c
}

// Stats returns a snapshot.
func (c *Cache) Stats() CacheStats {
	s := CacheStats{HitBytes: c.hits.Load(), MissBytes: c.misses.Load()}
	for i := range c.shards {
		shard := &c.shards[i]
		shard.mu.Lock()
		s.Pieces += len(shard.ring)
		s.Bytes += shard.bytes
		shard.mu.Unlock()
	}
	return s
}

// pieceKey leads to a piece; equal keys of different texts replace each other.
type pieceKey struct {
	encoder uint64 // which tokenizer's ids
	hash    uint64 // of the text
}

// piece is immutable but for used.
type piece struct {
	key  pieceKey
	text string
	ids  []uint32
	used bool // since the hand passed
}

// pieceOverhead is what a piece costs beside text and ids: itself, its places in
// map and ring, and what the allocator rounds up.
const pieceOverhead = 200

func (p *piece) bytes() int64 { return int64(len(p.text)) + 4*int64(cap(p.ids)) + pieceOverhead }

// cacheShard replaces pieces by the clock: a hand goes around and takes what has
// not been used since it last came by.
type cacheShard struct {
	mu     sync.Mutex
	pieces map[pieceKey]*piece
	ring   []*piece
	hand   int
	bytes  int64
}

func (c *Cache) key(encoder uint64, text string) pieceKey {
	return pieceKey{encoder, maphash.String(c.seed, text)}
}

func (c *Cache) shard(k pieceKey) *cacheShard { return &c.shards[k.hash%uint64(len(c.shards))] }

// get returns the ids of text, which must not be changed.
func (c *Cache) get(encoder uint64, text string) ([]uint32, bool) {
	k := c.key(encoder, text)
	s := c.shard(k)
	s.mu.Lock()
	p := s.pieces[k]
	if p != nil {
		p.used = true
	}
	s.mu.Unlock()
	if p == nil || p.text != text {
		c.misses.Add(uint64(len(text)))
		return nil, false
	}
	c.hits.Add(uint64(len(text)))
	return p.ids, true
}

// put keeps copies of text and ids.
func (c *Cache) put(encoder uint64, text string, ids []uint32) {
	if int64(len(text)+4*len(ids)+pieceOverhead) > c.limit/2 {
		return // it would push out half of what is there
	}
	k := c.key(encoder, text)
	p := &piece{key: k, text: strings.Clone(text), ids: slices.Clone(ids)}
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.pieces[k]; old != nil {
		if old.text == text {
			return // another call was first
		}
		s.remove(s.find(old))
	}
	for s.bytes+p.bytes() > c.limit {
		s.evict()
	}
	s.pieces[k] = p
	s.ring = append(s.ring, p)
	s.bytes += p.bytes()
}

func (s *cacheShard) evict() {
	for {
		if s.hand >= len(s.ring) {
			s.hand = 0
		}
		if p := s.ring[s.hand]; p.used {
			p.used = false
			s.hand++
			continue
		}
		s.remove(s.hand)
		return
	}
}

// find is for the rare case of two texts with one hash.
func (s *cacheShard) find(p *piece) int {
	for i, other := range s.ring {
		if other == p {
			return i
		}
	}
	panic("tokenize: a piece is not in the ring")
}

// remove takes a piece out; the last one moves to its place.
func (s *cacheShard) remove(at int) {
	p := s.ring[at]
	last := len(s.ring) - 1
	s.ring[at] = s.ring[last]
	s.ring[last] = nil
	s.ring = s.ring[:last]
	delete(s.pieces, p.key)
	s.bytes -= p.bytes()
}
