package tokenize

import "math"

// appendIDs appends the numbers of a JSON array of token ids to dst. It
// allocates nothing but what dst lacks.
func appendIDs(dst []uint32, raw []byte) ([]uint32, error) {
	rest := space(raw)
	if len(rest) == 0 || rest[0] != '[' {
		return dst, refusef("token ids are not an array")
	}
	rest = space(rest[1:])
	if len(rest) > 0 && rest[0] == ']' {
		return dst, nil
	}
	for n := 0; ; n++ {
		var id uint64
		digits := 0
		for digits < len(rest) && rest[digits]-'0' <= 9 {
			id = id*10 + uint64(rest[digits]-'0')
			if id > math.MaxUint32 {
				return dst, refusef("token id %d is out of any vocabulary", n)
			}
			digits++
		}
		if digits == 0 || digits > 1 && rest[0] == '0' {
			return dst, refusef("token id %d is not a whole number", n)
		}
		dst = append(dst, uint32(id))
		if rest = rest[digits:]; len(rest) > 0 && rest[0] <= ' ' {
			rest = space(rest)
		}
		if len(rest) > 0 && rest[0] == ']' {
			return dst, nil
		}
		if len(rest) == 0 || rest[0] != ',' {
			return dst, refusef("token id %d is not a whole number", n)
		}
		if rest = rest[1:]; len(rest) > 0 && rest[0] <= ' ' {
			rest = space(rest)
		}
	}
}

// truncation is truncate_prompt_tokens with its side.
type truncation struct {
	set  bool
	keep int64  // tokens
	side string // "left", "right", or "" for the engine's default, left
}

// shortens reports whether the engine cuts a prompt of n tokens.
func (c truncation) shortens(n int) bool { return c.set && int64(n) > c.keep }

// apply cuts the ids behind the first from of dst.
func (c truncation) apply(dst []uint32, from int) []uint32 {
	n := len(dst) - from
	if !c.shortens(n) {
		return dst
	}
	keep := int(c.keep)
	if c.side != "right" {
		copy(dst[from:], dst[len(dst)-keep:])
	}
	return dst[:from+keep]
}
