package kvindex

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

// bucketSlots makes a bucket one cache line, so that a lookup of a block that
// is where it belongs costs one miss.
const bucketSlots = 5

// bucket holds a few blocks and the ID of the holder set of each. Words are
// accessed atomically: readers take no lock.
type bucket struct {
	keys [bucketSlots]uint64 // own hashes; 0 is free
	sets [bucketSlots]uint32 // setID

	// state counts, in its low half, the blocks that belong to this bucket or
	// one before it and lie further on because this one was full: a lookup ends
	// at a bucket that nobody passed. Its high half counts deletions.
	state uint32
}

const (
	onePassed    = 1
	oneDeletion  = 1 << 16
	passedMask   = oneDeletion - 1
	deletionMask = ^uint32(passedMask)
)

// shard is one part of the table from own hash to holder set, chosen by the
// hash's low bits. Writers take mu for one block; readers never do. A block
// stays in its slot until it is deleted or the shard grows, and growing
// publishes a new array, so a reader sees each block in its place. An insertion
// writes the set before the key, and a deletion counts itself before it frees
// the slot: a reader that finds the count unchanged after reading key and set
// has read the set of that key, be it that of a moment ago.
type shard struct {
	mu      sync.Mutex
	buckets atomic.Pointer[[]bucket]
	used    int
	_       [64 - 24]byte // its own cache line, away from the neighbour's lock
}

const (
	shardBits    = 8
	numShards    = 1 << shardBits
	firstBuckets = 4

	// maxLoad is the share of slots in use, in 1/16, at which a shard grows by
	// half. At 13/16 about one block in ten lies outside its bucket.
	maxLoad = 13
)

// slotKey is the hash as it is stored: 0 marks a free slot.
func slotKey(h BlockHash) uint64 {
	if h == 0 {
		return 1
	}
	return uint64(h)
}

func homeBucket(key uint64, n int) int {
	hi, _ := bits.Mul64(key, uint64(n))
	return int(hi)
}

// find returns the set of key, 0 when nobody holds it. It may be called
// without the lock.
func (s *shard) find(key uint64) setID {
	p := s.buckets.Load()
	if p == nil {
		return 0
	}
	buckets := *p
	i := homeBucket(key, len(buckets))
	for range buckets {
		b := &buckets[i]
		state := atomic.LoadUint32(&b.state)
		for j := range bucketSlots {
			if atomic.LoadUint64(&b.keys[j]) != key {
				continue
			}
			id := atomic.LoadUint32(&b.sets[j])
			if (atomic.LoadUint32(&b.state)^state)&deletionMask == 0 {
				return setID(id)
			}
			return s.find(key) // something left this bucket meanwhile
		}
		if state&passedMask == 0 {
			return 0
		}
		if i++; i == len(buckets) {
			i = 0
		}
	}
	return 0
}

// slotLocked returns the slot of key, or nil.
func (s *shard) slotLocked(key uint64) (b *bucket, j int) {
	p := s.buckets.Load()
	if p == nil {
		return nil, 0
	}
	buckets := *p
	i := homeBucket(key, len(buckets))
	for range buckets {
		b := &buckets[i]
		for j := range bucketSlots {
			if b.keys[j] == key {
				return b, j
			}
		}
		if b.state&passedMask == 0 {
			return nil, 0
		}
		if i++; i == len(buckets) {
			i = 0
		}
	}
	return nil, 0
}

// insertLocked adds key, which must be absent.
func (s *shard) insertLocked(key uint64, id setID) {
	p := s.buckets.Load()
	if p == nil {
		first := make([]bucket, firstBuckets)
		p = &first
		s.buckets.Store(p)
	}
	if (s.used+1)*16 > len(*p)*bucketSlots*maxLoad {
		old := *p
		grown := make([]bucket, len(old)+(len(old)+1)/2)
		for i := range old {
			for j, key := range old[i].keys {
				if key != 0 {
					place(grown, key, old[i].sets[j])
				}
			}
		}
		p = &grown
		s.buckets.Store(p)
	}
	place(*p, key, uint32(id))
	s.used++
}

func place(buckets []bucket, key uint64, id uint32) {
	for i := homeBucket(key, len(buckets)); ; {
		b := &buckets[i]
		for j := range bucketSlots {
			if b.keys[j] == 0 {
				atomic.StoreUint32(&b.sets[j], id)
				atomic.StoreUint64(&b.keys[j], key)
				return
			}
		}
		atomic.AddUint32(&b.state, onePassed)
		if i++; i == len(buckets) {
			i = 0
		}
	}
}

// deleteLocked frees the slot of key.
func (s *shard) deleteLocked(key uint64, at *bucket, j int) {
	buckets := *s.buckets.Load()
	atomic.AddUint32(&at.state, oneDeletion)
	atomic.StoreUint64(&at.keys[j], 0)
	atomic.StoreUint32(&at.sets[j], 0)
	for i := homeBucket(key, len(buckets)); &buckets[i] != at; {
		atomic.AddUint32(&buckets[i].state, ^uint32(onePassed-1))
		if i++; i == len(buckets) {
			i = 0
		}
	}
	s.used--
}

// table maps own hashes to holder sets.
type table struct {
	shards [numShards]shard
	sets   holderSets
}

func (t *table) shard(key uint64) *shard { return &t.shards[key%numShards] }

// find returns the ID of the holder set of h. The caller holds sets.reading
// for as long as it uses the ID.
func (t *table) find(h BlockHash) setID {
	key := slotKey(h)
	return t.shard(key).find(key)
}

// hold records that e holds h in tier, or no longer does.
func (t *table) hold(h BlockHash, e EndpointID, tier Tier, held bool) {
	key := slotKey(h)
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.sets.mu.Lock()
	defer t.sets.mu.Unlock()
	b, j := s.slotLocked(key)
	var from setID
	if b != nil {
		from = setID(b.sets[j])
	}
	to := t.sets.changeLocked(from, e, tier, held)
	switch {
	case to == from:
		return
	case b == nil:
		s.insertLocked(key, to)
	case to == 0:
		s.deleteLocked(key, b, j)
	default:
		atomic.StoreUint32(&b.sets[j], uint32(to))
	}
	t.sets.releaseLocked(from)
}

// holds says whether e holds h in any tier.
func (t *table) holds(h BlockHash, e EndpointID) bool {
	key := slotKey(h)
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	set := t.sets.get(s.find(key))
	for tier := range numTiers {
		if set.has(e, tier) {
			return true
		}
	}
	return false
}

// stats returns the number of distinct blocks and the table's size in bytes.
func (t *table) stats() (blocks int, bytes int64) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		blocks += s.used
		if p := s.buckets.Load(); p != nil {
			bytes += int64(len(*p)) * int64(unsafe.Sizeof(bucket{}))
		}
		s.mu.Unlock()
	}
	return blocks, bytes + int64(unsafe.Sizeof(*t))
}
