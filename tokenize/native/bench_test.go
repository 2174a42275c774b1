package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// conversation is English and code in ChatML turns, size bytes long.
func conversation(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "<|im_start|>user\nWhy did worker %d restart at %02d:%02d, and which of its %d blocks were still cached?<|im_end|>\n", i, i%24, i*7%60, i*i%977)
		fmt.Fprintf(&b, "<|im_start|>assistant\nIt ran out of memory: the batch held %d sequences. Compare:\n\n```go\nfor _, b := range blocks[%d:] {\n\tif !cache.Has(b.Hash) {\n\t\treturn b.Index\n\t}\n}\n```<|im_end|>\n", i*31%512, i)
	}
	return b.String()[:size]
}

func BenchmarkAppend(b *testing.B) {
	for _, tok := range []struct{ name, path string }{
		{"tiny", tiny},
		{"qwen3", published("qwen3")},
		{"llama3_1", published("llama3_1")},
	} {
		for _, engine := range []string{"fast", "reference"} {
			for _, size := range []int{2 << 10, 32 << 10, 400 << 10} {
				b.Run(fmt.Sprintf("tokenizer=%s/engine=%s/bytes=%d", tok.name, engine, size), func(b *testing.B) {
					if _, err := os.Stat(tok.path); errors.Is(err, fs.ErrNotExist) {
						b.Skipf("NOT MEASURED: %s is not here; run `make tokenizers`", tok.path)
					}
					e := load(b, tok.path)
					if engine == "reference" {
						e = referenceOf(b, tok.path)
					}
					text := conversation(size)
					var ids []uint32
					b.ReportAllocs()
					b.SetBytes(int64(size))
					for b.Loop() {
						var err error
						if ids, err = e.Append(context.Background(), ids[:0], text, false); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)), "ns/token")
				})
			}
		}
	}
}
