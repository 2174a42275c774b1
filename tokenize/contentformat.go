package tokenize

import "strings"

// partsRule is one of the ways of engines to find out whether a template
// iterates over the parts of a message's content.
type partsRule uint8

// vLLM decides by the template's syntax tree whether messages carry their content
// as a list of parts or as a string, so this follows its rules one for one
// (_detect_content_format in vllm/renderers/hf.py, seen in 0.23.0, 0.30.0 and
// 0.34.0):
//
//   - a variable that is set to messages, or to a filtered, tested or sliced
//     messages, stands for messages, and so does, by partsNamespaces, a member
//     of a namespace;
//   - a loop over one of those makes its target stand for a message;
//   - a loop over a message's content or over a variable named content reads
//     parts. From partsMacros on the latter counts outside of macros alone, and
//     so does a loop over a macro's parameter that some call gives a message's
//     content.
//
// Where vLLM's own search fails, on targets that are not plain names, the answer
// is no.
//
// To SGLang a template reads parts that names a kind of media anywhere, or loops
// over the content of a variable called message, msg or m
// (detect_jinja_template_content_format in
// sglang/srt/parser/jinja_template_utils.py, seen in 0.5.23).
const (
	partsPlain partsRule = iota
	partsMacros
	partsNamespaces
	partsSGLang
	partsRules // how many there are
)

// readsParts reports for each rule whether a template reads parts by it.
func readsParts(source string) [partsRules]bool {
	var reads [partsRules]bool
	tags := scanTags(source)
	reads[partsSGLang] = namesMedia(source) || loopsOverContent(tags)
	for rule := range partsSGLang {
		d := detector{rule: rule, tags: tags}
		reads[rule] = d.findMessages() && d.findContent()
	}
	return reads
}

func namesMedia(source string) bool {
	return strings.Contains(source, "image") || strings.Contains(source, "audio") ||
		strings.Contains(source, "video") || strings.Contains(source, "vision")
}

func loopsOverContent(tags []tag) bool {
	for _, t := range tags {
		_, over, ok := t.loop()
		if !ok {
			continue
		}
		if c, ok := chainOf(over); ok && c.attr == "content" && (c.name == "message" || c.name == "msg" || c.name == "m") {
			return true
		}
	}
	return false
}

type detector struct {
	rule     partsRule
	tags     []tag
	messages map[string]bool // names that stand for messages, a namespace's with its dot
	message  map[string]bool // names that stand for one message
}

// findMessages fills messages and message.
func (d *detector) findMessages() bool {
	d.messages = map[string]bool{"messages": true}
	for grown := true; grown; {
		grown = false
		for _, t := range d.tags {
			target, value, ok := t.assignment()
			if !ok {
				continue
			}
			plain := len(target) == 1 && target[0].kind == wordToken
			if !plain && d.rule < partsNamespaces && d.isMessages(value) {
				return false
			}
			for _, name := range d.aliases(target, value) {
				grown = grown || !d.messages[name]
				d.messages[name] = true
			}
		}
	}
	d.message = map[string]bool{}
	for _, t := range d.tags {
		target, over, ok := t.loop()
		if !ok {
			continue
		}
		if d.isMessages(over) {
			if len(target) != 1 {
				return false
			}
			d.message[target[0].text] = true
		}
	}
	return true
}

// isMessages reports whether an expression stands for messages.
func (d *detector) isMessages(value []token) bool {
	c, ok := chainOf(value)
	switch {
	case !ok:
		return false
	case c.attr == "":
		return d.messages[c.name]
	default:
		return c.dotted && d.messages[c.name+"."+c.attr]
	}
}

