package tokenize

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// transformers is a release of the library through which engines render chat
// templates, for what it does to messages before (apply_chat_template; 4.57 to
// 5.25 were compared).
type transformers struct{ major, minor int }

func transformersRelease(version string) (transformers, error) {
	var r transformers
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	var err error
	if r.major, err = strconv.Atoi(major); err == nil {
		r.minor, err = strconv.Atoi(minor)
	}
	if err != nil {
		return r, fmt.Errorf("transformers %q is not a version such as 5.19.0", version)
	}
	return r, nil
}

func (r transformers) since(major, minor int) bool {
	return r.major > major || r.major == major && r.minor >= minor
}

// prepare changes messages, which must belong to the caller. From 5.24 on
// members that are null are dropped, and from 5.21 on a message's reasoning is
// there under all names that templates look for it.
func (r transformers) prepare(messages *jinja.List) *jinja.List {
	if !r.since(5, 21) {
		return messages
	}
	out := jinja.NewList()
	for _, v := range messages.All() {
		m := v.Dict()
		if r.since(5, 24) {
			for key, member := range m.All() {
				if member.IsNone() {
					m = without(m, key)
				}
			}
		}
		out.Append(jinja.FromDict(aliasedReasoning(m)))
	}
	return out
}

func without(m *jinja.Dict, key string) *jinja.Dict {
	out := jinja.NewDict(m.Len())
	for k, v := range m.All() {
		if k != key {
			out.Set(k, v)
		}
	}
	return out
}

func aliasedReasoning(m *jinja.Dict) *jinja.Dict {
	reasoning := jinja.None()
	for _, key := range [...]string{"reasoning_content", "thinking", "reasoning"} {
		if v := lookup(m, key); given(v) {
			reasoning = v
			break
		}
	}
	if reasoning.IsNone() {
		return m
	}
	out := jinja.NewDict(m.Len() + 2)
	out.Set("thinking", reasoning)
	for key, v := range m.All() {
		out.Set(key, v)
	}
	out.Set("reasoning_content", reasoning)
	return out
}
