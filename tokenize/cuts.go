package tokenize

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/warmroute/warmroute/tokenize/native"
)

// cutter finds where a text can be cut so that the ids of the pieces, one behind
// the other, are the ids of the whole: right before an added token, when the
// tokenizer takes that out of the text before anything else looks at it and it
// does not depend on what stands before it.
type cutter struct {
	// A text is searched for raw first, and what lies between for normalized.
	raw, normalized lexicon
	ids             idSet // of the tokens that a text is cut before
}

// blankMark stands for a blank in SentencePiece vocabularies. An added token that
// is a run of them has the id of ordinary blanks, so that its id does not tell
// where it stood.
const blankMark = "\u2581"

// newCutter returns nil when no text of the tokenizer can be cut. normalizes says
// that it changes text before it looks for the tokens that are marked normalized.
func newCutter(tokens []native.AddedToken, normalizes bool) *cutter {
	var raw, normalized []native.AddedToken
	var eatsBefore, eatsBehind bool
	for _, t := range tokens {
		switch {
		case t.Content == "":
			continue
		case !t.Normalized:
			raw = append(raw, t)
		case !normalizes:
			normalized = append(normalized, t)
		}
		eatsBefore = eatsBefore || t.LStrip
		eatsBehind = eatsBehind || t.RStrip
	}
	if eatsBefore || eatsBehind {
		// They move the borders of what lies between.
		normalized = nil
	}
	c := &cutter{raw: newLexicon(raw), normalized: newLexicon(normalized)}
	cuts := 0
	for _, l := range []*lexicon{&c.raw, &c.normalized} {
		for i, t := range l.sorted {
			first, _ := utf8.DecodeRuneInString(t.Content)
			eaten := eatsBehind && unicode.IsSpace(first)
			blank := strings.Trim(t.Content, blankMark) == ""
			l.cut[i] = !t.LStrip && !t.SingleWord && !eaten && !blank
			// Twice the same text: which of them counts is the library's to say.
			if i > 0 && l.sorted[i-1].Content == t.Content {
				l.cut[i], l.cut[i-1] = false, false
			}
		}
		for i, t := range l.sorted {
			if l.cut[i] {
				c.ids.add(t.ID)
				cuts++
			}
		}
	}
	if cuts == 0 {
		return nil
	}
	return c
}

// cut is an added token in a text, which can be cut before it.
type cut struct {
	at int // offset in bytes
	id uint32
}

// appendCuts appends the cuts of text in order.
func (c *cutter) appendCuts(dst []cut, text string) []cut {
	for at := 0; ; {
		start, end, token := c.raw.find(text, at)
		if len(c.normalized.sorted) > 0 {
			for gap := text[:start]; ; {
				s, e, t := c.normalized.find(gap, at)
				if t < 0 {
					break
				}
				dst = c.normalized.appendCut(dst, s, t)
				at = e
			}
		}
		if token < 0 {
			return dst
		}
		dst = c.raw.appendCut(dst, start, token)
		at = end
	}
}

// lexicon is a set of texts of which the longest counts where several begin.
type lexicon struct {
	sorted []native.AddedToken // by content
	cut    []bool              // of the same index: a text is cut before it
	// starts holds the range of sorted that begins with a byte.
	starts [256]struct{ low, high int32 }
	only   int // the one byte that all begin with, -1 when they differ
}

func newLexicon(tokens []native.AddedToken) lexicon {
	slices.SortFunc(tokens, func(a, b native.AddedToken) int { return cmp.Compare(a.Content, b.Content) })
	l := lexicon{sorted: tokens, cut: make([]bool, len(tokens)), only: -1}
	for i, t := range tokens {
		s := &l.starts[t.Content[0]]
		if s.high == 0 {
			s.low = int32(i)
		}
		s.high = int32(i) + 1
	}
	if n := len(tokens); n > 0 && tokens[0].Content[0] == tokens[n-1].Content[0] {
		l.only = int(tokens[0].Content[0])
	}
	return l
}

// find returns where in text the first of the tokens stands at or behind from,
// and its index; len(text) and -1 when there is none.
func (l *lexicon) find(text string, from int) (start, end, token int) {
	if len(l.sorted) == 0 {
		return len(text), len(text), -1
	}
	for i := from; i < len(text); i++ {
		if l.only >= 0 {
			n := strings.IndexByte(text[i:], byte(l.only))
			if n < 0 {
				break
			}
			i += n
		} else if l.starts[text[i]].high == 0 {
			continue
		}
		if token := l.longest(text[i:]); token >= 0 {
			return i, i + len(l.sorted[token].Content), token
		}
	}
	return len(text), len(text), -1
}

// longest returns the longest token at the start of text, which begins as one
// does, or -1. Those that share what has been read are a range of sorted, which
// narrows byte by byte.
func (l *lexicon) longest(text string) int {
	found := -1
	low, high := int(l.starts[text[0]].low), int(l.starts[text[0]].high)
	for depth := 1; low < high; depth++ {
		for low < high && len(l.sorted[low].Content) == depth {
			found = low
			low++
		}
		if depth == len(text) {
			break
		}
		rest := l.sorted[low:high]
		next := text[depth]
		skip := sort.Search(len(rest), func(i int) bool { return rest[i].Content[depth] >= next })
		keep := sort.Search(len(rest), func(i int) bool { return rest[i].Content[depth] > next })
		low, high = low+skip, low+keep
	}
	return found
}

func (l *lexicon) appendCut(dst []cut, at, token int) []cut {
	if !l.cut[token] {
		return dst
	}
	return append(dst, cut{at: at, id: l.sorted[token].ID})
}

// idSet is a set of token ids.
type idSet []uint64

func (s *idSet) add(id uint32) {
	if missing := int(id/64) + 1 - len(*s); missing > 0 {
		*s = append(*s, make([]uint64, missing)...)
	}
	(*s)[id/64] |= 1 << (id % 64)
}

func (s idSet) has(id uint32) bool {
	return int(id/64) < len(s) && s[id/64]&(1<<(id%64)) != 0
}
