package tokenize

import (
	"slices"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// decodeTools checks tools and tool_choice and dumps the tools as vLLM's data
// model does (ChatCompletionToolsParam, FunctionDefinition): its own key order,
// description and parameters null when absent, strict and defer_loading only
// when set, unknown keys dropped or, by older releases, put last. What is inside
// parameters stays as sent.
func (e vllm) decodeTools(c *chatFields, req *vllmRequest) error {
	if given(c.tools) {
		if c.tools.Kind() != jinja.KindList {
			return refusef("tools is not a list of tools")
		}
		dump := jinja.NewList()
		for _, tool := range c.tools.List().All() {
			d, err := e.dumpTool(tool)
			if err != nil {
				return err
			}
			dump.Append(jinja.FromDict(d))
		}
		req.tools = jinja.FromList(dump)
	}
	return checkToolChoice(c.toolChoice, req.tools.List())
}

func (e vllm) dumpTool(v jinja.Value) (*jinja.Dict, error) {
	tool := v.Dict()
	if tool == nil {
		return nil, refusef("a tool is not an object")
	}
	if kind, ok := tool.Get("type"); ok && !isText(kind, "function") {
		return nil, refusef("a tool's type is not function")
	}
	function := lookup(tool, "function").Dict()
	if function == nil {
		return nil, refusef("a tool has no function")
	}
	name := lookup(function, "name")
	description := lookup(function, "description")
	parameters := lookup(function, "parameters")
	if name.Kind() != jinja.KindString ||
		given(description) && description.Kind() != jinja.KindString ||
		given(parameters) && parameters.Dict() == nil {
		return nil, refusef("a tool's name, description or parameters have the wrong type")
	}
	strict := jinja.None()
	if e.release >= vllmStrictTools {
		var err error
		if strict, err = optionalBool(function, "strict"); err != nil {
			return nil, err
		}
	}
	inner, err := optionalBool(function, "defer_loading")
	if err != nil {
		return nil, err
	}
	outer, err := optionalBool(tool, "defer_loading")
	if err != nil {
		return nil, err
	}
	if inner.IsNone() {
		inner = outer
	}

	f := jinja.NewDict(5)
	f.Set("name", name)
	f.Set("description", orNone(description))
	f.Set("parameters", orNone(parameters))
	setGiven(f, "strict", strict)
	setGiven(f, "defer_loading", inner)
	e.addUnknown(f, function, "name", "description", "parameters", "strict", "defer_loading")
	d := jinja.NewDict(3)
	d.Set("type", jinja.String("function"))
	d.Set("function", jinja.FromDict(f))
	setGiven(d, "defer_loading", outer)
	e.addUnknown(d, tool, "type", "function", "defer_loading")
	return d, nil
}

// addUnknown adds to the dump of a tool, or of its function, the keys that are
// not declared, where the release keeps them.
func (e vllm) addUnknown(dump, sent *jinja.Dict, declared ...string) {
	if e.release >= vllmClosedTools {
		return
	}
	for key, v := range sent.All() {
		if !slices.Contains(declared, key) || key == "strict" && e.release < vllmStrictTools {
			dump.Set(key, v)
		}
	}
}

// checkToolChoice refuses what ChatCompletionRequest.check_tool_usage does. The
// choice has no other part in the prompt: the tools are shown whatever it is.
func checkToolChoice(choice jinja.Value, tools *jinja.List) error {
	if !given(choice) || isText(choice, "none") {
		return nil
	}
	if tools == nil {
		return refusef("tool_choice needs tools")
	}
	if isText(choice, "auto") || isText(choice, "required") {
		return nil
	}
	named := choice.Dict()
	if named == nil {
		return refusef("tool_choice is not known")
	}
	if kind, ok := named.Get("type"); ok && !isText(kind, "function") {
		return refusef("tool_choice is not a function")
	}
	name := lookup(lookup(named, "function").Dict(), "name")
	for _, tool := range tools.All() {
		if f := lookup(tool.Dict(), "function").Dict(); name.Kind() == jinja.KindString && isText(lookup(f, "name"), name.Str()) {
			return nil
		}
	}
	return refusef("tool_choice names no tool of the request")
}

// lookup returns a key's value, undefined when there is none or no dict.
func lookup(d *jinja.Dict, key string) jinja.Value {
	if d == nil {
		return jinja.Undefined()
	}
	v, _ := d.Get(key)
	return v
}

func isText(v jinja.Value, text string) bool {
	return v.Kind() == jinja.KindString && v.Str() == text
}

func orNone(v jinja.Value) jinja.Value {
	if v.IsUndefined() {
		return jinja.None()
	}
	return v
}

// optionalBool returns a key's value as a bool, or None.
func optionalBool(d *jinja.Dict, key string) (jinja.Value, error) {
	v := lookup(d, key)
	if !given(v) {
		return jinja.None(), nil
	}
	b, ok := laxBool(v)
	if !ok {
		return v, refusef("a tool's %s is not a bool", key)
	}
	return jinja.Bool(b), nil
}

func setGiven(d *jinja.Dict, key string, v jinja.Value) {
	if given(v) {
		d.Set(key, v)
	}
}
