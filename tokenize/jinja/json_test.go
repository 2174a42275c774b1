package jinja

import (
	"strings"
	"testing"
)

func TestDecodeJSON(t *testing.T) {
	v, err := DecodeJSON([]byte(` {"b":1,"a":[1.0,-0,12345678901234567890123,true,null],"b":"é\u00e9\ud83d\ude00\n"} `))
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for k := range v.Dict().All() {
		keys = append(keys, k)
	}
	if got := strings.Join(keys, ","); got != "b,a" {
		t.Errorf("keys = %s, want b,a", got)
	}
	b, _ := v.Dict().Get("b")
	if got, want := b.Str(), "éé😀\n"; got != want {
		t.Errorf("b = %q, want %q", got, want)
	}
	a, _ := v.Dict().Get("a")
	kinds := []Kind{KindFloat, KindInt, KindInt, KindBool, KindNone}
	for i, e := range a.List().All() {
		if e.Kind() != kinds[i] {
			t.Errorf("a[%d] has kind %d, want %d", i, e.Kind(), kinds[i])
		}
	}
}

func TestDecodeJSONRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":             "",
		"two documents":       "1 2",
		"lone surrogate":      `"\ud800"`,
		"surrogate then text": `"\ud800\u0041"`,
		"control character":   "\"a\nb\"",
		"leading zero":        "01",
		"trailing comma":      "[1,]",
		"bare minus":          "-",
		"invalid utf-8":       "\"\xff\"",
		"open string":         `"abc`,
		"open escape":         `"abc\`,
		"deep arrays":         strings.Repeat("[", 100000),
		"deep objects":        strings.Repeat(`{"a":`, 100000),
		"long integer":        strings.Repeat("9", 4301),
	} {
		t.Run(name, func(t *testing.T) {
			if v, err := DecodeJSON([]byte(text)); err == nil {
				t.Errorf("decoded to kind %d, want an error", v.Kind())
			}
		})
	}
}

func TestDictKeepsFirstPlaceAndLastValue(t *testing.T) {
	for _, n := range []int{3, 40} {
		d := NewDict(0)
		for i := range n {
			d.Set(strings.Repeat("k", i+1), Int(int64(i)))
		}
		d.Set("k", String("last"))
		d.Delete("kk")
		if v, ok := d.Get("k"); !ok || v.Str() != "last" {
			t.Errorf("%d keys: Get(k) = %q %v, want last", n, v.Str(), ok)
		}
		if _, ok := d.Get("kk"); ok || d.Len() != n-1 {
			t.Errorf("%d keys: kk still there, Len = %d", n, d.Len())
		}
		for k, v := range d.All() {
			if k != "k" || v.Str() != "last" {
				t.Errorf("%d keys: first = %s, want k", n, k)
			}
			break
		}
	}
}

func TestStringsEndAtEveryOffset(t *testing.T) {
	for n := range 40 {
		for _, fill := range []string{"a", "\x7f", "é", "\u00a2"} {
			text := strings.Repeat(fill, n)
			for _, tail := range []struct{ json, want string }{{"", ""}, {`\n`, "\n"}, {`\\b`, `\b`}} {
				v, err := DecodeJSON([]byte(`["` + text + tail.json + `","x"]`))
				if err != nil {
					t.Fatalf("%q after %d: %v", tail.json, n, err)
				}
				if got, want := v.List().At(0).Str(), text+tail.want; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			if _, err := DecodeJSON([]byte(`"` + text + "\x1f\"")); err == nil {
				t.Errorf("control character after %d bytes is not an error", len(text))
			}
		}
	}
}
