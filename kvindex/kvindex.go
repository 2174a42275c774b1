// Package kvindex knows which endpoints hold which KV-cache blocks.
//
// Engines report blocks as they store and evict them; Match answers how many
// leading blocks of a prompt each endpoint already has. All methods may be
// called at once from many goroutines. The index does no I/O, keeps no clock
// and never logs.
package kvindex

// BlockHash identifies one full block of tokens together with everything
// before it and the namespace it was computed in. Equal hashes mean the same
// KV cache. It is our own key, computed from token ids; it has nothing to do
// with the hashes engines use among themselves.
type BlockHash uint64

// EndpointID names one endpoint, that is one address and data-parallel rank.
// IDs are small and dense so that they index slices; the ID of a removed
// endpoint is used again.
type EndpointID uint16

// Namespace separates prompts that never share KV cache although their tokens
// are equal. The zero value is the base model of an unnamed model.
type Namespace struct {
	Model   string // base model, the same text for every endpoint that serves it
	Adapter string // LoRA adapter name; empty for the base model
	Salt    string // the request's cache_salt; empty for none
}
