package tokenize

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestModelsKeepEachModelsTokenizer(t *testing.T) {
	m := NewModels()
	a, b := newTokenizer(t, "A"), newTokenizer(t, "B")
	m.Set("a", a)
	m.Set("b", b)
	m.Alias("alias", "a")
	m.Alias("adapter", "alias")
	m.Alias("b", "a")
	m.Alias("later", "c")
	body := []byte(`{"messages":[{"role":"user","content":"x"}]}`)
	for name, c := range map[string]struct {
		model string
		want  []uint32
	}{
		"a model":                         {"a", []uint32{'A'}},
		"another model":                   {"b", []uint32{'B'}},
		"an alias":                        {"alias", []uint32{'A'}},
		"an alias of an alias":            {"adapter", []uint32{'A'}},
		"a name nobody knows":             {"x", nil},
		"no name":                         {"", nil},
		"an alias whose model is to come": {"later", nil},
	} {
		t.Run(name, func(t *testing.T) {
			ids, err := m.Append(context.Background(), nil, c.model, &Prompt{Kind: Chat, Body: body})
			if diff := cmp.Diff(c.want, ids); diff != "" {
				t.Errorf("ids (-want +got):\n%s", diff)
			}
			if got := reasonOf(t, err); (got == reasonUnknownModel) != (c.want == nil) {
				t.Errorf("reason %q", got)
			}
		})
	}
	if diff := cmp.Diff([]string{"a", "adapter", "alias", "b"}, m.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}

	m.Set("a", b)
	if ids, err := m.Append(context.Background(), nil, "adapter", &Prompt{Kind: Chat, Body: body}); err != nil || !cmp.Equal(ids, []uint32{'B'}) {
		t.Errorf("after another tokenizer is set: %v, %v", ids, err)
	}
	m.Set("a", nil)
	if _, err := m.Append(context.Background(), nil, "adapter", &Prompt{Kind: Chat, Body: body}); reasonOf(t, err) != reasonUnknownModel {
		t.Errorf("after the model is forgotten: %v", err)
	}
}

func TestASingleModelIsNotEveryModel(t *testing.T) {
	m := NewModels()
	m.Set("a", newTokenizer(t, "A"))
	_, err := m.Append(context.Background(), nil, "b", &Prompt{Kind: Chat, Body: []byte(`{"messages":[{"role":"user","content":"x"}]}`)})
	if got := reasonOf(t, err); got != reasonUnknownModel {
		t.Errorf("reason %q, want %q", got, reasonUnknownModel)
	}
}

func TestModelsChangeWhileTheyAreRead(t *testing.T) {
	m := NewModels()
	m.Set("a", newTokenizer(t, "A"))
	p := &Prompt{Kind: Completion, Body: []byte(`{"prompt":[1,2]}`)}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 200 {
				if _, err := m.Append(context.Background(), nil, "a", p); err != nil {
					t.Error(err)
					return
				}
				if i%20 == g {
					m.Alias("alias-"+strconv.Itoa(i), "a")
				}
			}
		})
	}
	wg.Wait()
}
