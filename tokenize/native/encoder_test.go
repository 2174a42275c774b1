package native

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const tiny = "../../examples/models/tiny/tokenizer.json"

// vector is one line of a file in testdata.
type vector struct {
	Tokenizer  string   `json:"tokenizer"`
	Text       string   `json:"text"`
	Hex        string   `json:"hex"`
	AddSpecial bool     `json:"add_special_tokens"`
	IDs        []uint32 `json:"ids"`
}

func readVectors(t *testing.T, name string) []vector {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var vs []vector
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatalf("%s, line %d: %v", name, len(vs)+1, err)
		}
		if v.Hex != "" {
			text, err := hex.DecodeString(v.Hex)
			if err != nil {
				t.Fatalf("%s, line %d: %v", name, len(vs)+1, err)
			}
			v.Text = string(text)
		}
		vs = append(vs, v)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return vs
}

func load(tb testing.TB, path string) *Encoder {
	tb.Helper()
	e, err := Load(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.Close)
	return e
}

func checkVector(t *testing.T, e *Encoder, v vector) {
	t.Helper()
	got, err := e.Append(context.Background(), nil, v.Text, v.AddSpecial)
	if strings.ContainsRune(v.Text, 0) && !e.Fast() {
		if !errors.Is(err, ErrNUL) {
			t.Errorf("Append(%q) = %v, %v, want ErrNUL", v.Text, got, err)
		}
		return
	}
	if err != nil {
		t.Errorf("Append(%q): %v", v.Text, err)
	} else if diff := cmp.Diff(append([]uint32{}, got...), v.IDs); diff != "" {
		t.Errorf("Append(%q, %v) differs from Python (-got +want):\n%s", v.Text, v.AddSpecial, diff)
	}
}

func TestAppendAgainstPython(t *testing.T) {
	e := load(t, tiny)
	for _, v := range readVectors(t, "tiny.jsonl") {
		checkVector(t, e, v)
	}
}

func TestAppendAgainstPythonOnPublishedTokenizers(t *testing.T) {
	byTokenizer := map[string][]vector{}
	for _, v := range readVectors(t, "encode.jsonl") {
		byTokenizer[v.Tokenizer] = append(byTokenizer[v.Tokenizer], v)
	}
	for name, vs := range byTokenizer {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("../../.build/tokenizers", name, "tokenizer.json")
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				t.Skipf("NOT TESTED: %d vectors of %s: its tokenizer is not here; run `make tokenizers`", len(vs), name)
			}
			e := load(t, path)
			for _, v := range vs {
				checkVector(t, e, v)
			}
		})
	}
}

// The tokenizer inside a conversation: the text is what the chat template made.
func TestAppendAgainstPythonOnConversations(t *testing.T) {
	e := load(t, tiny)
	data, err := os.ReadFile("../../examples/models/tiny/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var v vector
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		if v.IDs != nil {
			checkVector(t, e, v)
		}
	}
}

func TestAppendKeepsWhatIsInDst(t *testing.T) {
	e := load(t, tiny)
	alone, err := e.Append(context.Background(), nil, "a warm route", false)
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.Append(context.Background(), []uint32{7, 8}, "a warm route", false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, append([]uint32{7, 8}, alone...)); diff != "" {
		t.Errorf("Append to two ids (-got +want):\n%s", diff)
	}
}

func TestAppendErrorsLeaveDstAlone(t *testing.T) {
	e := load(t, tiny)
	reference := referenceOf(t, tiny)
	closed := load(t, tiny)
	closed.Close()
	tests := []struct {
		name string
		e    *Encoder
		text string
		want error
	}{
		{"NUL in the middle", reference, "before\x00after", ErrNUL},
		{"NUL at the end", reference, "before\x00", ErrNUL},
		{"NUL at the end of the longest text", reference, strings.Repeat("a", MaxText-1) + "\x00", ErrNUL},
		{"one byte over the limit", e, strings.Repeat("a", MaxText+1), ErrTooLong},
		{"closed", closed, "text", ErrClosed},
		{"closed, nothing to encode", closed, "", ErrClosed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.e.Append(context.Background(), []uint32{7}, tt.text, false)
			if !errors.Is(err, tt.want) {
				t.Errorf("Append: %v, want %v", err, tt.want)
			}
			if diff := cmp.Diff(got, []uint32{7}); diff != "" {
				t.Errorf("dst (-got +want):\n%s", diff)
			}
		})
	}
}

// Calls that run while Close is called end well, whichever side they fall on.
func TestCloseWhileCallsRun(t *testing.T) {
	e := load(t, tiny)
	text := strings.Repeat("the scheduler asks the index. ", 200)
	want, err := e.Append(context.Background(), nil, text, false)
	if err != nil {
		t.Fatal(err)
	}
	var started, ended sync.WaitGroup
	for range 16 {
		started.Add(1)
		ended.Go(func() {
			for i := 0; ; i++ {
				got, err := e.Append(context.Background(), nil, text, false)
				if i == 0 {
					started.Done()
				}
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil || !cmp.Equal(got, want) {
					t.Errorf("Append during Close: %d ids, %v, want %d", len(got), err, len(want))
					return
				}
			}
		})
	}
	started.Wait()
	e.Close()
	e.Close()
	ended.Wait()
}

// What nobody waits for any more is not encoded: neither when it is left while
// it waits for its turn, nor when its turn comes later.
func TestAppendGivesUpWithItsContext(t *testing.T) {
	e := load(t, tiny)
	turns := cap(e.running)
	for range turns { // as many calls as may run
		e.running <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := e.Append(ctx, nil, "a warm route", false)
		failed <- err
	}()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("while it waits: got %v, want %v", err, context.Canceled)
	}
	for range turns {
		<-e.running
	}
	for range 20 { // a free turn and the end of ctx race
		if got, err := e.Append(ctx, []uint32{7}, "a warm route", false); !errors.Is(err, context.Canceled) || len(got) != 1 {
			t.Fatalf("with a turn: got %v, %v, want dst as it came and %v", got, err, context.Canceled)
		}
	}
	if len(e.running) != 0 {
		t.Errorf("%d turns are still taken", len(e.running))
	}
}
