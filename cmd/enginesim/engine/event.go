package engine

// Event is what the prefix cache announces: Stored, Removed or Cleared.
//
//sumtype:decl
type Event interface{ event() }

// Stored says that a run of blocks became reusable.
type Stored struct {
	Hashes    []Hash
	Parent    *Hash    // nil when the run starts at token 0
	Tokens    []uint32 // of the whole run
	BlockSize int
	Adapter   Adapter
	ExtraKeys [][]string // one entry per block; nil where a block has none
}

// Removed says that one physical copy of each block was given up.
type Removed struct{ Hashes []Hash }

// Cleared says that the prefix cache was reset.
type Cleared struct{}

func (Stored) event()  {}
func (Removed) event() {}
func (Cleared) event() {}
