// Package native encodes text with Hugging Face's own tokenizer library.
//
// It is the exact reference inside the program: an Encoder answers, id for id,
// what the Python package tokenizers answers for the same tokenizer.json. It
// wraps github.com/daulet/tokenizers, whose Rust half is built by `make native`,
// and guards what that package leaves to its caller: NUL, closing while calls
// run, and how many calls run at once. All methods may be called at once from
// many goroutines.
package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
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
	// ErrNUL: the text holds U+0000. The library takes C strings, which end there,
	// so that everything behind it would be lost.
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

	mu  sync.RWMutex // held for reading while a call runs, for writing to close
	tok *tokenizers.Tokenizer
}

// Load reads a tokenizer.json. Sections of it that would cut or pad what is
// encoded are ignored, as engines ignore them. Loading takes 0.3 to 1.5 s and
// 60 to 300 MB for the vocabularies of current models. Errors name the path.
//
// The file is trusted like a program: the library answers most damage with an
// error, but ends the process on some (a BPE model whose merges contradict its
// continuing_subword_prefix, an unknown name that holds NUL).
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
	tok, err := tokenizers.FromBytes(data)
	if err != nil {
		return nil, err
	}
	return &Encoder{tok: tok, running: make(chan struct{}, runtime.GOMAXPROCS(0))}, nil
}

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
	if strings.IndexByte(text, 0) >= 0 {
		return dst, ErrNUL
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
	if e.tok == nil {
		return dst, ErrClosed
	}
	enc, err := e.tok.EncodeWithOptionsErr(text, addSpecial)
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
	if e.tok == nil {
		return
	}
	_ = e.tok.Close() // never an error: it frees
	e.tok = nil
}
