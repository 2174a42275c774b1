package scheduler

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/warmroute/kvindex"
)

var update = flag.Bool("update", false, "rewrite the golden tables")

// start is when tests begin; nothing depends on the date.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fakeIndex says how many blocks each endpoint holds of any prompt.
type fakeIndex struct {
	blockSize map[kvindex.EndpointID]int
	held      map[kvindex.EndpointID]int
}

func newFakeIndex() *fakeIndex {
	return &fakeIndex{blockSize: map[kvindex.EndpointID]int{}, held: map[kvindex.EndpointID]int{}}
}

func (x *fakeIndex) BlockSize(e kvindex.EndpointID) int { return x.blockSize[e] }

func (x *fakeIndex) Match(hashes []kvindex.BlockHash, depth []int) {
	for e := range depth {
		depth[e] = min(x.held[kvindex.EndpointID(e)], len(hashes))
	}
}

// TestPickTables plays each table in testdata/pick: prose, a line for each
// endpoint, request lines, and below --- what was picked and what each
// candidate would have cost. The format is in testdata/README.md.
func TestPickTables(t *testing.T) {
	files, err := filepath.Glob("testdata/pick/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, ok := strings.Cut(string(raw), "\n---\n")
			if !ok && !*update {
				t.Fatal("table has no --- line")
			}
			input = strings.TrimRight(input, "\n")
			got := playTable(t, input)
			if *update {
				if err := os.WriteFile(file, []byte(input+"\n---\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("decisions differ (-got +want):\n%s", diff)
			}
		})
	}
}

// playTable returns the decisions for a table.
func playTable(t *testing.T, input string) string {
	t.Helper()
	index, pool := newFakeIndex(), NewPool()
	s := New(Config{Seed: 1}, pool, index)

	var specs []Spec
	reports := map[Spec]Report{}
	held := map[Spec][2]int{}
	var out strings.Builder
	ready := false
	now := start

	for line := range strings.Lines(input) {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch verb {
		case "endpoint":
			spec, report, blocks := parseEndpoint(t, rest)
			if ready {
				if !pool.Report(spec, report) {
					t.Fatalf("no endpoint %v", spec)
				}
				continue
			}
			specs, reports[spec], held[spec] = append(specs, spec), report, blocks
		case "after":
			d, err := time.ParseDuration(rest)
			if err != nil {
				t.Fatal(err)
			}
			now = now.Add(d)
			fmt.Fprintf(&out, "after %v\n", d)
		case "request":
			if !ready {
				ready = true
				added, _ := pool.Set(specs)
				for _, e := range added {
					pool.Report(e.Spec(), reports[e.Spec()])
					index.held[e.ID], index.blockSize[e.ID] = held[e.Spec()][0], held[e.Spec()][1]
				}
			}
			req := parseRequest(t, rest)
			req.Now = now
			playRequest(t, &out, s, req)
		}
	}
	return out.String()
}

func playRequest(t *testing.T, out *strings.Builder, s *Scheduler, req *Request) {
	t.Helper()
	sc := new(scratch)
	snap := s.pool.snapshot.Load()
	s.filter(sc, snap, req)
	s.match(sc, snap, req)
	s.price(sc.candidates, s.promptTokens(req), s.pool.since(req.Now))

	d, err := s.Pick(t.Context(), req)
	if err != nil {
		fmt.Fprintf(out, "%v\n", err)
		return
	}
	fmt.Fprintf(out, "%v %s: matched %d of %d\n", Spec{d.Endpoint, d.Rank}, d.Reason, d.Matched, d.Prompt)
	for _, c := range sc.candidates {
		source := ""
		if !c.cost.known {
			source = " (not reported)"
		}
		fmt.Fprintf(out, "  %v  pending %.3f + uncached %.3f + load %.3f = %.3f s%s\n",
			c.endpoint.Spec(), c.cost.pending, c.cost.uncached, c.cost.load, c.cost.total(), source)
	}
}

// fields returns the key=value words of a line.
func fields(t *testing.T, words []string, each func(key, value string)) {
	t.Helper()
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		each(key, value)
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func parseEndpoint(t *testing.T, line string) (Spec, Report, [2]int) {
	t.Helper()
	words := strings.Fields(line)
	name, rank, hasRank := strings.Cut(words[0], "#")
	spec := Spec{Addr: netip.MustParseAddrPort(name), Rank: -1}
	if hasRank {
		spec.Rank = number(t, rank)
	}
	id := &Identity{Base: "llama", Models: []Model{{Name: "llama"}}, BlockSize: 16, KVBlocks: 62_500}
	r := Report{Up: true, Identity: id, Load: Load{At: start}}
	blocks := [2]int{0, 16}
	fields(t, words[1:], func(key, value string) {
		switch key {
		case "waiting":
			r.Load.Waiting = number(t, value)
		case "running":
			r.Load.Running = number(t, value)
		case "kv":
			r.Load.KVUsage, _ = strconv.ParseFloat(value, 64)
		case "at":
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			r.Load.At = start.Add(d)
		case "no-load":
			r.Load = Load{}
		case "down":
			r.Up = false
		case "held":
			blocks[0] = number(t, value)
		case "no-blocks-reported":
			blocks[1] = 0
		case "block":
			blocks[1], id.BlockSize = number(t, value), number(t, value)
		case "models":
			id.Models = nil
			for m := range strings.SplitSeq(value, ",") {
				name, adapter, _ := strings.Cut(m, ":")
				id.Models = append(id.Models, Model{Name: name, Adapter: adapter})
			}
		default:
			t.Fatalf("unknown endpoint word %q", key)
		}
	})
	return spec, r, blocks
}

func parseRequest(t *testing.T, line string) *Request {
	t.Helper()
	req := &Request{Model: "llama"}
	fields(t, strings.Fields(line), func(key, value string) {
		switch key {
		case "tokens":
			req.Tokens = make([]uint32, number(t, value))
		case "model":
			req.Model = value
		case "untokenized":
			req.Untokenized = value
		case "bodyless":
			req.Bodyless = true
		case "subset":
			req.HasSubset = true
			for a := range strings.SplitSeq(value, ",") {
				if ip, err := netip.ParseAddr(a); err == nil {
					req.Subset = append(req.Subset, netip.AddrPortFrom(ip, 0))
				} else if a != "" {
					req.Subset = append(req.Subset, netip.MustParseAddrPort(a))
				}
			}
		default:
			t.Fatalf("unknown request word %q", key)
		}
	})
	return req
}
