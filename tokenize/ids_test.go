package tokenize

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAppendIDs(t *testing.T) {
	for name, c := range map[string]struct {
		raw  string
		want []uint32 // nil: refused
	}{
		"some":                    {`[1,2,3]`, []uint32{9, 1, 2, 3}},
		"none":                    {`[]`, []uint32{9}},
		"blanks":                  {"[ 1 ,\n2\t, 3 ]", []uint32{9, 1, 2, 3}},
		"zero":                    {`[0]`, []uint32{9, 0}},
		"the largest":             {`[4294967295]`, []uint32{9, 4294967295}},
		"more than the largest":   {`[4294967296]`, nil},
		"beyond 64 bits":          {`[99999999999999999999999]`, nil},
		"negative":                {`[-1]`, nil},
		"a fraction":              {`[1.5]`, nil},
		"an exponent":             {`[1e3]`, nil},
		"a leading zero":          {`[01]`, nil},
		"text":                    {`["1"]`, nil},
		"true":                    {`[true]`, nil},
		"null":                    {`[null]`, nil},
		"a comma before the end":  {`[1,]`, nil},
		"a comma at the start":    {`[,1]`, nil},
		"no end":                  {`[1,2`, nil},
		"nothing behind bracket":  {`[`, nil},
		"not an array":            {`1`, nil},
		"an array inside":         {`[1,[2]]`, nil},
		"an array of arrays only": {`[[1]]`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := appendIDs([]uint32{9}, []byte(c.raw))
			if c.want == nil {
				if reason := reasonOf(t, err); reason != reasonBadRequest {
					t.Errorf("ids %v, reason %q; want %q", got, reason, reasonBadRequest)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("error %v, ids (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestIDPromptsAllocateNothing(t *testing.T) {
	tok := newTokenizer(t, "")
	p := &Prompt{Kind: Completion, Body: []byte(`{"model":"m","prompt":[1,2,3,4,5,6,7,8],"max_tokens":1,"add_special_tokens":false}`)}
	dst := make([]uint32, 0, 16)
	n := testing.AllocsPerRun(100, func() {
		ids, err := tok.Append(context.Background(), dst, p)
		if err != nil || len(ids) != 8 {
			t.Fatal(ids, err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestTruncationKeepsTheRightEnd(t *testing.T) {
	for name, c := range map[string]struct {
		cut  truncation
		want []uint32
	}{
		"not asked for":        {truncation{}, []uint32{9, 1, 2, 3}},
		"long enough":          {truncation{set: true, keep: 3}, []uint32{9, 1, 2, 3}},
		"the last ones":        {truncation{set: true, keep: 2}, []uint32{9, 2, 3}},
		"the last ones, named": {truncation{set: true, keep: 1, side: "left"}, []uint32{9, 3}},
		"the first ones":       {truncation{set: true, keep: 1, side: "right"}, []uint32{9, 1}},
		"nothing":              {truncation{set: true}, []uint32{9}},
	} {
		if diff := cmp.Diff(c.want, c.cut.apply([]uint32{9, 1, 2, 3}, 1)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
