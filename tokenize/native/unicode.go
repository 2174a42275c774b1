package native

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// The two engines have Unicode tables of their own, the fast one's newer. They
// agree on what Unicode 15.0 had assigned, which is what package unicode knows,
// and are told apart by code points that came later: text with one of those is
// the reference's. TestEnginesAgreeOnEveryCodePoint holds this.

// assigned has a bit for each code point that Unicode 15.0 assigns.
var assigned = sync.OnceValue(func() *[(unicode.MaxRune + 1) / 64]uint64 {
	var bits [(unicode.MaxRune + 1) / 64]uint64
	set := func(lo, hi, stride rune) {
		for r := lo; r <= hi; r += stride {
			bits[r/64] |= 1 << (r % 64)
		}
	}
	for name, table := range unicode.Categories {
		if name == "C" || name == "Cn" { // unassigned code points are among them
			continue
		}
		for _, r := range table.R16 {
			set(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
		for _, r := range table.R32 {
			set(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
	}
	return &bits
})

// settled reports whether text is valid UTF-8 of code points on which the
// engines agree.
func settled(text string) bool {
	bits := assigned()
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 || bits[r/64]&(1<<(r%64)) == 0 {
			return false
		}
		i += n
	}
	return true
}