// aliases returns the names that an assignment makes stand for messages.
func (d *detector) aliases(target, value []token) []string {
	isName := len(target) == 1 && target[0].kind == wordToken
	if d.isMessages(value) {
		switch {
		case isName:
			return []string{target[0].text}
		case d.rule >= partsNamespaces && len(target) == 3 && target[1].is("."):
			return []string{target[0].text + "." + target[2].text}
		}
		return nil
	}
	if d.rule < partsNamespaces || !isName || len(value) < 2 || value[0].text != "namespace" || closing(value[1:]) != len(value)-2 {
		return nil
	}
	var all []string
	for _, arg := range arguments(value[1:]) {
		if len(arg) > 2 && arg[1].is("=") && d.isMessages(arg[2:]) {
			all = append(all, target[0].text+"."+arg[0].text)
		}
	}
	return all
}

// findContent reports whether a loop reads parts.
func (d *detector) findContent() bool {
	params := d.macroParams()
	depth := 0
	for i, t := range d.tags {
		switch t.word() {
		case "macro":
			depth++
		case "endmacro":
			depth--
		}
		target, over, ok := t.loop()
		if !ok {
			continue
		}
		plain := len(over) == 1 && over[0].kind == wordToken
		c, isChain := chainOf(over)
		reads := isChain && c.attr == "content" && d.message[c.name] ||
			plain && params[i][over[0].text] ||
			plain && (depth == 0 || d.rule < partsMacros) && over[0].text == "content"
		if reads {
			return len(target) == 1
		}
	}
	return false
}

// macroParams returns, for the tags within a macro, the parameters that some
// call gives a message's content.
func (d *detector) macroParams() map[int]map[string]bool {
	byTag := map[int]map[string]bool{}
	if d.rule < partsMacros {
		return byTag
	}
	for i, t := range d.tags {
		if t.word() != "macro" || len(t.tokens) < 3 {
			continue
		}
		name := t.tokens[1].text
		var params []string
		for _, p := range arguments(t.tokens[2:]) {
			if len(p) > 0 {
				params = append(params, p[0].text)
			}
		}
		given := map[string]bool{}
		for _, call := range d.calls(name) {
			d.bind(given, params, call)
		}
		if len(given) == 0 {
			continue
		}
		for j := i + 1; j < d.endOf(i); j++ {
			byTag[j] = given
		}
	}
	return byTag
}

// bind adds to given the parameters that a call gives a message's content.
func (d *detector) bind(given map[string]bool, params []string, call [][]token) {
	for i, arg := range call {
		param := ""
		if len(arg) > 2 && arg[0].kind == wordToken && arg[1].is("=") {
			for _, p := range params {
				if p == arg[0].text {
					param = p
				}
			}
			arg = arg[2:]
		} else if i < len(params) {
			param = params[i]
		}
		if c, ok := chainOf(arg); ok && param != "" && c.attr == "content" && d.message[c.name] {
			given[param] = true
		}
	}
}

// calls returns the arguments of every call of the macro name.
func (d *detector) calls(name string) [][][]token {
	var all [][][]token
	for _, t := range d.tags {
		for i := 0; i+1 < len(t.tokens); i++ {
			if t.tokens[i].kind != wordToken || t.tokens[i].text != name || !t.tokens[i+1].is("(") {
				continue
			}
			if i > 0 && (t.tokens[i-1].is(".") || t.tokens[i-1].is("|") || t.tokens[i-1].text == "is" || t.word() == "macro" && i == 1) {
				continue
			}
			all = append(all, arguments(t.tokens[i+1:]))
		}
	}
	return all
}

// endOf returns the tag that closes the macro at i.
func (d *detector) endOf(i int) int {
	depth := 0
	for j := i; j < len(d.tags); j++ {
		switch d.tags[j].word() {
		case "macro":
			depth++
		case "endmacro":
			if depth--; depth == 0 {
				return j
			}
		}
	}
	return len(d.tags)
}

// chain is name or name.attr, whatever filters, tests and slices follow.
type chain struct {
	name, attr string
	dotted     bool // not name["attr"]
}

