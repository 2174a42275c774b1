package tokenize

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFields(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want []string // name=value of the members a request has
		err  error
	}{
		"nothing":                         {`{}`, nil, nil},
		"blanks everywhere":               {" \n{ \"prompt\" :\t[ 1 , 2 ] ,\r\"echo\": true } ", []string{`prompt=[ 1 , 2 ]`, `echo=true`}, nil},
		"other members are passed over":   {`{"x":{"prompt":[{"a":"]}"}]},"prompt":"p"}`, []string{`prompt="p"`}, nil},
		"quotes and backslashes":          {`{"prompt":"a\\\"b\\\\","echo":1}`, []string{`prompt="a\\\"b\\\\"`, `echo=1`}, nil},
		"a name with an escape":           {`{"pr\u006fmpt":"p"}`, []string{`prompt="p"`}, nil},
		"a name that is no text":          {`{"\ud83d":"p","echo":0}`, []string{`echo=0`}, nil},
		"both of two equal names":         {`{"echo":1,"echo":2}`, []string{`echo=1`, `echo=2`}, nil},
		"a byte order mark":               {"\xef\xbb\xbf{\"echo\":1}", []string{`echo=1`}, nil},
		"NaN":                             {`{"temperature":NaN,"echo":1}`, []string{`echo=1`}, nil},
		"an array":                        {`[]`, nil, errNotObject},
		"nothing at all":                  {``, nil, errNotObject},
		"no end":                          {`{"echo":1`, []string{`echo=1`}, errJSON},
		"no value":                        {`{"echo":}`, nil, errJSON},
		"no colon":                        {`{"echo" 1}`, nil, errJSON},
		"no comma":                        {`{"echo":1 "prompt":2}`, []string{`echo=1`}, errJSON},
		"a comma before the end":          {`{"echo":1,}`, []string{`echo=1`}, errJSON},
		"text behind the end":             {`{"echo":1} x`, []string{`echo=1`}, errJSON},
		"a string without end":            {`{"echo":"a`, nil, errJSON},
		"a string that ends in backslash": {`{"echo":"a\"`, nil, errJSON},
		"an array without end":            {`{"echo":[1,[2]`, nil, errJSON},
		"a bracket too many":              {`{"echo":]}`, nil, errJSON},
		"deep nesting":                    {`{"echo":` + strings.Repeat("[", 1e5) + strings.Repeat("]", 1e5) + `}`, []string{"echo=" + strings.Repeat("[", 1e5) + strings.Repeat("]", 1e5)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFields([]byte(c.body))
			var got []string
			for f.next() {
				if f.key != "" {
					got = append(got, f.key+"="+string(f.value))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("members (-want +got):\n%.2000s", diff)
			}
			if !errors.Is(f.err, c.err) {
				t.Errorf("error %v, want %v", f.err, c.err)
			}
		})
	}
}

// TestFieldsInOnePass walks more members than would end in time if each of
// them looked at the rest of the body.
func TestFieldsInOnePass(t *testing.T) {
	const members = 1 << 21
	for _, value := range []string{`1`, `"a"`, `{}`, `[1]`, `["a"]`, `null`} {
		t.Run(value, func(t *testing.T) {
			f := newFields([]byte(`{` + strings.Repeat(`"x":`+value+`,`, members-1) + `"x":` + value + `}`))
			got := 0
			for f.next() {
				got++
			}
			if got != members || f.err != nil {
				t.Errorf("%d members, error %v; want %d", got, f.err, members)
			}
		})
	}
}
