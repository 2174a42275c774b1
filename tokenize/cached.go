package tokenize

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/warmroute/warmroute/tokenize/native"
)

// minPiece is how long a piece of a prompt is at least, in bytes, but for the
// last: below, looking it up costs as much as encoding it.
const minPiece = 256

// cachedEncoder encodes a text piece by piece and remembers the pieces. They are
// counted from the start of the text, so that two texts with a common beginning
// have the same pieces up to where they part.
type cachedEncoder struct {
	*native.Encoder

	cutter *cutter
	cache  *Cache
	id     uint64 // of this encoder in cache

	prefix, suffix []uint32 // around every text, when asked for
	affixes        bool     // they are known
}

var encoders atomic.Uint64

// withCache returns enc, remembering in cache where its texts can be cut.
func withCache(enc *native.Encoder, cache *Cache) encoder {
	cutter := newCutter(enc.AddedTokens(), enc.Normalizes())
	if cutter == nil || cache == nil || cache.limit == 0 {
		return enc
	}
	c := &cachedEncoder{Encoder: enc, cutter: cutter, cache: cache, id: encoders.Add(1)}
	c.prefix, c.suffix, c.affixes = enc.Affixes()
	return c
}

// Append is native.Encoder.Append.
func (c *cachedEncoder) Append(ctx context.Context, dst []uint32, text string, addSpecial bool) ([]uint32, error) {
	if len(text) < minPiece || len(text) > native.MaxText || addSpecial && !c.affixes {
		return c.Encoder.Append(ctx, dst, text, addSpecial)
	}
	p := piecesPool.Get().(*pieces)
	defer piecesPool.Put(p)
	p.divide(c.cutter, text)
	if len(p.cuts) == 0 {
		// Nothing tells where a longer text with this beginning could be cut.
		return c.Encoder.Append(ctx, dst, text, addSpecial)
	}

	before := len(dst)
	if addSpecial {
		dst = append(dst, c.prefix...)
	}
	var err error
	run := 0 // the first of the pieces that are not encoded yet
	for i, piece := range p.list {
		if ids, ok := c.cache.get(c.id, text[piece.start:piece.end]); ok {
			if dst, err = c.encode(ctx, dst, text, p, run, i); err != nil {
				return dst[:before], err
			}
			dst = append(dst, ids...)
			run = i + 1
		}
	}
	if dst, err = c.encode(ctx, dst, text, p, run, len(p.list)); err != nil {
		return dst[:before], err
	}
	if addSpecial {
		dst = append(dst, c.suffix...)
	}
	return dst, nil
}

// encode appends the ids of the pieces from up to, not including, to. It takes
// one call, because some texts cost the reference much at each call.
func (c *cachedEncoder) encode(ctx context.Context, dst []uint32, text string, p *pieces, from, to int) ([]uint32, error) {
	if from == to {
		return dst, nil
	}
	before := len(dst)
	dst, err := c.Encoder.Append(ctx, dst, text[p.list[from].start:p.list[to-1].end], false)
	if err != nil {
		return dst, err
	}
	ids := dst[before:]
	if !p.locate(c.cutter, ids, from, to) {
		return dst, nil
	}
	for i := from; i < to; i++ {
		piece := p.list[i]
		if piece.end-piece.start < minPiece {
			continue // the last, which a next turn makes longer
		}
		end := len(ids)
		if i+1 < to {
			end = p.list[i+1].firstID
		}
		c.cache.put(c.id, text[piece.start:piece.end], ids[piece.firstID:end])
	}
	return dst, nil
}

// pieces is a text cut into pieces.
type pieces struct {
	cuts []cut // all of the text's, of which some begin a piece
	list []span
}

// span is a piece of a text.
type span struct {
	start, end int // in bytes
	firstCut   int // index of the first cut that does not lie before start
	firstID    int // index of the first id, among those of a run of pieces
}

var piecesPool = sync.Pool{New: func() any { return new(pieces) }}

func (p *pieces) divide(c *cutter, text string) {
	p.cuts = c.appendCuts(p.cuts[:0], text)
	p.list = append(p.list[:0], span{})
	for i, cut := range p.cuts {
		if last := &p.list[len(p.list)-1]; cut.at-last.start >= minPiece {
			last.end = cut.at
			p.list = append(p.list, span{start: cut.at, firstCut: i})
		}
	}
	p.list[len(p.list)-1].end = len(text)
}

// locate finds where the pieces from up to, not including, to begin among their
// ids, by the added tokens before which they were cut. It is not ok when there
// are other ids of such tokens among them, as from a vocabulary that spells an
// added token with its own id.
func (p *pieces) locate(c *cutter, ids []uint32, from, to int) (ok bool) {
	next, end := p.list[from].firstCut, len(p.cuts)
	if to < len(p.list) {
		end = p.list[to].firstCut
	}
	piece := from
	p.list[from].firstID = 0
	for n, id := range ids {
		if !c.ids.has(id) {
			continue
		}
		if next == end || p.cuts[next].id != id {
			return false
		}
		if piece+1 < to && p.list[piece+1].firstCut == next {
			piece++
			p.list[piece].firstID = n
		}
		next++
	}
	return next == end
}
