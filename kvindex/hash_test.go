package kvindex

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHashesAreXXH3OfTheDocumentedBytes(t *testing.T) {
	data, err := os.ReadFile("testdata/hashes.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			Name, Model, Adapter, Salt, Root string
			BlockSize                        int `json:"block_size"`
			Tokens                           []uint32
			Hashes                           []string
		}
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	for _, tt := range golden.Cases {
		t.Run(tt.Name, func(t *testing.T) {
			root := Namespace{Model: tt.Model, Adapter: tt.Adapter, Salt: tt.Salt}.Root(tt.BlockSize)
			if got := fmt.Sprintf("%016x", uint64(root)); got != tt.Root {
				t.Errorf("root is %s, want %s", got, tt.Root)
			}
			got := []string{}
			for _, h := range AppendHashes(nil, root, tt.Tokens, tt.BlockSize) {
				got = append(got, fmt.Sprintf("%016x", uint64(h)))
			}
			if diff := cmp.Diff(got, tt.Hashes); diff != "" {
				t.Errorf("hashes (-got +want):\n%s", diff)
			}
		})
	}
}

func TestNamespacesNeverShareAHash(t *testing.T) {
	seen := make(map[BlockHash]string)
	for _, model := range []string{"", "a", "ab"} {
		for _, adapter := range []string{"", "a", "b", "ab"} {
			for _, salt := range []string{"", "a", "b"} {
				for _, size := range []int{0, 1, 16, 32} {
					name := fmt.Sprintf("%q %q %q %d", model, adapter, salt, size)
					h := Namespace{model, adapter, salt}.Root(size)
					if other, ok := seen[h]; ok {
						t.Errorf("%s has the root of %s", name, other)
					}
					seen[h] = name
				}
			}
		}
	}
}

func TestAppendHashesWithoutBlockSize(t *testing.T) {
	for _, size := range []int{0, -1} {
		if got := AppendHashes(nil, 1, make([]uint32, 32), size); got != nil {
			t.Errorf("block size %d: got %v, want none", size, got)
		}
	}
}

func TestAppendHashesAllocatesNothing(t *testing.T) {
	for _, size := range []int{1, 16, 128, 1056} {
		tokens := make([]uint32, 4224)
		dst := make([]BlockHash, 0, len(tokens))
		if n := testing.AllocsPerRun(20, func() { dst = AppendHashes(dst[:0], 1, tokens, size) }); n != 0 {
			t.Errorf("block size %d: %v allocations, want 0", size, n)
		}
	}
}

func BenchmarkAppendHashes(b *testing.B) {
	for _, size := range []int{16, 32, 128} {
		b.Run("tokens=4096/block="+strconv.Itoa(size), func(b *testing.B) {
			tokens := make([]uint32, 4096)
			dst := make([]BlockHash, 0, len(tokens))
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendHashes(dst[:0], 1, tokens, size)
			}
		})
	}
}
