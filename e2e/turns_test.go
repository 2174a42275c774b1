package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/warmroute/warmroute/e2e/stack"
)

// prompt is n words of plain text, from the first word on other ones for seeds
// that are near.
func prompt(seed, n int) string {
	words := strings.Fields("the cache holds what was computed before so that a second question about " +
		"the same text costs only its new words and an engine that has seen them answers first")
	out := make([]string, n)
	for i := range out {
		out[i] = words[(i*(seed*2+1)+seed)%len(words)]
	}
	return strings.Join(out, " ")
}

// reusable is the number of leading tokens of want that an engine finds in its
// cache after it has computed held: whole blocks, and never the last token of a
// prompt, which is always computed anew (vLLM's rule).
func reusable(held, want []uint32) int {
	n := 0
	for n < min(len(held), len(want)-1) && held[n] == want[n] {
		n++
	}
	return n / blockSize * blockSize
}

// TestTwoTurns is the product's promise, seen from the engines: the second turn
// of a conversation reaches the engine that answered the first, and that engine
// reuses exactly what both turns share. Every engine holds the system prompt
// that all conversations begin with, so that part tells engines apart in
// nothing.
func TestTwoTurns(t *testing.T) {
	for _, envoy := range []string{
		"override-host-buffered", "override-host-duplex", "original-dst-buffered", "original-dst-duplex",
	} {
		t.Run(envoy, func(t *testing.T) {
			s := start(t, stack.Config{Engines: 4, Picker: true, Envoy: envoy})
			system := turn{"system", prompt(1, 200)}
			for i, e := range s.Engines {
				a := s.post(e.URL()+"/v1/chat/completions", chatBody([]turn{system, {"user", prompt(100+i, 30)}}))
				if a.status != 200 {
					t.Fatalf("warming engine %d: status %d: %s", i, a.status, a.body)
				}
			}
			s.awaitIndex()
			s.awaitIdle()
			shared := reusable(s.tokens([]turn{system, {"user", "a"}}), s.tokens([]turn{system, {"user", "b"}}))
			if shared < 10*blockSize {
				t.Fatalf("the system prompt is only %d reusable tokens", shared)
			}

			// Equal costs are drawn at random, so that four conversations meet at
			// one engine once in 64 runs; sixteen do so never.
			picked := map[int]bool{}
			for n := 0; n < 4 || len(picked) < 2 && n < 16; n++ {
				conversation := []turn{system, {"user", prompt(200+n, 60)}}
				var first answer
				engine, _ := s.whoServed(func() { first = s.chat(conversation) })
				if first.status != 200 || len(first.Choices) != 1 {
					t.Fatalf("conversation %d, turn 1: status %d: %s", n, first.status, first.body)
				}
				// The last token generated is returned but never computed.
				held := slices.Concat(first.PromptTokenIDs, first.Choices[0].TokenIDs)
				held = held[:len(held)-1]
				s.awaitIndex()
				s.awaitIdle()

				conversation = append(conversation,
					turn{"assistant", first.Choices[0].Message.Content}, turn{"user", prompt(300+n, 20)})
				tokens := s.tokens(conversation)
				want := reusable(held, tokens)
				if want <= shared+blockSize {
					t.Fatalf("conversation %d: %d tokens to reuse prove nothing beside the %d all engines hold", n, want, shared)
				}
				var second answer
				again, got := s.whoServed(func() { second = s.chat(conversation) })
				if second.status != 200 {
					t.Fatalf("conversation %d, turn 2: status %d: %s", n, second.status, second.body)
				}
				if again != engine {
					t.Errorf("conversation %d: turn 2 reached engine %d, turn 1 engine %d", n, again, engine)
				}
				if got.Cached != want || second.Usage.Details.Cached != want {
					t.Errorf("conversation %d: engine reused %d tokens and told the client %d, want %d",
						n, got.Cached, second.Usage.Details.Cached, want)
				}
				if decision := fmt.Sprintf("prefix;matched=%d;prompt=%d", want, len(tokens)); got.Decision != decision {
					t.Errorf("conversation %d: decision %q, want %q", n, got.Decision, decision)
				}
				picked[engine] = true
				s.awaitIndex()
				s.awaitIdle()
			}
			if len(picked) < 2 {
				t.Errorf("all conversations went to one engine: %v", picked)
			}
			if n := s.decisions("prefix"); n < 4 {
				t.Errorf("%d decisions for the prefix are counted, want at least 4", n)
			}
		})
	}
}
