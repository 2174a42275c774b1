package jinja

import (
	"strings"
	"unicode"
)

// isSpace is Python's str.isspace for one character: Unicode white space and
// the four ASCII separators.
func isSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}

func trimLeftSpace(s string) string { return strings.TrimLeftFunc(s, isSpace) }

func trimRightSpace(s string) string { return strings.TrimRightFunc(s, isSpace) }

func trimSpace(s string) string { return trimLeftSpace(trimRightSpace(s)) }
