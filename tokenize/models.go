package tokenize

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Models finds the Tokenizer of a model by the name requests use. All methods
// may be called at once from many goroutines; looking up takes no lock.
type Models struct {
	mu    sync.Mutex // held by writers
	names atomic.Pointer[names]
}

// names is immutable once published.
type names struct {
	tokenizers map[string]*Tokenizer
	aliases    map[string]string // to a name of tokenizers, which may come later
}

// NewModels returns an empty set.
func NewModels() *Models {
	m := &Models{}
	m.names.Store(&names{})
	return m
}

// Set makes t the tokenizer of name, and of the aliases of name. It does not
// close the one it replaces, which calls may still be using. A nil t forgets
// name.
func (m *Models) Set(name string, t *Tokenizer) {
	m.change(func(n *names) {
		delete(n.aliases, name)
		if t == nil {
			delete(n.tokenizers, name)
			return
		}
		n.tokenizers[name] = t
	})
}

// Alias makes requests for name use the tokenizer of the model named of: a
// second served name, or an adapter, which shares its base model's tokenizer.
// It follows what is Set for of later on. A name that has a tokenizer of its own
// keeps that one.
func (m *Models) Alias(name, of string) {
	m.change(func(n *names) {
		if target, ok := n.aliases[of]; ok {
			of = target
		}
		if name != of {
			n.aliases[name] = of
		}
	})
}

func (m *Models) change(edit func(*names)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.names.Load()
	n := &names{tokenizers: maps.Clone(old.tokenizers), aliases: maps.Clone(old.aliases)}
	if n.tokenizers == nil {
		n.tokenizers = map[string]*Tokenizer{}
	}
	if n.aliases == nil {
		n.aliases = map[string]string{}
	}
	edit(n)
	m.names.Store(n)
}

// Names returns the names that can be tokenized for, aliases included, sorted.
func (m *Models) Names() []string {
	n := m.names.Load()
	all := slices.Collect(maps.Keys(n.tokenizers))
	for alias, of := range n.aliases {
		if n.tokenizers[alias] == nil && n.tokenizers[of] != nil {
			all = append(all, alias)
		}
	}
	slices.Sort(all)
	return all
}

// Append is Tokenizer.Append for the named model. A model that is not known is
// an *Error too: another model's tokens would be wrong without a word.
func (m *Models) Append(ctx context.Context, dst []uint32, model string, p *Prompt) ([]uint32, error) {
	n := m.names.Load()
	t := n.tokenizers[model]
	if t == nil {
		t = n.tokenizers[n.aliases[model]]
	}
	if t == nil {
		return dst, &Error{Reason: reasonUnknownModel}
	}
	return t.Append(ctx, dst, p)
}
