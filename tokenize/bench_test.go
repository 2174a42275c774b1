package tokenize

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// chatBody returns a conversation with tools of about n bytes.
func chatBody(n int) []byte {
	const sentence = "The river rises in spring, when the snow melts, and people move their boats to the upper landing. "
	var b strings.Builder
	b.WriteString(`{"model":"m","messages":[{"role":"system","content":"You are helpful."}`)
	for turn := 0; b.Len() < n-600; turn++ {
		size := min(n/8, 4000, n-600-b.Len())
		text := strings.Repeat(sentence, max(size/len(sentence), 1))
		role := "user"
		if turn%2 == 1 {
			role = "assistant"
		}
		fmt.Fprintf(&b, `,{"role":%q,"content":%q}`, role, text)
	}
	b.WriteString(`,{"role":"user","content":"And then?"}],"tools":[{"type":"function","function":{"name":"level",` +
		`"description":"Level of a river","parameters":{"type":"object","properties":{"river":{"type":"string"}},"required":["river"]}}}],` +
		`"temperature":0.7,"stream":true}`)
	return []byte(b.String())
}

var benchSizes = []struct {
	name string
	size int
}{{"2KB", 2 << 10}, {"32KB", 32 << 10}, {"400KB", 400 << 10}}

// BenchmarkAppend is a request from body to ids, with the encoder alone on the
// same text as the baseline, and without an encoder for the rest.
func BenchmarkAppend(b *testing.B) {
	full := tinyModel(b, Config{})
	rest := tinyModel(b, Config{})
	rest.enc.Close()
	rest.enc = nothing{}
	for _, s := range benchSizes {
		body := chatBody(s.size)
		p := &Prompt{Kind: Chat, Body: body}
		text, err := full.Render(p)
		if err != nil {
			b.Fatal(err)
		}
		ids := make([]uint32, 0, len(body))
		b.Run("body="+s.name+"/work=all", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := full.Append(context.Background(), ids, p); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("body="+s.name+"/work=all-but-encode", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := rest.Append(context.Background(), ids, p); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("body="+s.name+"/work=encode", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := full.enc.Append(context.Background(), ids, text, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// nothing is an encoder without ids.
type nothing struct{}

func (nothing) Append(_ context.Context, dst []uint32, _ string, _ bool) ([]uint32, error) {
	return dst, nil
}
func (nothing) Close() {}

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
