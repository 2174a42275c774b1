package tokenize

import "github.com/warmroute/warmroute/tokenize/jinja"

// completion reads a /v1/completions request as vLLM does
// (vllm/entrypoints/openai/completion/protocol.py, seen in 0.32.0). Of several
// prompts, each of which becomes a request of its own inside the engine, the
// first one decides.
func (vllm) completion(body []byte) (prepared, error) {
	var prompt, embeds, suffix []byte
	var special, keep, side jinja.Value
	var err error
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
			if special, err = valueField(f); err != nil {
				return prepared{}, err
			}
		case "truncate_prompt_tokens":
			if keep, err = valueField(f); err != nil {
				return prepared{}, err
			}
		case "truncation_side":
			if side, err = valueField(f); err != nil {
				return prepared{}, err
			}
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
	var ready prepared
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

// valueField decodes the member at which f stands.
func valueField(f fields) (jinja.Value, error) {
	switch string(f.value) { // decoding allocates, and prompts of token ids need not
	case "true":
		return jinja.Bool(true), nil
	case "false":
		return jinja.Bool(false), nil
	}
	v, err := jinja.DecodeJSON(f.value)
	if err != nil {
		return v, refusef("%s: %w", f.key, err)
	}
	return v, nil
}

// boolField reads a member that pydantic declares as bool.
func boolField(name string, v jinja.Value, unset bool) (bool, error) {
	if v.IsUndefined() {
		return unset, nil
	}
	b, ok := laxBool(v)
	if !ok {
		return false, refusef("%s is not a bool", name)
	}
	return b, nil
}

// truncationFields reads truncate_prompt_tokens and truncation_side.
func truncationFields(keep, side jinja.Value) (truncation, error) {
	var c truncation
	if given(side) {
		if !isText(side, "left") && !isText(side, "right") {
			return c, refusef("truncation_side is neither left nor right")
		}
		c.side = side.Str()
	}
	if !given(keep) {
		return c, nil
	}
	n, ok := laxInt(keep)
	if !ok || n < -1 {
		return c, refusef("truncate_prompt_tokens is not a number of tokens")
	}
	if n < 0 {
		return c, failf(reasonTruncated, "truncate_prompt_tokens: -1 depends on the engine's context length")
	}
	c.set, c.keep = true, n
	return c, nil
}
