package stack

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecisions(t *testing.T) {
	const exposition = `# HELP warmroute_decisions_total Picks, by model and the one reason that decided.
# TYPE warmroute_decisions_total counter
warmroute_decisions_total{model="tiny",reason="no_index"} 4
warmroute_decisions_total{model="tiny",reason="prefix"} 1e+06
warmroute_decisions_total{model="other, \"quoted\"",reason="prefix"} 2
warmroute_requests_total{outcome="picked"} 1000006
`
	got, err := decisions([]byte(exposition))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"no_index": 4, "prefix": 1000002}, got); diff != "" {
		t.Error(diff)
	}
}
