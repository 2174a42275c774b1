package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func published(name string) string {
	return filepath.Join("../../.build/tokenizers", name, "tokenizer.json")
}

// referenceOf is a tokenizer without its fast engine.
func referenceOf(tb testing.TB, path string) *Encoder {
	tb.Helper()
	e := load(tb, path)
	if e.fast != nil {
		e.fast.free()
		e.fast = nil
	}
	return e
}

// bothEngines calls f with each tokenizer that is here and that the fast engine
// reads.
func bothEngines(t *testing.T, f func(t *testing.T, fast, reference *Encoder)) {
	t.Helper()
	paths, err := filepath.Glob(published("*"))
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, path := range append([]string{tiny}, paths...) {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			e := load(t, path)
			if !e.Fast() {
				t.Log("not byte-level: the reference encodes it")
				return
			}
			tested++
			f(t, e, referenceOf(t, path))
		})
	}
	if len(paths) == 0 {
		t.Log("NOT TESTED on published tokenizers: run `make tokenizers`")
	} else if tested < 6 {
		t.Errorf("only %d tokenizers use the fast engine", tested)
	}
}

// compare encodes text with both engines, and reports whether the fast one was
// sure of it.
func compare(t *testing.T, fast, reference *Encoder, text string) (sure bool) {
	t.Helper()
	if !settled(text) {
		return false
	}
	got, sure := fast.fast.append(nil, text, false)
	if !sure || strings.IndexByte(text, 0) >= 0 {
		return sure
	}
	want, err := reference.Append(context.Background(), nil, text, false)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%.80q (%x): fast %v, reference %v", text, text[:min(40, len(text))], got, want)
	}
	return true
}

// The list of settled code points must be that of Unicode 15.0, whatever Go's
// tables become: newer ones would let text through on which the engines differ.
func TestUnicodeVersion(t *testing.T) {
	if unicode.Version != "15.0.0" {
		t.Fatalf("package unicode is of version %s: find out which code points the engines differ on now", unicode.Version)
	}
	for text, want := range map[string]bool{
		"plain": true, "": true, "Gr\u00fc\u00dfe \u4f60 \U0001f468\u200d\U0001f469": true, "\x00": true,
		"\U000113c2": false, "\u20c1": false, "\U00011de0": false, "a\xff": false, "\xed\xa0\x80": false, "\ufffd": true,
	} {
		if settled(text) != want {
			t.Errorf("settled(%+q) = %v", text, !want)
		}
	}
}

func TestEnginesAgreeOnEveryCodePoint(t *testing.T) {
	bothEngines(t, func(t *testing.T, fast, reference *Encoder) {
		t.Helper()
		var b strings.Builder
		var few []rune
		n, sure := 0, 0
		flush := func() {
			text := b.String()
			b.Reset()
			if compare(t, fast, reference, text) {
				sure += len(few)
			} else {
				// Not in normal form, some of them: one by one.
				for _, r := range few {
					if compare(t, fast, reference, around(r)) {
						sure++
					}
				}
			}
			few = few[:0]
		}
		for r := rune(1); r <= unicode.MaxRune; r++ {
			if !utf8.ValidRune(r) || !settled(string(r)) || r > 0x32400 && r < 0xe0000 || r > 0xe0200 {
				continue
			}
			n++
			few = append(few, r)
			b.WriteString(around(r))
			if len(few) == 32 {
				flush()
			}
		}
		flush()
		t.Logf("%d code points, on %d of them the fast engine is sure", n, sure)
		if n < 140000 || sure < n*9/10 {
			t.Errorf("%d code points, %d sure: that is too few", n, sure)
		}
	})
}

// around shows a code point to every rule of a pattern that looks at neighbours.
func around(r rune) string { return fmt.Sprintf("a%cb 1%c2 %c%c!\n", r, r, r, r) }

func TestEnginesAgreeOnRandomText(t *testing.T) {
	bothEngines(t, func(t *testing.T, fast, reference *Encoder) {
		t.Helper()
		g := rand.New(rand.NewPCG(1, 2))
		sure := 0
		const texts = 400
		for range texts {
			if compare(t, fast, reference, randomText(g, fast.AddedTokens())) {
				sure++
			}
		}
		t.Logf("the fast engine is sure of %d of %d texts", sure, texts)
		if sure < texts/2 {
			t.Errorf("the fast engine is sure of %d of %d texts only", sure, texts)
		}
	})
}

