package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/warmroute/e2e/replay"
)

func TestTable(t *testing.T) {
	turn := &replay.Summary{
		Requests: 900, Errors: 2, Prompt: 1000, Cached: 83,
		TTFT:           replay.Times{Mean: 14100 * time.Millisecond, P50: 12 * time.Second, P99: 40300 * time.Millisecond},
		E2E:            replay.Times{Mean: 43300 * time.Millisecond},
		RequestBalance: 1, ComputeBalance: 1.14,
	}
	picked := &replay.Summary{
		Requests: 900, Prompt: 1000, Cached: 161,
		TTFT:           replay.Times{Mean: 4280 * time.Millisecond, P50: 3 * time.Second, P99: 19200 * time.Millisecond},
		E2E:            replay.Times{Mean: 20 * time.Second},
		RequestBalance: 1.2, ComputeBalance: 1.05,
	}
	const text = `                                         round robin   warmroute
----------------------------------------------------------------
prompt tokens from cache                       8.3 %      16.1 %
TTFT mean                                    14.10 s      4.28 s
TTFT p50                                     12.00 s      3.00 s
TTFT p99                                     40.30 s     19.20 s
E2E mean                                     43.30 s     20.00 s
busiest / mean engine, requests                 1.00        1.20
busiest / mean engine, computed tokens          1.14        1.05
requests                                         900         900
errors                                             2           0
`
	if diff := cmp.Diff(text, table(turn, picked, false)); diff != "" {
		t.Error(diff)
	}
	const head = `|                                        | round robin | warmroute |
|----------------------------------------|------------:|----------:|
| prompt tokens from cache               |       8.3 % |    16.1 % |
`
	if got := table(turn, picked, true); len(got) < len(head) || got[:len(head)] != head {
		t.Errorf("Markdown begins\n%s\nwant\n%s", got, head)
	}
}
