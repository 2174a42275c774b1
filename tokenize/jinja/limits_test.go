package jinja

import (
	"errors"
	"strings"
	"testing"
)

// attacks are templates that would use up the process if nothing stopped them.
// With a tenth of the default steps each must end in an error.
var attacks = map[string]string{
	"macro that calls itself":           `{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}`,
	"macros that call each other":       `{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}`,
	"macro that calls itself as caller": `{% macro f() %}{% call f() %}{{ caller }}{% endcall %}{% endmacro %}{{ f() }}`,
	"macro as its own default":          `{% macro f(x=f()) %}{% endmacro %}{{ f() }}`,
	"macro that doubles":                `{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(150) }}`,
	"recursive loop over itself":        `{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}`,
	"loop kept in a namespace":          `{% set ns = namespace() %}{% macro f() %}{% for x in [1] recursive %}{% set ns.l = loop %}{% endfor %}{% endmacro %}{{ f() }}{% macro g(a, b, c) %}{{ ns.l([2]) }}{{ nope.x }}{% endmacro %}{{ g() }}`,
	"repeated text":                     `{{ "x" * 1000000000 }}`,
	"repeated text, huge count":         `{{ "x" * 10 ** 30 }}`,
	"repeated list":                     `{{ [1] * 10 ** 9 }}`,
	"doubled text":                      `{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}`,
	"doubled list":                      `{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}`,
	"list of itself, printed":           `{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}`,
	"list of itself, as json":           `{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | tojson }}`,
	"list of itself, compared":          `{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}`,
	"deep list, printed":                `{% set ns = namespace(s=[1]) %}{% for i in range(100000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}`,
	"deep list, compared":               `{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(100000) %}{% set ns.s = [ns.s] %}{% set ns.t = [ns.t] %}{% endfor %}{{ ns.s == ns.t }}`,
	"deep tuple as a key":               `{% set ns = namespace(s=(1,)) %}{% for i in range(100000) %}{% set ns.s = (ns.s,) %}{% endfor %}{{ {ns.s: 1} }}`,
	"wide tuple as a key":               `{% set ns = namespace(s=(1,)) %}{% for i in range(60) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ ns.s in {} }}`,
	"long range":                        `{{ range(10**12) | list }}`,
	"range of ranges":                   `{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}`,
	"range checked many times":          `{% for a in range(100000) %}{% if "x" in range(100000) %}{% endif %}{% endfor %}`,
	"list searched many times":          `{% set l = range(100000) | list %}{% for a in l %}{% if "x" in l %}{% endif %}{% endfor %}`,
	"text searched many times":          `{% set l = "x" * 10000000 %}{% for a in range(100000) %}{% if "y" in l %}{% endif %}{% endfor %}`,
	"text indexed many times":           `{% set l = "é" * 10000000 %}{% for a in range(100000) %}{{ l[-1] }}{% endfor %}`,
	"text printed many times":           `{% set l = "x" * 10000000 %}{% for a in range(100000) %}{{ l }}{% endfor %}`,
	"text captured many times":          `{% set l = "x" * 10000000 %}{% for a in range(100000) %}{% set x %}{{ l }}{% endset %}{% endfor %}`,
	"power":                             `{{ 10 ** (10 ** 9) }}`,
	"power chain":                       `{{ 9 ** (9 ** (9 ** 9)) }}`,
	"squared integer":                   `{% set ns = namespace(n=3) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}`,
	"long integer printed":              `{{ 10 ** 5000 }}`,
	"replace that grows":                `{% set l = "x" * 100000 %}{{ l.replace("x", l) }}`,
	"replace of nothing":                `{% set l = "x" * 100000 %}{{ l.replace("", l) }}`,
	"join that grows":                   `{% set l = "x" * 100000 %}{{ l.join(l) }}`,
	"join filter that grows":            `{% set l = "x" * 100000 %}{{ l | join(l) }}`,
	"wide padding":                      `{{ "x".center(10 ** 12) }}`,
	"wide format":                       `{% for i in range(100000) %}{{ "{:9999}" .format(1) }}{{ "%9999d" % 1 }}{% endfor %}`,
	"wide indent":                       `{{ ("a\n" * 1000000) | indent(10 ** 9) }}`,
	"wide json indent":                  `{{ (range(100000) | list) | tojson(indent=10 ** 9) }}`,
	"batch that fills":                  `{{ [1] | batch(10 ** 12, "x") | list }}`,
	"many slices":                       `{{ [1] | slice(10 ** 12) | list }}`,
	"sort many times":                   `{% for i in range(100000) %}{% set x = range(100000) | sort %}{% endfor %}`,
	"pairs of tuple keys":               `{% set ns = namespace(l=[]) %}{{ dict(range(100000) | batch(2) | list).x.y }}`,
	"strftime in a loop":                `{% set f = "%c" * 1000000 %}{% for i in range(100000) %}{{ strftime_now(f) }}{% endfor %}`,
	"spread arguments":                  `{% macro f() %}{{ varargs | length }}{% endmacro %}{% set l = range(100000) | list %}{% for i in range(100000) %}{{ f(*l) }}{% endfor %}`,
	"many calls":                        `{% macro f() %}{% endmacro %}{% for a in range(100000) %}{% for b in range(100000) %}{{ f() }}{% endfor %}{% endfor %}`,
	"json of a generator of generators": `{% set ns = namespace(s=[1]) %}{% for i in range(100000) %}{% set ns.s = ns.s | map("list") %}{% endfor %}{{ ns.s | tojson }}`,
	"namespace inside itself":           `{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}`,
	"upper case of long text":           `{% set l = "ß" * 1000000 %}{% for i in range(100000) %}{% set x = l.upper() %}{% endfor %}`,
	"text of a long list":               `{% set l = [1.5] * 1000000 %}{% for i in range(100000) %}{% set x = l | string %}{% endfor %}`,
}

