package tokenize

import "github.com/warmroute/warmroute/tokenize/jinja"

// completion reads a /v1/completions request as vLLM does
// (vllm/entrypoints/openai/completion/protocol.py, seen in 0.32.0). Of several
// prompts, each of which becomes a request of its own inside the engine, the
// first one decides.
func (vllm) completion(body []byte) (prepared, error) {
	var prompt, embeds, suffix, special, keep, side []byte
	f := newFields(body)
	for f.next() {
		switch f.key {
		case "prompt":
			prompt = f.value
		case "prompt_embeds":
			embeds = f.value
		case "suffix":
			suffix = f.value
		case "add_special_tokens":
			special = f.value
		case "truncate_prompt_tokens":
			keep = f.value
		case "truncation_side":
			side = f.value
		}
	}
	if f.err != nil {
		return prepared{}, refusef("%w", f.err)
	}
	if isGiven(embeds) {
		return prepared{}, failf(reasonPromptEmbeds, "prompt_embeds stand before the prompt")
	}
	if isGiven(suffix) {
		return prepared{}, failf(reasonSuffix, "only models that fill in the middle take a suffix")
	}
	ready := prepared{special: true}
	var err error
	if ready.special, err = boolField("add_special_tokens", special, true); err != nil {
		return prepared{}, err
	}
	if ready.cut, err = truncationFields(keep, side); err != nil {
		return prepared{}, err
	}
	first := prompt
	if len(prompt) > 0 && prompt[0] == '[' {
		inner := space(prompt[1:])
		if len(inner) == 0 || inner[0] == ']' {
			return prepared{}, refusef("no prompt")
		}
		if inner[0] == '"' || inner[0] == '[' {
			var ok bool
			if first, _, ok = rawValue(inner); !ok {
				return prepared{}, refusef("%w", errJSON)
			}
		}
	}
	switch {
	case len(first) > 0 && first[0] == '[':
		ready.ids = first
	case len(first) > 0 && first[0] == '"':
		v, err := jinja.DecodeJSON(first)
		if err != nil {
			return prepared{}, refusef("prompt: %w", err)
		}
		ready.text = v.Str()
		if ready.text == "" && len(first) == len(prompt) {
			return prepared{}, refusef("the prompt is empty")
		}
	default:
		return prepared{}, refusef("the prompt is neither text nor token ids")
	}
	return ready, nil
}

// isGiven reports whether a member was sent, and is not null.
func isGiven(raw []byte) bool { return raw != nil && string(raw) != "null" }

// boolField decodes a member that pydantic declares as bool.
func boolField(name string, raw []byte, unset bool) (bool, error) {
	switch string(raw) {
	case "":
		return unset, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	v, err := jinja.DecodeJSON(raw)
	if err != nil {
		return false, refusef("%s: %w", name, err)
	}
	b, ok := laxBool(v)
	if !ok {
		return false, refusef("%s is not a bool", name)
	}
	return b, nil
}

// truncationFields decodes truncate_prompt_tokens and truncation_side.
func truncationFields(keep, side []byte) (truncation, error) {
	var c truncation
	if isGiven(side) {
		switch string(side) {
		case `"left"`, `"right"`:
			c.side = string(side[1 : len(side)-1])
		default:
			return c, refusef("truncation_side is neither left nor right")
		}
	}
	if !isGiven(keep) {
		return c, nil
	}
	v, err := jinja.DecodeJSON(keep)
	if err != nil {
		return c, refusef("truncate_prompt_tokens: %w", err)
	}
	n, ok := laxInt(v)
	if !ok || n < -1 {
		return c, refusef("truncate_prompt_tokens is not a number of tokens")
	}
	if n < 0 {
		return c, failf(reasonTruncated, "truncate_prompt_tokens: -1 depends on the engine's context length")
	}
	c.set, c.keep = true, n
	return c, nil
}
