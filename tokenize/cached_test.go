package tokenize

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warmroute/warmroute/tokenize/native"
)

// everyTokenizer calls f with each tokenizer that is here.
func everyTokenizer(t *testing.T, f func(t *testing.T, enc *native.Encoder)) {
	t.Helper()
	paths, err := filepath.Glob("../.build/tokenizers/*/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Log("NOT TESTED on published tokenizers: run `make tokenizers`")
	}
	for _, path := range append([]string{"../examples/models/tiny/tokenizer.json"}, paths...) {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			enc, err := native.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(enc.Close)
			f(t, enc)
		})
	}
}

// speaker writes conversations in a tokenizer's own marks.
type speaker struct {
	*rand.Rand
	marks []string
}

func newSpeaker(seed uint64, enc *native.Encoder) *speaker {
	s := &speaker{Rand: rand.New(rand.NewPCG(seed, 7))}
	for _, t := range enc.AddedTokens() {
		s.marks = append(s.marks, t.Content)
	}
	slices.Sort(s.marks)
	return s
}

var sayings = []string{
	"The river rises in spring. ", "\n\n", "def f(x):\n\treturn x[1:]\n", "  ", "12345", "你好,世界。", "é", "e\u0301", "\u0301",
	"👩\u200d👩\u200d👧", "<", "|", "<|", "|>", "im_start", "<|im_", "Straße", "\u1100\u1161", "\u00a0", "\u3000", "'s", "A", " a", "\t\t", "…",
	"\r\n", "don't", "한국어", "ÄÖ", "\x01", "▁", " ▁", "</s", "_", "0",
}

func (s *speaker) text(n int) string {
	var b strings.Builder
	for b.Len() < n {
		switch k := s.IntN(12); {
		case k == 0 && len(s.marks) > 0:
			b.WriteString(s.marks[s.IntN(len(s.marks))])
		case k == 1 && len(s.marks) > 0:
			m := s.marks[s.IntN(len(s.marks))]
			b.WriteString(m[:s.IntN(len(m)+1)]) // a mark that is broken off, perhaps within a letter
		case k < 4:
			b.WriteString(strings.Repeat(sayings[s.IntN(len(sayings))], s.IntN(40)))
		default:
			b.WriteString(sayings[s.IntN(len(sayings))])
		}
	}
	return strings.ToValidUTF8(b.String(), "")
}

// edit changes text somewhere.
func (s *speaker) edit(text string) string {
	at, to := s.IntN(len(text)+1), s.IntN(len(text)+1)
	if at > to {
		at, to = to, at
	}
	switch s.IntN(4) {
	case 0: // goes on
		return text + s.text(s.IntN(900))
	case 1: // broken off
		return text[:at]
	case 2: // something else in the middle
		return text[:at] + s.text(s.IntN(400)) + text[min(at+s.IntN(300), len(text)):]
	default: // something left out
		return text[:at] + text[to:]
	}
}

// TestCacheChangesNothing encodes conversations that go on, break off and change,
// with a cache that holds them and with one that holds next to nothing, and
// compares the ids with those of the whole text.
func TestCacheChangesNothing(t *testing.T) {
	everyTokenizer(t, func(t *testing.T, enc *native.Encoder) {
		t.Helper()
		large, small := NewCache(64<<20), NewCache(64<<10)
		encoders := map[string]encoder{"large": withCache(enc, large), "small": withCache(enc, small)}
		s := newSpeaker(1, enc)
		rounds := 40
		if testing.Short() || !enc.Fast() {
			rounds = 10
		}
		for range rounds {
			text := s.text(200 + s.IntN(4000))
			for range 12 {
				text = strings.ToValidUTF8(s.edit(text), "")
				special := s.IntN(2) == 0
				want, err := enc.Append(context.Background(), nil, text, special)
				if err != nil {
					t.Fatal(err)
				}
				for name, e := range encoders {
					got, err := e.Append(context.Background(), []uint32{7}, text, special)
					if err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(got[1:], want) || got[0] != 7 {
						t.Fatalf("%s cache: other ids than of the whole text\n%q", name, text)
					}
				}
			}
		}
		stats := large.Stats()
		t.Logf("%+v", stats)
		if stats.HitBytes < stats.MissBytes/4 {
			t.Error("hardly anything was found again: the test shows nothing")
		}
		for name, c := range map[string]*Cache{"large": large, "small": small} {
			if got, limit := c.Stats().Bytes, c.limit*int64(len(c.shards)); got > limit {
				t.Errorf("%s cache: %d bytes, at most %d", name, got, limit)
			}
		}
	})
}

