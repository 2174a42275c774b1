package jinja

import (
	"fmt"
	"sync"
	"testing"
)

func TestTemplateRendersFromManyGoroutines(t *testing.T) {
	tmpl, err := Parse(`{% macro f(x, k='v') %}<{{ x }}{{ k }}>{% endmacro %}
{%- set ns = namespace(n=0) -%}
{%- for m in messages -%}
{%- set ns.n = ns.n + loop.index * id -%}
{{ f(m.role) }}{{ m | tojson }}{{ loop.previtem.role if loop.previtem is defined }}{{ id }}
{%- endfor -%}
{{ ns.n }}{{ messages | map(attribute='role') | join(',') }}`)
	if err != nil {
		t.Fatal(err)
	}
	shared, _ := microContext(t).Get("messages")
	render := func(id int) string {
		vars := NewDict(2)
		vars.Set("messages", shared)
		vars.Set("id", Int(int64(id)))
		out, err := tmpl.Render(nil, vars, Options{})
		if err != nil {
			return err.Error()
		}
		return string(out)
	}
	const goroutines, rounds = 8, 50
	want := make([]string, goroutines)
	for id := range want {
		want[id] = render(id)
	}
	var wg sync.WaitGroup
	failed := make(chan string, goroutines)
	for id := range goroutines {
		wg.Go(func() {
			for range rounds {
				if got := render(id); got != want[id] {
					failed <- fmt.Sprintf("goroutine %d rendered %q, want %q", id, got, want[id])
					return
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	for msg := range failed {
		t.Error(msg)
	}
}