func TestAttacksEndInErrors(t *testing.T) {
	for name, source := range attacks {
		t.Run(name, func(t *testing.T) {
			out, err := renderText(source, nil, Options{MaxSteps: defaultMaxSteps / 10})
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("rendered %d bytes, error %v, want an *Error", len(out), err)
			}
			if e.Line == 0 || e.Reason == "" {
				t.Errorf("error %+v has no line or no reason", e)
			}
		})
	}
}

func TestDeepSourceEndsInErrors(t *testing.T) {
	const n = 50_000
	for name, source := range map[string]string{
		"parentheses":     "{{ " + strings.Repeat("(", n) + "1" + strings.Repeat(")", n) + " }}",
		"lists":           "{{ " + strings.Repeat("[", n) + strings.Repeat("]", n) + " }}",
		"not":             "{{ " + strings.Repeat("not ", n) + "1 }}",
		"minus":           "{{ " + strings.Repeat("-", n) + "1 }}",
		"sum":             "{{ 1" + strings.Repeat("+1", n) + " }}",
		"attributes":      "{{ a" + strings.Repeat(".a", n) + " }}",
		"calls":           "{{ a" + strings.Repeat("()", n) + " }}",
		"filters":         "{{ 1" + strings.Repeat("|string", n) + " }}",
		"or":              "{{ 1" + strings.Repeat(" or 1", n) + " }}",
		"inline if":       "{{ 1" + strings.Repeat(" if 1 else 1", n) + " }}",
		"inline if again": "{{ 1" + strings.Repeat(" if 1", n) + " }}",
		"subscripts":      "{{ a" + strings.Repeat("[0]", n) + " }}",
		"powers":          "{{ 1" + strings.Repeat("**1", n) + " }}",
		"if blocks":       strings.Repeat("{% if 1 %}", n) + strings.Repeat("{% endif %}", n),
		"loops":           strings.Repeat("{% for x in y %}", n) + strings.Repeat("{% endfor %}", n),
		"targets":         "{% for " + strings.Repeat("(", n) + "x" + strings.Repeat(")", n) + " in y %}{% endfor %}",
		"tests":           "{{ 1" + strings.Repeat(" is (1", n) + strings.Repeat(")", n) + " }}",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(source); err == nil {
				t.Error("parsed, want an error")
			}
		})
	}
}

// A tree of the largest depth the parser allows, in every macro of the deepest
// recursion, must fit the stack.
func TestDeepestExpressionInDeepestMacro(t *testing.T) {
	deep := "f(x)" + strings.Repeat("+1", maxLinks-10)
	source := "{% macro f(x) %}{{ " + deep + " }}{% endmacro %}{{ f(1) }}"
	_, err := renderText(source, nil, Options{})
	var e *Error
	if !errors.As(err, &e) || e.Cause != CauseLimit {
		t.Errorf("error = %v, want cause %s", err, CauseLimit)
	}
}

func TestOptionsLimitRenders(t *testing.T) {
	const source = `{% for i in range(1000) %}{{ i }}{% endfor %}`
	for name, opts := range map[string]Options{
		"steps":  {MaxSteps: 100},
		"output": {MaxOutput: 100},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := renderText(source, nil, opts)
			var e *Error
			if !errors.As(err, &e) || e.Cause != CauseLimit {
				t.Errorf("error = %v, want cause %s", err, CauseLimit)
			}
		})
	}
}

func TestFailedRenderLeavesDestinationAlone(t *testing.T) {
	tmpl, err := Parse(`abc{% set x %}def{{ nope() }}{% endset %}`)
	if err != nil {
		t.Fatal(err)
	}
	out, err := tmpl.Render([]byte("before"), nil, Options{})
	if err == nil || string(out) != "before" {
		t.Errorf("Render = %q, %v, want the destination and an error", out, err)
	}
	// The interpreter that failed is used again.
	out, err = tmpl.Render([]byte("before"), nil, Options{})
	if err == nil || string(out) != "before" {
		t.Errorf("second Render = %q, %v, want the destination and an error", out, err)
	}
}

func TestRenderAppends(t *testing.T) {
	tmpl, err := Parse(`{{ a }}!`)
	if err != nil {
		t.Fatal(err)
	}
	vars := NewDict(1)
	vars.Set("a", Int(1))
	out, err := tmpl.Render([]byte("before "), vars, Options{MaxOutput: 4})
	if err != nil || string(out) != "before 1!" {
		t.Errorf("Render = %q, %v, want before 1!", out, err)
	}
}
