package kvindex

import (
	"iter"
	"math/bits"
)

// blockMap maps engine hashes to blocks: open addressing with linear probing
// and backward shifts on deletion, so that it needs no tombstones and 24 bytes
// a slot. It grows by a quarter at a load of 7/8, which keeps it about four
// fifths full at any size; a Go map would be half empty half of the time.
//
// A slot whose block has no copy is free, so a block in the map always exists.
type blockMap struct {
	slots []blockSlot
	used  int
}

type blockSlot struct {
	hash  uint64
	block block
}

const firstSlots = 16

// home spreads engine hashes, which are someone else's and may be small
// numbers, over the slots (Fibonacci hashing, then a range reduction).
func (m *blockMap) home(hash uint64) int {
	hi, _ := bits.Mul64(hash*0x9e3779b97f4a7c15, uint64(len(m.slots)))
	return int(hi)
}

func (m *blockMap) next(i int) int {
	if i++; i == len(m.slots) {
		return 0
	}
	return i
}

// get returns the block of hash, the zero block when there is none.
func (m *blockMap) get(hash uint64) block {
	if m.used == 0 {
		return block{}
	}
	for i := m.home(hash); ; i = m.next(i) {
		s := &m.slots[i]
		if !s.block.exists() {
			return block{}
		}
		if s.hash == hash {
			return s.block
		}
	}
}

// put sets the block of hash, which must exist.
func (m *blockMap) put(hash uint64, b block) {
	if len(m.slots) == 0 {
		m.grow()
	}
	i := m.home(hash)
	for m.slots[i].block.exists() {
		if m.slots[i].hash == hash {
			m.slots[i].block = b
			return
		}
		i = m.next(i)
	}
	if (m.used+1)*8 > len(m.slots)*7 {
		m.grow()
		m.place(blockSlot{hash, b})
	} else {
		m.slots[i] = blockSlot{hash, b}
	}
	m.used++
}

func (m *blockMap) grow() {
	old := m.slots
	m.slots = make([]blockSlot, max(firstSlots, len(old)+len(old)/4))
	for _, s := range old {
		if s.block.exists() {
			m.place(s)
		}
	}
}

func (m *blockMap) place(s blockSlot) {
	i := m.home(s.hash)
	for m.slots[i].block.exists() {
		i = m.next(i)
	}
	m.slots[i] = s
}

// remove forgets hash.
func (m *blockMap) remove(hash uint64) {
	if m.used == 0 {
		return
	}
	i := m.home(hash)
	for m.slots[i].block.exists() && m.slots[i].hash != hash {
		i = m.next(i)
	}
	if !m.slots[i].block.exists() {
		return
	}
	m.used--
	// Fill the hole with the next block whose home is at the hole or before it,
	// and go on with the hole that leaves.
	n := len(m.slots)
	for j := m.next(i); m.slots[j].block.exists(); j = m.next(j) {
		fromHome := (j - m.home(m.slots[j].hash) + n) % n
		if fromHome >= (j-i+n)%n {
			m.slots[i] = m.slots[j]
			i = j
		}
	}
	m.slots[i] = blockSlot{}
}

// all iterates over the blocks. The loop may set and remove the block it is
// given; a block may then come twice, and none is left out.
func (m *blockMap) all() iter.Seq2[uint64, block] {
	return func(yield func(uint64, block) bool) {
		for i := 0; i < len(m.slots); {
			s := m.slots[i]
			if s.block.exists() && !yield(s.hash, s.block) {
				return
			}
			// A removal has moved into this slot only blocks not seen yet, and
			// behind it only blocks seen before.
			if now := m.slots[i]; !now.block.exists() || now.hash == s.hash {
				i++
			}
		}
	}
}
