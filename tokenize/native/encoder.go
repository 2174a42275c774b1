// Package native encodes text with Hugging Face's own tokenizer library.
//
// An Encoder answers, id for id, what the Python package tokenizers answers for
// the same tokenizer.json. Two engines are behind it, both built by `make
// native`. The reference is github.com/daulet/tokenizers, over the release that
// engines use. The fast one, a release candidate that is 30 to 100 times faster,
// encodes what it can be held to: byte-level vocabularies, whose ids spell the
// text, and text on which the Unicode tables of both agree. All methods may be
// called at once from many goroutines.
package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/daulet/tokenizers"
)

// MaxText is the longest text, in bytes, that one Append encodes: the prompt of
// a million-token context. A call into the library can neither be interrupted
// nor bounded, and takes up to 1.1 s of a core per megabyte of the worst text
// (a long run of digits), half a second of ordinary text.
const MaxText = 4 << 20

// Errors of Append that depend on the text or on the life of the Encoder, for
// callers that tell them apart.
var (
	// ErrNUL: the text holds U+0000 and is one for the reference, which takes C
	// strings: they end there, so that everything behind it would be lost.
	ErrNUL = errors.New("native: text holds NUL")
	// ErrTooLong: the text is longer than MaxText.
	ErrTooLong = errors.New("native: text too long")
	// ErrClosed: Close has been called.
	ErrClosed = errors.New("native: encoder is closed")
)

// Encoder is one loaded tokenizer.json.
type Encoder struct {
	// One token per running call. A call holds an operating system thread and
	// leaves scratch memory behind in it for good: sixteen texts of 1 MB at once
	// keep 1.9 GB, so no more run than there are processors.
	running chan struct{}

	mu     sync.RWMutex // held for reading while a call runs, for writing to close
	closed bool
	fast   *fast // nil when the reference does it all

	// The reference, loaded when first needed out of data.
	once sync.Once
	data []byte
	ref  *tokenizers.Tokenizer
	err  error

	file   *file
	around affixes
	memory int64
}

// affixes are the ids that a tokenizer puts around every text when asked for
// special tokens.
type affixes struct {
	prefix, suffix []uint32
	known          bool
}

// Load reads a tokenizer.json. Sections of it that would cut or pad what is
// encoded are ignored, as engines ignore them. Loading takes 0.3 to 1.5 s and
// 60 to 300 MB for the vocabularies of current models. Errors name the path.
//
// The file is trusted like a program: the library answers most damage with an
// error, but ends the process on some (a BPE model whose merges contradict its
// continuing_subword_prefix, an unknown name that holds NUL).
//
// The fast engine is loaded where it can be used, and the reference then only
// when a text needs it, which makes that text wait.
func Load(path string) (*Encoder, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("native: %w", err)
	}
	e, err := open(data)
	if err != nil {
		return nil, fmt.Errorf("native: %s: %w", path, err)
	}
	return e, nil
}

func open(data []byte) (*Encoder, error) {
	data, err := unbounded(data)
	if err != nil {
		return nil, err
	}
	parsed, err := parseFile(data)
	if err != nil {
		return nil, err
	}
	e := &Encoder{file: parsed, data: data, running: make(chan struct{}, runtime.GOMAXPROCS(0))}
	before := resident()
	if parsed.byteLevel() {
		// What it refuses, the reference may well read.
		e.fast, _ = loadFast(data)
	}
	if e.fast == nil {
		if _, err := e.reference(); err != nil {
			return nil, err
		}
	}
	e.memory = max(0, resident()-before)
	e.around = e.findAffixes()
	return e, nil
}

// reference returns the reference, loading it at the first call.
func (e *Encoder) reference() (*tokenizers.Tokenizer, error) {
	e.once.Do(func() {
		e.ref, e.err = tokenizers.FromBytes(e.data)
		e.data = nil
	})
	return e.ref, e.err
}

