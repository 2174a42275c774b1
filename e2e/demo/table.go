package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/warmroute/warmroute/e2e/replay"
)

const legend = `
TTFT: time to first token; E2E: until the end of the answer. Both in simulated seconds: engines compute nothing, they
keep a real paged cache and a real queue and take the time an engine would, on a clock eight times as fast as the wall's.
Busiest / mean: 1.00 is an even spread. Computed tokens are prompt tokens that were in no cache.
`

// table compares the two passes, as text for a terminal or as Markdown.
func table(turn, picked *replay.Summary, markdown bool) string {
	rows := [][3]string{
		{"", "round robin", "warmroute"},
		{"prompt tokens from cache", percent(turn.CachedRatio()), percent(picked.CachedRatio())},
		{"TTFT mean", seconds(turn.TTFT.Mean), seconds(picked.TTFT.Mean)},
		{"TTFT p50", seconds(turn.TTFT.P50), seconds(picked.TTFT.P50)},
		{"TTFT p99", seconds(turn.TTFT.P99), seconds(picked.TTFT.P99)},
		{"E2E mean", seconds(turn.E2E.Mean), seconds(picked.E2E.Mean)},
		{"busiest / mean engine, requests", ratio(turn.RequestBalance), ratio(picked.RequestBalance)},
		{"busiest / mean engine, computed tokens", ratio(turn.ComputeBalance), ratio(picked.ComputeBalance)},
		{"requests", strconv.Itoa(turn.Requests), strconv.Itoa(picked.Requests)},
		{"errors", strconv.Itoa(turn.Errors), strconv.Itoa(picked.Errors)},
	}
	var width [3]int
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	var b strings.Builder
	for i, row := range rows {
		if markdown {
			fmt.Fprintf(&b, "| %-*s | %*s | %*s |\n", width[0], row[0], width[1], row[1], width[2], row[2])
		} else {
			fmt.Fprintf(&b, "%-*s   %*s   %*s\n", width[0], row[0], width[1], row[1], width[2], row[2])
		}
		switch {
		case i > 0:
		case markdown:
			fmt.Fprintf(&b, "|-%s-|-%s:|-%s:|\n", strings.Repeat("-", width[0]), strings.Repeat("-", width[1]), strings.Repeat("-", width[2]))
		default:
			b.WriteString(strings.Repeat("-", width[0]+width[1]+width[2]+6) + "\n")
		}
	}
	return b.String()
}

func percent(r float64) string { return fmt.Sprintf("%.1f %%", 100*r) }

func ratio(r float64) string { return fmt.Sprintf("%.2f", r) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
