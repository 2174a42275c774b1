package engine

import "testing"

// Vectors of vLLM 0.32's sha256_cbor over blocks of four tokens, computed with
// its own functions.
func TestHashesAreThoseOfVLLM(t *testing.T) {
	first, second := []uint32{1, 2, 3, 4}, []uint32{5, 6, 7, 8}
	cases := []struct {
		name  string
		seed  string
		r     Request
		plain bool
		want  []uint64
	}{
		{"seed 0, two blocks", "0", Request{Tokens: append(first, second...)}, false, []uint64{2164874634404590027, 17270480062156288726}},
		{"no seed given", DefaultHashSeed, Request{Tokens: first}, false, []uint64{9561501211280363793}},
		{"adapter, tagged with its path", "0", Request{Tokens: first, Adapter: Adapter{1, "adapter-a", "/adapters/a"}}, false, []uint64{13931045051795895434}},
		{"salt, tagged", "0", Request{Tokens: first, Salt: "salt-x"}, false, []uint64{8374766493687498096}},
		{"adapter before 0.31", "0", Request{Tokens: first, Adapter: Adapter{1, "adapter-a", "/adapters/a"}}, true, []uint64{3096167906432015041}},
		{"salt before 0.31", "0", Request{Tokens: first, Salt: "salt-x"}, true, []uint64{18128322035177423039}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e, err := New(Config{
				BlockSize: 4, Blocks: 8, MaxModelLen: 28, MaxRunning: 1, TokenBudget: 64, PrefillRate: 1,
				HashSeed: c.seed, V023: c.plain,
			})
			if err != nil {
				t.Fatal(err)
			}
			e.extendHashes(&c.r)
			if len(c.r.hashes) != len(c.want) {
				t.Fatalf("got %d hashes, want %d", len(c.r.hashes), len(c.want))
			}
			for i, h := range c.r.hashes {
				if h.Wire() != c.want[i] {
					t.Errorf("block %d: got %d, want %d", i, h.Wire(), c.want[i])
				}
			}
		})
	}
}
