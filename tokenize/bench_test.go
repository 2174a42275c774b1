package tokenize

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daulet/tokenizers"
)

// turnMark stands where each turn of a benchmark differs from the others.
const turnMark = "########"

// chatBody returns a conversation with tools of about n bytes, whose last answer
// and question hold turnMark.
func chatBody(n int) []byte {
	const sentence = "The river rises in spring, when the snow melts, and people move their boats to the upper landing. "
	var b strings.Builder
	b.WriteString(`{"model":"m","messages":[{"role":"system","content":"You are helpful."}`)
	turn := func(role, text string) { fmt.Fprintf(&b, `,{"role":%q,"content":%q}`, role, text) }
	roles := [...]string{"user", "assistant"}
	tail := min(n/8, 1000)
	for i := 0; b.Len() < n-700-2*tail || i%2 == 0; i++ {
		size := min(n/8, 4000, max(n-700-2*tail-b.Len(), 0))
		turn(roles[i%2], fmt.Sprintf("%d. ", i)+strings.Repeat(sentence, max(size/len(sentence), 1)))
	}
	turn("user", strings.Repeat(sentence, tail/len(sentence)))
	turn("assistant", turnMark+strings.Repeat(sentence, tail/len(sentence)))
	turn("user", "And then? "+turnMark)
	b.WriteString(`],"tools":[{"type":"function","function":{"name":"level",` +
		`"description":"Level of a river","parameters":{"type":"object","properties":{"river":{"type":"string"}},"required":["river"]}}}],` +
		`"temperature":0.7,"stream":true}`)
	return []byte(b.String())
}

// marked are the places of turnMark in a body.
type marked [][]byte

func marksOf(body []byte) marked {
	var m marked
	for rest := body; ; {
		at := bytes.Index(rest, []byte(turnMark))
		if at < 0 {
			return m
		}
		m = append(m, rest[at:at+len(turnMark)])
		rest = rest[at+len(turnMark):]
	}
}

// set makes another turn of the body, without allocating.
func (m marked) set(n int) {
	for _, place := range m {
		for i := range place {
			place[i] = byte('a' + n>>(4*i)&15)
		}
	}
}

// BenchmarkAppend is a request from body to ids: of a conversation never seen, of
// one that has been seen but for its last answer and question, and without an
// encoder. The baseline is daulet/tokenizers on the rendered text.
func BenchmarkAppend(b *testing.B) {
	ctx := context.Background()
	for _, model := range []struct{ name, dir string }{
		{"tiny", "../examples/models/tiny"},
		{"qwen3", "../.build/tokenizers/qwen3"},
		{"llama3_1", "../.build/tokenizers/llama3_1"},
	} {
		if _, err := os.Stat(model.dir); errors.Is(err, fs.ErrNotExist) {
			b.Logf("NOT MEASURED: %s is not here; run `make tokenizers`", model.dir)
			continue
		}
		cache := NewCache(64 << 20)
		tok, err := Load(Config{Dir: model.dir, Cache: cache})
		if err != nil {
			b.Fatal(err)
		}
		daulet, err := tokenizers.FromFile(filepath.Join(model.dir, "tokenizer.json"))
		if err != nil {
			b.Fatal(err)
		}
		encoder := tok.enc.(*cachedEncoder) //nolint:forcetypeassert // a cache was given
		for _, size := range []int{2, 32, 400} {
			body := chatBody(size << 10)
			marks := marksOf(body)
			p := &Prompt{Kind: Chat, Body: body}
			text, err := tok.Render(p)
			if err != nil {
				b.Fatal(err)
			}
			var ids []uint32
			for _, work := range []struct {
				name string
				do   func(turn int) error
			}{
				{"first-sight", func(int) error {
					encoder.cache = NewCache(64 << 20)
					ids, err = tok.Append(ctx, ids[:0], p)
					return err
				}},
				{"further-turn", func(turn int) error {
					encoder.cache = cache
					marks.set(turn)
					ids, err = tok.Append(ctx, ids[:0], p)
					return err
				}},
				{"all-but-encode", func(turn int) error {
					tok.enc = nothing{}
					marks.set(turn)
					ids, err = tok.Append(ctx, ids[:0], p)
					tok.enc = encoder
					return err
				}},
				{"daulet-encode", func(int) error {
					_, err := daulet.EncodeWithOptionsErr(text, false)
					return err
				}},
			} {
				b.Run(fmt.Sprintf("model=%s/body=%dKB/work=%s", model.name, size, work.name), func(b *testing.B) {
					b.ReportAllocs()
					b.SetBytes(int64(len(body)))
					turn := 0
					for b.Loop() {
						turn++
						if err := work.do(turn); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
		tok.Close()
		_ = daulet.Close()
	}
}

// nothing is an encoder without ids.
type nothing struct{}

func (nothing) Append(_ context.Context, dst []uint32, _ string, _ bool) ([]uint32, error) {
	return dst, nil
}
func (nothing) Fast() bool    { return true }
func (nothing) Memory() int64 { return 0 }
func (nothing) Close()        {}

// BenchmarkAppendIDs is a prompt of token ids.
func BenchmarkAppendIDs(b *testing.B) {
	for _, n := range []int{500, 8000, 100000} {
		body := []byte(`{"model":"m","prompt":[` + strings.TrimSuffix(strings.Repeat("151644,", n), ",") + `],"max_tokens":1}`)
		p := &Prompt{Kind: Completion, Body: body}
		tok := newTokenizer(b, "")
		ids := make([]uint32, 0, n)
		b.Run(fmt.Sprintf("ids=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := tok.Append(context.Background(), ids, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