// chainOf reads an expression that is a chain and nothing else.
func chainOf(ts []token) (chain, bool) {
	var c chain
	ts = unwrapped(ts)
	switch {
	case len(ts) == 0:
		return c, false
	case ts[0].is("("):
		inner := closing(ts)
		if inner < 0 {
			return c, false
		}
		var ok bool
		if c, ok = chainOf(ts[1:inner]); !ok {
			return c, false
		}
		if ts = ts[inner+1:]; len(ts) > 0 && ts[0].is(".") {
			return c, false
		}
	case ts[0].kind == wordToken && !ts[0].keyword():
		c.name = ts[0].text
		ts = ts[1:]
		switch {
		case len(ts) > 1 && ts[0].is(".") && ts[1].kind == wordToken:
			c.attr, c.dotted = ts[1].text, true
			ts = ts[2:]
		case len(ts) > 2 && ts[0].is("[") && ts[1].kind == stringToken && ts[2].is("]"):
			c.attr = ts[1].text
			ts = ts[3:]
		}
	default:
		return c, false
	}
	return c, onlyNarrows(ts)
}

// unwrapped takes the parentheses off a name that stands alone in them.
func unwrapped(ts []token) []token {
	if len(ts) == 0 || !ts[0].is("(") {
		return ts
	}
	end := closing(ts)
	if end < 0 {
		return ts
	}
	if inner := unwrapped(ts[1:end]); len(inner) == 1 && inner[0].kind == wordToken {
		return append([]token{inner[0]}, ts[end+1:]...)
	}
	return ts
}

// onlyNarrows reports whether ts is slices, then filters and tests.
func onlyNarrows(ts []token) bool {
	for len(ts) > 0 && ts[0].is("[") {
		end := closing(ts)
		if end < 0 || !isSlice(ts[1:end]) {
			return false
		}
		ts = ts[end+1:]
	}
	for len(ts) > 0 {
		switch {
		case ts[0].is("|") && len(ts) > 1:
			ts = ts[2:]
			for len(ts) > 1 && ts[0].is(".") {
				ts = ts[2:]
			}
		case ts[0].text == "is" && ts[0].kind == wordToken && len(ts) > 1 && ts[1].text != "not":
			ts = ts[2:]
			// A test may take one argument without parentheses.
			if len(ts) > 0 && !ts[0].is("(") && !ts[0].is("|") && !ts[0].keyword() && ts[0].kind != signToken {
				ts = ts[1:]
			}
		default:
			return false
		}
		if len(ts) > 0 && ts[0].is("(") {
			end := closing(ts)
			if end < 0 {
				return false
			}
			ts = ts[end+1:]
		}
	}
	return true
}

// isSlice reports whether the inside of brackets is one slice.
func isSlice(ts []token) bool {
	depth, colon := 0, false
	for _, t := range ts {
		switch {
		case t.is("("), t.is("["), t.is("{"):
			depth++
		case t.is(")"), t.is("]"), t.is("}"):
			depth--
		case depth == 0 && t.is(":"):
			colon = true
		case depth == 0 && t.is(","):
			return false
		}
	}
	return colon
}

// closing returns the index of the bracket that closes ts[0], or -1.
func closing(ts []token) int {
	depth := 0
	for i, t := range ts {
		switch {
		case t.is("("), t.is("["), t.is("{"):
			depth++
		case t.is(")"), t.is("]"), t.is("}"):
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// arguments splits what stands between the parentheses at the front of ts.
func arguments(ts []token) [][]token {
	if len(ts) == 0 || !ts[0].is("(") {
		return nil
	}
	end := closing(ts)
	if end < 0 {
		return nil
	}
	var args [][]token
	depth, start := 0, 1
	for i := 1; i < end; i++ {
		switch t := ts[i]; {
		case t.is("("), t.is("["), t.is("{"):
			depth++
		case t.is(")"), t.is("]"), t.is("}"):
			depth--
		case depth == 0 && t.is(","):
			args = append(args, ts[start:i])
			start = i + 1
		}
	}
	if start < end {
		args = append(args, ts[start:end])
	}
	return args
}
