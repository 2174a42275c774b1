package engine

import "slices"

// block is one physical block of the KV cache.
type block struct {
	refs   int
	hashed bool // it holds the content named by hash and can be found by it
	hash   Hash
	twin   *block // a further copy of the same content, in the order they were stored

	prev, next *block // the free queue; both nil outside it
}

// pool is a fixed set of blocks with vLLM's reuse rules.
//
// (1) One block is the null block and is never handed out.
// (2) A block is in the free queue exactly when nobody references it.
// (3) A hashed block in the free queue can be found and taken back until it is
// handed out for new content; only then is it removed from the cache, with one
// event per physical copy.
// (4) The free queue is in the order blocks were freed, the tail of a request
// first; blocks that hold nothing reusable go to its head unless keepOrder.
type pool struct {
	blocks []block
	cached map[Hash]*block // first copy stored; further ones hang on twin
	free   block           // head of the free queue
	nfree  int
	events []Event

	keepOrder bool
}

func newPool(n int, keepOrder bool) *pool {
	p := &pool{blocks: make([]block, n), cached: make(map[Hash]*block), keepOrder: keepOrder}
	p.free.prev, p.free.next = &p.free, &p.free
	for i := 1; i < n; i++ {
		p.release(&p.blocks[i])
	}
	return p
}

// usable is the number of blocks that requests can hold at once.
func (p *pool) usable() int { return len(p.blocks) - 1 }

// find is the copy of a cached block that requests share: the oldest one.
func (p *pool) find(h Hash) *block { return p.cached[h] }

// hold takes one more reference.
func (p *pool) hold(b *block) {
	if b.refs == 0 {
		b.prev.next, b.next.prev = b.next, b.prev
		b.prev, b.next = nil, nil
		p.nfree--
	}
	b.refs++
}

// take hands out a free block for new content, evicting what it held. The
// caller has checked nfree.
func (p *pool) take() *block {
	b := p.free.next
	if b.hashed {
		p.forget(b)
		p.events = append(p.events, Removed{Hashes: []Hash{b.hash}})
	}
	p.hold(b)
	return b
}

// drop gives back the references of one request, last block first.
func (p *pool) drop(bs []*block) {
	for _, b := range slices.Backward(bs) {
		if b.refs--; b.refs == 0 {
			p.release(b)
		}
	}
}

// release puts b into the free queue: at the tail when it is worth keeping.
func (p *pool) release(b *block) {
	before := &p.free
	if b.hashed || p.keepOrder {
		before = p.free.prev
	}
	b.prev, b.next = before, before.next
	before.next.prev, before.next = b, b
	p.nfree++
}

// store makes b findable under h.
func (p *pool) store(b *block, h Hash) {
	b.hash, b.hashed, b.twin = h, true, nil
	at := p.cached[h]
	if at == nil {
		p.cached[h] = b
		return
	}
	for at.twin != nil {
		at = at.twin
	}
	at.twin = b
}

// forget makes b unfindable; other copies stay.
func (p *pool) forget(b *block) {
	first := p.cached[b.hash]
	switch {
	case first == b && b.twin == nil:
		delete(p.cached, b.hash)
	case first == b:
		p.cached[b.hash] = b.twin
	default:
		for first.twin != b {
			first = first.twin
		}
		first.twin = b.twin
	}
	b.hashed, b.twin = false, nil
}

// clear empties the prefix cache. It does nothing while a block is in use.
func (p *pool) clear() bool {
	if p.nfree != p.usable() {
		return false
	}
	clear(p.cached)
	for i := range p.blocks {
		p.blocks[i].hashed, p.blocks[i].twin = false, nil
	}
	p.events = append(p.events, Cleared{})
	return true
}

// takeEvents returns what happened since the last call, in order.
func (p *pool) takeEvents() []Event {
	ev := p.events
	p.events = nil
	return ev
}
