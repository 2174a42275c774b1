package scheduler

import (
	"math"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/warmroute/kvindex"
)

func specs(addrs ...string) []Spec {
	var out []Spec
	for _, a := range addrs {
		out = append(out, Spec{Addr: netip.MustParseAddrPort(a), Rank: -1})
	}
	return out
}

func names(eps []*Endpoint) map[string]kvindex.EndpointID {
	out := map[string]kvindex.EndpointID{}
	for _, e := range eps {
		out[e.Spec().String()] = e.ID
	}
	return out
}

// The steps of one pool; the numbers of the invariants are those on Pool.
func TestPoolSet(t *testing.T) {
	p := NewPool()
	for _, step := range []struct {
		name           string
		specs          []Spec
		added, removed map[string]kvindex.EndpointID
	}{
		{
			"a spec named twice counts once (1)",
			specs("10.0.0.1:1", "10.0.0.2:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"),
			map[string]kvindex.EndpointID{"10.0.0.1:1": 0, "10.0.0.2:1": 1},
			map[string]kvindex.EndpointID{},
		},
		{
			"a released ID is not given away by the same Set (2)",
			specs("10.0.0.2:1", "10.0.0.3:1"),
			map[string]kvindex.EndpointID{"10.0.0.3:1": 2},
			map[string]kvindex.EndpointID{"10.0.0.1:1": 0},
		},
		{
			"the smallest free ID is used again, ranks are endpoints of their own",
			append(specs("10.0.0.2:1", "10.0.0.3:1"), Spec{netip.MustParseAddrPort("10.0.0.4:1"), 0}, Spec{netip.MustParseAddrPort("10.0.0.4:1"), 1}),
			map[string]kvindex.EndpointID{"10.0.0.4:1#0": 0, "10.0.0.4:1#1": 3},
			map[string]kvindex.EndpointID{},
		},
		{
			"an empty set removes all",
			nil,
			map[string]kvindex.EndpointID{},
			map[string]kvindex.EndpointID{"10.0.0.2:1": 1, "10.0.0.3:1": 2, "10.0.0.4:1#0": 0, "10.0.0.4:1#1": 3},
		},
	} {
		added, removed := p.Set(step.specs)
		if diff := cmp.Diff(names(added), step.added); diff != "" {
			t.Errorf("%s: added (-got +want):\n%s", step.name, diff)
		}
		if diff := cmp.Diff(names(removed), step.removed); diff != "" {
			t.Errorf("%s: removed (-got +want):\n%s", step.name, diff)
		}
	}
}

func TestPoolReport(t *testing.T) {
	p := NewPool()
	p.Set(specs("10.0.0.1:1", "10.0.0.2:1"))
	spec := specs("10.0.0.2:1")[0]
	before := p.Snapshot()

	id := &Identity{Base: "m", BlockSize: 32, KVBlocks: 7}
	if !p.Report(spec, Report{Up: true, Identity: id, Load: Load{Running: 3, At: start}}) {
		t.Fatal("a known endpoint was not found")
	}
	if before[1].Up {
		t.Error("a report changed a snapshot that was handed out")
	}
	e := p.Snapshot()[1]
	if !e.Up || e.BlockSize != 32 || e.Load.Running != 3 {
		t.Errorf("got %+v", e)
	}

	p.Report(spec, Report{Up: false})
	e = p.Snapshot()[1]
	if e.Up || e.BlockSize != 32 || e.Load.Running != 3 {
		t.Errorf("a report of being down loses what was known: %+v", e)
	}

	p.Report(spec, Report{Up: true, Restarted: true})
	if e = p.Snapshot()[1]; !e.Load.At.IsZero() {
		t.Errorf("load outlives a restart: %+v", e.Load)
	}

	p.Set(specs("10.0.0.1:1"))
	if p.Report(spec, Report{Up: true}) {
		t.Error("a report about an endpoint that left was taken")
	}
	added, _ := p.Set(specs("10.0.0.1:1", "10.0.0.2:1"))
	if added[0].Up || added[0].Base != "" {
		t.Errorf("an endpoint that came back still has its old state: %+v", added[0])
	}
}

func TestLoadComplete(t *testing.T) {
	for _, tt := range []struct {
		name string
		load Load
		want bool
	}{
		{"all reported", Load{At: start}, true},
		{"never taken", Load{}, false},
		{"nothing reported", UnknownLoad(start), false},
		{"queue missing", Load{Waiting: -1, At: start}, false},
		{"running missing", Load{Running: -1, At: start}, false},
		{"usage missing", Load{KVUsage: -1, At: start}, false},
		{"usage not a number", Load{KVUsage: math.NaN(), At: start}, false},
		{"usage infinite", Load{KVUsage: math.Inf(1), At: start}, false},
	} {
		if got := tt.load.complete(); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
