package kvindex

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBlockMapAgainstMap(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		var m blockMap
		want := make(map[uint64]uint8)
		hash := func() uint64 { return rnd.Uint64N(1+rnd.Uint64N(300)) << (rnd.Uint64N(3) * 20) }
		for range 2000 {
			switch h := hash(); rnd.IntN(5) {
			case 0, 1:
				n := uint8(1 + rnd.UintN(255))
				m.put(h, block{gpu: n})
				want[h] = n
			case 2, 3:
				m.remove(h)
				delete(want, h)
			default:
				if got := m.get(h).gpu; got != want[h] {
					t.Fatalf("seed %d: %x has %d copies, want %d", seed, h, got, want[h])
				}
			}
			if rnd.IntN(500) == 0 { // remove some while walking
				walked := make(map[uint64]bool)
				all := maps.Clone(want)
				for h := range m.all() {
					walked[h] = true
					if h%3 == 0 {
						m.remove(h)
						delete(want, h)
					}
				}
				for h := range all {
					if !walked[h] {
						t.Fatalf("seed %d: %x left out", seed, h)
					}
				}
			}
		}
		got := make(map[uint64]uint8)
		for h, b := range m.all() {
			got[h] = b.gpu
		}
		if diff := cmp.Diff(got, want); diff != "" || m.used != len(want) {
			t.Fatalf("seed %d: %d in use, want %d; blocks (-got +want):\n%s", seed, m.used, len(want), diff)
		}
	}
}
