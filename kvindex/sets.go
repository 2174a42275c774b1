package kvindex

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

// setID names an interned holder set; 0 is the empty set.
type setID uint32

// holderSet is which endpoints hold a block, by tier: one bitmap over
// EndpointIDs each, without trailing zero words. It never changes once
// published.
type holderSet struct {
	tiers [numTiers][]uint64
	hash  uint64 // of tiers
}

func (s *holderSet) has(e EndpointID, t Tier) bool {
	w := int(e / 64)
	return w < len(s.tiers[t]) && s.tiers[t][w]>>(e%64)&1 != 0
}

// holderSets interns holder sets: blocks with the same holders, which are most
// blocks, share one. Sets are counted by the blocks that use them.
//
// An ID whose last user is gone is not given out again while a reader may
// still have it: readers hold reading for the length of one Match, and IDs
// leave limbo only at a moment when nobody reads.
type holderSets struct {
	reading sync.RWMutex

	// byID is read without a lock. Its slice is replaced when it must grow,
	// and both the old and the new one hold every set that was published.
	byID atomic.Pointer[[]atomic.Pointer[holderSet]]

	mu      sync.Mutex
	refs    []uint32           // by ID: blocks that use the set
	byHash  map[uint64][]setID // content hash → IDs
	free    []setID
	limbo   []setID
	next    setID // IDs from here on were never given out
	words   int   // bitmap words in use, for the memory estimate
	live    int
	scratch [numTiers][]uint64
	last    change
}

// change is a change of holders and the sets before and after it. The blocks
// of a run mostly change alike, so the last one is remembered for as long as
// both sets live.
type change struct {
	from, to setID
	e        EndpointID
	t        Tier
	held     bool
	known    bool
}

const firstSets = 64

func (hs *holderSets) init() {
	byID := make([]atomic.Pointer[holderSet], firstSets)
	byID[0].Store(&holderSet{})
	hs.byID.Store(&byID)
	hs.refs = make([]uint32, firstSets)
	hs.byHash = make(map[uint64][]setID)
	hs.next = 1
}

// get returns the set of an ID read from the table. The caller holds reading
// or the lock of a table shard that refers to id.
func (hs *holderSets) get(id setID) *holderSet {
	return (*hs.byID.Load())[id].Load()
}

// changeLocked returns the ID of set id with the (e, t) member added or
// removed, and counts one more use of it. The caller releases id once nothing
// refers to it; when the two are equal nothing is to be released.
func (hs *holderSets) changeLocked(id setID, e EndpointID, t Tier, held bool) setID {
	if l := &hs.last; l.known && l.from == id && l.e == e && l.t == t && l.held == held {
		if l.to != 0 {
			hs.refs[l.to]++
		}
		return l.to
	}
	from := hs.get(id)
	if from.has(e, t) == held {
		return id
	}
	for i := range hs.scratch {
		hs.scratch[i] = append(hs.scratch[i][:0], from.tiers[i]...)
	}
	words, w := hs.scratch[t], int(e/64)
	for len(words) <= w {
		words = append(words, 0)
	}
	words[w] ^= 1 << (e % 64)
	for len(words) > 0 && words[len(words)-1] == 0 {
		words = words[:len(words)-1]
	}
	hs.scratch[t] = words
	to := hs.internLocked()
	hs.last = change{id, to, e, t, held, true}
	return to
}

// internLocked returns the ID of the set in scratch and counts one more use.
func (hs *holderSets) internLocked() setID {
	empty := true
	for _, words := range hs.scratch {
		empty = empty && len(words) == 0
	}
	if empty {
		return 0
	}
	sum := hashWords(&hs.scratch)
	for _, id := range hs.byHash[sum] {
		if equalWords(&hs.get(id).tiers, &hs.scratch) {
			hs.refs[id]++
			return id
		}
	}
	set := &holderSet{hash: sum}
	for i, words := range hs.scratch {
		if len(words) > 0 {
			set.tiers[i] = append(make([]uint64, 0, len(words)), words...)
		}
		hs.words += len(words)
	}
	id := hs.allocLocked()
	(*hs.byID.Load())[id].Store(set)
	hs.refs[id] = 1
	hs.byHash[sum] = append(hs.byHash[sum], id)
	hs.live++
	return id
}

func (hs *holderSets) allocLocked() setID {
	if len(hs.free) == 0 && len(hs.limbo) > 0 && hs.reading.TryLock() {
		hs.free, hs.limbo = hs.limbo, hs.free[:0]
		hs.reading.Unlock()
	}
	if n := len(hs.free); n > 0 {
		id := hs.free[n-1]
		hs.free = hs.free[:n-1]
		return id
	}
	id := hs.next
	hs.next++
	old := *hs.byID.Load()
	if int(id) < len(old) {
		return id
	}
	grown := make([]atomic.Pointer[holderSet], 2*len(old))
	for i := range old {
		grown[i].Store(old[i].Load())
	}
	hs.byID.Store(&grown)
	hs.refs = append(hs.refs, make([]uint32, len(grown)-len(hs.refs))...)
	return id
}

// releaseLocked ends one use of id, after the last word of the table that said
// so is gone.
func (hs *holderSets) releaseLocked(id setID) {
	if id == 0 {
		return
	}
	hs.refs[id]--
	if hs.refs[id] > 0 {
		return
	}
	set := hs.get(id)
	ids := hs.byHash[set.hash]
	for i := range ids {
		if ids[i] == id {
			ids[i] = ids[len(ids)-1]
			ids = ids[:len(ids)-1]
			break
		}
	}
	if len(ids) == 0 {
		delete(hs.byHash, set.hash)
	} else {
		hs.byHash[set.hash] = ids
	}
	for _, words := range set.tiers {
		hs.words -= len(words)
	}
	hs.live--
	if hs.last.from == id || hs.last.to == id {
		hs.last = change{}
	}
	hs.limbo = append(hs.limbo, id)
}

// stats returns the number of distinct sets and their approximate size in
// bytes.
func (hs *holderSets) stats() (sets int, bytes int64) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	const perSet = int64(unsafe.Sizeof(holderSet{})) + 8 /* byID */ + 4 /* refs */ + 48 /* byHash */
	return hs.live, int64(hs.live)*perSet + int64(hs.words)*8
}

// hashWords folds the words of all tiers; sets with equal hashes are compared.
func hashWords(tiers *[numTiers][]uint64) uint64 {
	h := uint64(1)
	for _, words := range tiers {
		h = mix(h, uint64(len(words)))
		for _, w := range words {
			h = mix(h, w)
		}
	}
	return h
}

func mix(h, w uint64) uint64 {
	hi, lo := bits.Mul64(h^0x9e3779b97f4a7c15, w^0xd6e8feb86659fd93)
	return hi ^ lo ^ h
}

func equalWords(a, b *[numTiers][]uint64) bool {
	for t := range a {
		if len(a[t]) != len(b[t]) {
			return false
		}
		for i := range a[t] {
			if a[t][i] != b[t][i] {
				return false
			}
		}
	}
	return true
}