// findAffixes compares a few texts with and without special tokens.
func (e *Encoder) findAffixes() affixes {
	var a affixes
	for i, text := range [...]string{"a", "", "b c"} {
		bare, err := e.encode(nil, text, false)
		if err != nil {
			return affixes{}
		}
		whole, err := e.encode(nil, text, true)
		if err != nil || len(whole) < len(bare) {
			return affixes{}
		}
		if i == 0 {
			at := 0
			for at+len(bare) < len(whole) && !slices.Equal(whole[at:at+len(bare)], bare) {
				at++
			}
			a = affixes{prefix: whole[:at:at], suffix: whole[at+len(bare):], known: true}
		}
		if !slices.Equal(whole, slices.Concat(a.prefix, bare, a.suffix)) {
			return affixes{}
		}
	}
	return a
}

// Affixes returns the ids that the tokenizer puts before and behind a text when
// it is asked for special tokens. They are not known for a tokenizer that does
// something else.
func (e *Encoder) Affixes() (prefix, suffix []uint32, known bool) {
	return e.around.prefix, e.around.suffix, e.around.known
}

// AddedTokens returns the tokenizer's added tokens, in no order. They must not be
// changed.
func (e *Encoder) AddedTokens() []AddedToken { return e.file.AddedTokens }

// Normalizes reports whether the tokenizer changes text before it encodes it.
func (e *Encoder) Normalizes() bool { return e.file.normalizes() }

// Fast reports whether the fast engine is in use.
func (e *Encoder) Fast() bool { return e.fast != nil }

// Memory is by how many bytes the process grew while the tokenizer was loaded,
// 0 where the system does not tell. Loads at the same time count for each other.
func (e *Encoder) Memory() int64 { return e.memory }

// Append appends the ids of text to dst. addSpecial adds what the tokenizer puts
// around a text of its own accord (a BOS token, for some); added tokens written
// in the text are recognised either way. Invalid UTF-8 is read as U+FFFD, one
// for each maximal invalid part: what Python's errors="replace" does, and not
// what a conversion to runes does.
//
// On an error, which is ErrNUL, ErrTooLong, ErrClosed or a failure inside the
// library, dst is returned as it came. Append waits while as many calls run as
// there were processors when the tokenizer was loaded; it answers the error of
// ctx when that ends first, so that work nobody waits for is never begun.
func (e *Encoder) Append(ctx context.Context, dst []uint32, text string, addSpecial bool) ([]uint32, error) {
	if len(text) > MaxText {
		return dst, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLong, len(text), MaxText)
	}
	select {
	case e.running <- struct{}{}:
	case <-ctx.Done():
		return dst, fmt.Errorf("native: %w", ctx.Err())
	}
	defer func() { <-e.running }()
	if err := ctx.Err(); err != nil { // both came true
		return dst, fmt.Errorf("native: %w", err)
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed {
		return dst, ErrClosed
	}
	if addSpecial && e.around.known {
		before := len(dst)
		out, err := e.encode(append(dst, e.around.prefix...), text, false)
		if err != nil {
			return dst[:before], err
		}
		return append(out, e.around.suffix...), nil
	}
	return e.encode(dst, text, addSpecial)
}

// encode is Append inside its guards.
func (e *Encoder) encode(dst []uint32, text string, special bool) ([]uint32, error) {
	if e.fast != nil && settled(text) {
		if ids, ok := e.fast.append(dst, text, special); ok {
			return ids, nil
		}
	}
	if strings.IndexByte(text, 0) >= 0 {
		return dst, ErrNUL
	}
	ref, err := e.reference()
	if err != nil {
		return dst, fmt.Errorf("native: %w", err)
	}
	enc, err := ref.EncodeWithOptionsErr(text, special)
	if err != nil {
		return dst, fmt.Errorf("native: %w", err)
	}
	return append(dst, enc.IDs...), nil
}

// Close frees the tokenizer once the calls now running have returned; later
// calls answer ErrClosed. Closing twice is harmless.
func (e *Encoder) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	if e.fast != nil {
		e.fast.free()
	}
	e.once.Do(func() {}) // nothing is loaded any more
	if e.ref != nil {
		_ = e.ref.Close() // never an error: it frees
	}
	e.data = nil
}