// TestCuts is about what decides whether a text can be cut: made added
// tokens of each kind.
func TestCuts(t *testing.T) {
	token := func(id uint32, content string, flags string) native.AddedToken {
		return native.AddedToken{
			ID: id, Content: content, Normalized: strings.Contains(flags, "n"),
			LStrip: strings.Contains(flags, "l"), RStrip: strings.Contains(flags, "r"), SingleWord: strings.Contains(flags, "w"),
		}
	}
	for name, test := range map[string]struct {
		tokens     []native.AddedToken
		normalizes bool
		text       string
		want       string
	}{
		"raw":                   {[]native.AddedToken{token(1, "<a>", "")}, true, "x<a>y<a", "1@1"},
		"the longest":           {[]native.AddedToken{token(1, "<a>", ""), token(2, "<a><b>", "")}, true, "<a><b><a><c>", "2@0 1@6"},
		"the leftmost":          {[]native.AddedToken{token(1, "ab", ""), token(2, "bcd", "")}, true, "abcd", "1@0"},
		"none":                  {nil, false, "x", "nil"},
		"normalized":            {[]native.AddedToken{token(1, "<a>", "n")}, true, "x<a>", "nil"},
		"nothing normalizes":    {[]native.AddedToken{token(1, "<a>", "n")}, false, "x<a>", "1@1"},
		"raw before normalized": {[]native.AddedToken{token(1, "b>", ""), token(2, "<ab>", "n"), token(3, "<a", "n")}, false, "<ab>x<ab", "3@0 1@2 3@5"},
		"takes blanks before":   {[]native.AddedToken{token(1, "<a>", "l"), token(2, "<b>", "")}, false, " <a> <b>", "2@5"},
		"takes blanks behind":   {[]native.AddedToken{token(1, "<a>", "r"), token(2, "  ", ""), token(3, "<b>", "n")}, false, "<a>  <b>", "1@0"},
		"between words only":    {[]native.AddedToken{token(1, "<a>", "w"), token(2, "<b>", "")}, false, "<a><b>", "2@3"},
		"twice":                 {[]native.AddedToken{token(1, "<a>", ""), token(2, "<a>", "l"), token(3, "<b>", "")}, false, "<a><b>", "3@3"},
		"empty":                 {[]native.AddedToken{token(1, "", ""), token(2, "b", "")}, false, "ab", "2@1"},
	} {
		t.Run(name, func(t *testing.T) {
			got := "nil"
			if c := newCutter(test.tokens, test.normalizes); c != nil {
				var all []string
				for _, cut := range c.appendCuts(nil, test.text) {
					all = append(all, fmt.Sprintf("%d@%d", cut.id, cut.at))
				}
				got = strings.Join(all, " ")
			}
			if got != test.want {
				t.Errorf("cuts of %q: %s, want %s", test.text, got, test.want)
			}
		})
	}
}

// TestCutsLikeASearchByHand compares the search with trying every token at every
// place.
func TestCutsLikeASearchByHand(t *testing.T) {
	everyTokenizer(t, func(t *testing.T, enc *native.Encoder) {
		t.Helper()
		c := newCutter(enc.AddedTokens(), enc.Normalizes())
		if c == nil {
			t.Skip("its texts cannot be cut")
		}
		s := newSpeaker(2, enc)
		for range 30 {
			text := s.text(600)
			for from := 0; from < len(text); {
				start, end, token := c.raw.find(text, from)
				at, best := byHand(c.raw.sorted, text, from)
				if start != at || token >= 0 && c.raw.sorted[token].Content != best {
					t.Fatalf("found at %d, by hand %q at %d\n%q", start, best, at, text)
				}
				from = end
			}
		}
	})
}

func byHand(tokens []native.AddedToken, text string, from int) (at int, best string) {
	for at := from; at < len(text); at++ {
		for _, t := range tokens {
			if len(t.Content) > len(best) && strings.HasPrefix(text[at:], t.Content) {
				best = t.Content
			}
		}
		if best != "" {
			return at, best
		}
	}
	return len(text), ""
}

func TestCacheKeepsItsLimit(t *testing.T) {
	c := NewCache(1 << 20)
	for i := range 20000 {
		text := fmt.Sprintf("%0300d", i)
		c.put(1, text, make([]uint32, 75))
		if ids, ok := c.get(1, text); !ok || len(ids) != 75 {
			t.Fatal("what was just put is not there")
		}
		if _, ok := c.get(2, text); ok {
			t.Fatal("found for another tokenizer")
		}
	}
	c.put(1, strings.Repeat("x", 1<<19), nil)
	stats := c.Stats()
	if stats.Bytes > 1<<20 || stats.Bytes < 1<<19 {
		t.Errorf("%d bytes with a limit of %d", stats.Bytes, 1<<20)
	}
	if stats.Pieces < 1000 {
		t.Errorf("%d pieces", stats.Pieces)
	}
}

// TestCacheKeepsWhatIsUsed: a piece that is asked for again and again outlives
// many that are not.
func TestCacheKeepsWhatIsUsed(t *testing.T) {
	c := NewCache(1 << 20)
	c.put(1, "used", []uint32{1})
	for i := range 50000 {
		if _, ok := c.get(1, "used"); !ok {
			t.Fatalf("gone after %d others", i)
		}
		c.put(1, fmt.Sprintf("%0100d", i), nil)
	}
}

func TestCacheFromManyGoroutines(t *testing.T) {
	enc, err := native.Load("../examples/models/tiny/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	e := withCache(enc, NewCache(256<<10))
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			s := newSpeaker(uint64(i%2), enc)
			for range 100 {
				text := s.text(3000)
				got, err := e.Append(context.Background(), nil, text, false)
				if err != nil {
					t.Error(err)
					return
				}
				if want, _ := enc.Append(context.Background(), nil, text, false); !slices.Equal(got, want) {
					t.Errorf("other ids for %q", text)
				}
			}
		})
	}
	wait.Wait()
}