// randomText is words, code, scripts, marks and added tokens, whole and cut.
func randomText(g *rand.Rand, added []AddedToken) string {
	pieces := []string{
		"the", " cache", "Hello", "\n", "\n\n", " ", "   ", "\t", "\r\n", "it's", "I'LL", "don\u2019t", "123", "4567890", "3.14", "x_1", "(){};", "==", "//",
		"\u00e9", "\u00a0", "\u4f60\u597d", "\u65e5\u672c\u8a9e", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u0627\u0644", "\u0661\u0662", "\ud55c\uae00", "\u200b", "\ufeff", "\u017f", "\u0130", "\ufb01", "<|", "|>", "<", ">",
	}
	var b strings.Builder
	for range 1 + g.IntN(60) {
		switch g.IntN(8) {
		case 0:
			if len(added) == 0 {
				continue
			}
			token := added[g.IntN(len(added))].Content
			switch g.IntN(4) {
			case 0:
				token = token[:g.IntN(len(token)+1)]
			case 1:
				token = strings.ToUpper(token)
			}
			b.WriteString(strings.ToValidUTF8(token, ""))
		case 1:
			for range 1 + g.IntN(12) {
				b.WriteByte(byte('a' + g.IntN(26)))
			}
		case 2:
			b.WriteString(strings.Repeat(pieces[g.IntN(len(pieces))], 1+g.IntN(20)))
		default:
			b.WriteString(pieces[g.IntN(len(pieces))])
		}
	}
	return b.String()
}

// A run without a break is the worst text there is: it must be encoded, and in
// time that does not grow with the square of its length.
func TestWorstTextsAreBounded(t *testing.T) {
	path := published("qwen3")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		path = tiny
	}
	e := load(t, path)
	g := rand.New(rand.NewPCG(3, 4))
	random := func(letters string, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = letters[g.IntN(len(letters))]
		}
		return string(b)
	}
	const size = 1 << 20
	for name, text := range map[string]string{
		"one letter": strings.Repeat("a", size), "blanks": strings.Repeat(" ", size), "newlines": strings.Repeat("\n", size),
		"base64":  random("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", size),
		"letters": random("abcdefghijklmnopqrstuvwxyz", size), "digits": random("0123456789", size),
		"CJK": strings.Repeat("\u4f60\u597d\u65e5\u672c", size/12), "emoji": strings.Repeat("\U0001f600", size/4), "equals": strings.Repeat("=", size),
	} {
		t.Run(name, func(t *testing.T) {
			ids, err := e.Append(t.Context(), nil, text, false)
			if err != nil {
				t.Fatal(err)
			}
			if _, sure := e.fast.append(nil, text, false); !sure {
				t.Error("the fast engine is not sure of it, so that the reference encoded it")
			}
			if len(ids) == 0 || len(ids) > len(text) {
				t.Errorf("%d ids for %d bytes", len(ids), len(text))
			}
		})
	}
}

// What the ids do not spell is the reference's: here a vocabulary in which one
// letter of the alphabet is another one's.
func TestIDsThatDoNotSpellTheTextAreNotTrusted(t *testing.T) {
	e := load(t, tiny)
	ids, sure := e.fast.append(nil, "cache", false)
	if !sure || len(ids) == 0 {
		t.Fatalf("%v, %v", ids, sure)
	}
	// A text that normal form C changes is not what its ids spell.
	nfc, err := open(withSections(t, map[string]any{"normalizer": map[string]any{"type": "NFC"}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nfc.Close)
	if !nfc.Fast() {
		t.Fatal("NFC keeps the fast engine away")
	}
	if _, sure := nfc.fast.append(nil, "cafe\u0301", false); sure {
		t.Error("the fast engine is sure of a text that it changed")
	}
	want, err := nfc.Append(t.Context(), nil, "caf\u00e9", false)
	if err != nil {
		t.Fatal(err)
	}
	got, err := nfc.Append(t.Context(), nil, "cafe\u0301", false)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

func TestTheReferenceKeepsWhatIsNotByteLevel(t *testing.T) {
	for name, sections := range map[string]map[string]any{
		"lower case":     {"normalizer": map[string]any{"type": "Lowercase"}},
		"prefix space":   {"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}},
		"no byte letter": {"pre_tokenizer": map[string]any{"type": "Whitespace"}},
	} {
		e, err := open(withSections(t, sections))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if e.Fast() {
			t.Errorf("%s: the fast engine is in use", name)
		}
		e.Close()
	}
}

func TestAddedTokensAndAffixes(t *testing.T) {
	e := load(t, tiny)
	if len(e.AddedTokens()) == 0 {
		t.Fatal("no added tokens")
	}
	for _, a := range e.AddedTokens() {
		ids, err := e.Append(t.Context(), nil, a.Content, false)
		if err != nil || !slices.Equal(ids, []uint32{a.ID}) {
			t.Errorf("%q: %v, %v; want %d", a.Content, ids, err, a.ID)
		}
	}
	prefix, suffix, known := e.Affixes()
	bare, err := e.Append(t.Context(), nil, "x y", false)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := e.Append(t.Context(), nil, "x y", true)
	if err != nil || !known || !slices.Equal(whole, slices.Concat(prefix, bare, suffix)) {
		t.Errorf("%v, %v; want %v %v %v, known %v", whole, err, prefix, bare, suffix, known)
	}
}

func TestAllocAppend(t *testing.T) {
	e := load(t, tiny)
	text := conversation(2 << 10)
	ids := make([]uint32, 0, len(text)+8)
	if n := testing.AllocsPerRun(100, func() {
		var err error
		if ids, err = e.Append(context.Background(), ids[:0], text, false); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
