package vllm

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// request is one request of an API.
type request struct {
	path string
	body map[string]any
}

const (
	chatPath       = "/v1/chat/completions"
	completionPath = "/v1/completions"
	responsesPath  = "/v1/responses"
	countPath      = "/v1/messages/count_tokens"
)

// generator makes requests that exercise what lies between a request and its
// tokens: the same seed, the same requests.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 0))} }

// snippets are texts on which tokenizers and templates differ.
var snippets = []string{
	"The quick brown fox jumps over the lazy dog.", "  two blanks", "\n\nnew lines\r\n", "\ttabs\t", "Grüße 你好 👨‍👩‍👧",
	"é and é", "<|im_end|>", "<|im_start|>system\n", "<think>\nhm\n</think>\n\n", "</think>", "<tool_call>", "{\"a\": [1, 2.50, null]}",
	"func main() { fmt.Println(\"hi\") }", "3.14159265358979 1e-7 0x1F", "{{ braces }} {% raw %}", "&amp; <b>html</b> 'quotes' \"double\"",
	"\u00a0\u2003\u202e\ufeff", "ﬁ İ ß ſ", "١٢٣ ४५६", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "", "日本語のテキスト、句読点。",
}

func (g generator) text() string {
	var b strings.Builder
	for range 1 + g.IntN(4) {
		b.WriteString(snippets[g.IntN(len(snippets))])
		if g.IntN(3) > 0 {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// chance is true once in n.
func (g generator) chance(n int) bool { return g.IntN(n) == 0 }

// content is a message's content: a text, or parts of it.
func (g generator) content(partType string) any {
	if !g.chance(4) {
		return g.text()
	}
	parts := make([]any, 1+g.IntN(3))
	for i := range parts {
		parts[i] = map[string]any{"type": partType, "text": g.text()}
	}
	return parts
}

func (g generator) chat() request {
	body := map[string]any{"model": modelName, "max_tokens": 1, "return_token_ids": true, "temperature": 0}
	var messages []any
	if g.chance(2) {
		messages = append(messages, map[string]any{"role": "system", "content": g.content("text")})
	}
	tools := g.chance(3)
	for turn := range 1 + g.IntN(4) {
		messages = append(messages, map[string]any{"role": "user", "content": g.content("text")})
		if tools && g.chance(2) {
			id := fmt.Sprintf("call_%d", turn)
			call := map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{
				"id": id, "type": "function", "function": map[string]any{"name": "weather", "arguments": `{"place": "Zürich", "days": 3, "exact": true, "x": 1.0}`},
			}}}
			if g.chance(2) {
				call["content"] = g.text()
			}
			messages = append(messages, call, map[string]any{"role": "tool", "tool_call_id": id, "content": g.content("text")})
		}
		answer := map[string]any{"role": "assistant", "content": g.content("text")}
		if g.chance(4) {
			answer["reasoning_content"] = g.text()
		}
		messages = append(messages, answer)
	}
	switch {
	case g.chance(8): // the answer goes on where the last message ends
		body["add_generation_prompt"], body["continue_final_message"] = false, true
		messages[len(messages)-1] = map[string]any{"role": "assistant", "content": "It begins"}
	case g.chance(8):
		body["add_generation_prompt"] = false
	default:
		messages = messages[:len(messages)-1]
	}
	body["messages"] = messages
	if tools {
		body["tools"] = g.tools()
		if g.chance(4) {
			body["tool_choice"] = "none"
		}
	}
	if g.chance(3) {
		body["chat_template_kwargs"] = map[string]any{"enable_thinking": g.chance(2)}
	}
	if g.chance(6) {
		body["reasoning_effort"] = []string{"none", "low", "high"}[g.IntN(3)]
	}
	if g.chance(8) {
		body["add_special_tokens"] = true
	}
	if g.chance(10) {
		body["truncate_prompt_tokens"] = 5 + g.IntN(40)
	}
	return request{chatPath, body}
}

func (g generator) tools() []any {
	function := map[string]any{
		"name": "weather", "description": g.text(),
		"parameters": map[string]any{
			"type": "object", "required": []string{"place"},
			"properties": map[string]any{
				"place": map[string]any{"type": "string", "description": "A <town> & 'country'"},
				"days":  map[string]any{"type": "integer", "default": 3, "minimum": 0.5},
			},
		},
	}
	if g.chance(3) {
		function["strict"] = true
	}
	tools := []any{map[string]any{"type": "function", "function": function}}
	if g.chance(2) {
		tools = append(tools, map[string]any{"type": "function", "function": map[string]any{"name": "now"}})
	}
	return tools
}

func (g generator) completion() request {
	body := map[string]any{"model": modelName, "max_tokens": 1, "return_token_ids": true, "temperature": 0}
	switch g.IntN(5) {
	case 0:
		ids := make([]int, 1+g.IntN(60))
		for i := range ids {
			ids[i] = g.IntN(150000)
		}
		body["prompt"] = ids
	case 1:
		body["prompt"] = []string{g.text() + "x"}
	default:
		body["prompt"] = g.text() + "x"
	}
	if g.chance(4) {
		body["add_special_tokens"] = false
	}
	if g.chance(6) {
		body["truncate_prompt_tokens"] = 1 + g.IntN(20)
	}
	return request{completionPath, body}
}

func (g generator) responses() request {
	body := map[string]any{"model": modelName, "max_output_tokens": 1, "store": false}
	if g.chance(2) {
		body["instructions"] = g.text() + "x"
	}
	if g.chance(3) {
		body["input"] = g.text() + "x"
		return request{responsesPath, body}
	}
	items := []any{map[string]any{"role": "user", "content": g.text() + "x"}}
	for range g.IntN(3) {
		items = append(items,
			map[string]any{"role": "assistant", "content": g.text() + "x"},
			map[string]any{"role": "user", "content": g.content("input_text")})
	}
	if g.chance(3) {
		items = append(items,
			map[string]any{"type": "function_call", "call_id": "c1", "name": "weather", "arguments": `{"place": "Bern"}`},
			map[string]any{"type": "function_call_output", "call_id": "c1", "output": g.text() + "x"})
	}
	body["input"] = items
	if g.chance(3) {
		body["tools"] = []any{map[string]any{
			"type": "function", "name": "weather", "description": "d",
			"parameters": map[string]any{"type": "object", "properties": map[string]any{"place": map[string]any{"type": "string"}}},
		}}
	}
	return request{responsesPath, body}
}

func (g generator) count() request {
	body := map[string]any{"model": modelName, "max_tokens": 1}
	switch g.IntN(3) {
	case 0:
		body["system"] = g.text() + "x"
	case 1:
		body["system"] = []any{map[string]any{"type": "text", "text": g.text() + "x"}, map[string]any{"type": "text", "text": "more"}}
	}
	messages := []any{map[string]any{"role": "user", "content": g.content("text")}}
	for turn := range g.IntN(3) {
		id := fmt.Sprintf("toolu_%d", turn)
		if g.chance(2) {
			messages = append(messages,
				map[string]any{"role": "assistant", "content": []any{
					map[string]any{"type": "text", "text": g.text()},
					map[string]any{"type": "tool_use", "id": id, "name": "weather", "input": map[string]any{"place": "Genf", "n": 1}},
				}},
				map[string]any{"role": "user", "content": []any{
					map[string]any{"type": "tool_result", "tool_use_id": id, "content": g.text() + "x"},
					map[string]any{"type": "text", "text": g.text()},
				}})
			continue
		}
		messages = append(messages,
			map[string]any{"role": "assistant", "content": g.content("text")},
			map[string]any{"role": "user", "content": g.content("text")})
	}
	body["messages"] = messages
	if g.chance(2) {
		body["tools"] = []any{map[string]any{
			"name": "weather", "description": "d",
			"input_schema": map[string]any{"type": "object", "properties": map[string]any{"place": map[string]any{"type": "string"}}},
		}}
	}
	return request{countPath, body}
}
