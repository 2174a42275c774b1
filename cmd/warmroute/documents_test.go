package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/warmroute/scheduler"
)

var update = flag.Bool("update", false, "rewrite the documents made from the program's definitions")

// TestDocuments holds the reference pages equal to the definitions they are
// made from; make generate runs it with -update.
func TestDocuments(t *testing.T) {
	for name, want := range map[string]string{
		"configuration.md": configurationPage(),
		"metrics.md":       metricsPage(),
	} {
		path := filepath.Join("..", "..", "doc", name)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // a document
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(got), want); diff != "" {
			t.Errorf("%s is not what the definitions say; run make generate (-got +want):\n%s", name, diff)
		}
	}
}

// TestMetricNamesFollowPrometheus checks what a typing error would break in
// every dashboard.
func TestMetricNamesFollowPrometheus(t *testing.T) {
	name := regexp.MustCompile(`^warmroute(_[a-z]+)+$`)
	seen := make(map[string]bool)
	for _, s := range exported() {
		if !name.MatchString(s.name) || s.gauge == strings.HasSuffix(s.name, "_total") {
			t.Errorf("%s is not a good name for a series (gauge: %v)", s.name, s.gauge)
		}
		if seen[s.name] {
			t.Errorf("%s is there twice", s.name)
		}
		seen[s.name] = true
	}
}

func configurationPage() string {
	var b strings.Builder
	b.WriteString(`# Configuration

One YAML file, given by ` + "`warmroute serve --config FILE`" + `. An unknown field is an error. Flags override the file.
Without a file, ` + "`warmroute serve --endpoints HOST:PORT,… --tokenizer NAME=DIR`" + ` is enough.
` + "`warmroute serve --check`" + ` validates and prints the effective configuration.

| setting | flag | default | unit | meaning, and why this default |
| --- | --- | --- | --- | --- |
`)
	c := defaultConfig()
	for _, k := range c.keys() {
		settingRow(&b, k, fmt.Sprintf("`%v`", reflect.ValueOf(k.value).Elem()))
	}
	for _, k := range modelKeys() {
		if k.path == "models[].tokenizer" {
			k.flag = "tokenizer NAME=DIR"
		}
		settingRow(&b, k, "")
	}
	return b.String()
}

func settingRow(b *strings.Builder, k key, value string) {
	option := ""
	if k.flag != "" {
		option = "`--" + k.flag + "`"
	}
	if value == "``" || value == "`[]`" {
		value = "none"
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", k.path, option, value, k.unit, k.doc)
}

func metricsPage() string {
	var b strings.Builder
	b.WriteString(`# Metrics

` + "`/metrics`" + ` on the admin port, in Prometheus text format. Units are base units; labels are bounded: they come from the
configuration and the engines, never from requests.

| metric | kind | labels | meaning |
| --- | --- | --- | --- |
`)
	for _, s := range exported() {
		kind := "counter"
		if s.gauge {
			kind = "gauge"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.name, kind, s.labels, s.help)
	}
	b.WriteString("| `warmroute_pick_duration_seconds` | histogram | | Time from the complete request to the pick. |\n")
	b.WriteString("| `warmroute_stage_duration_seconds` | histogram | stage: parse, tokenize, pick | Time a request spends in one stage of the pick. |\n")
	b.WriteString(`
## Why a request went where it went

The reason of ` + "`warmroute_decisions_total`" + `. Of those that apply it is the first in this order: what hides a cache miss comes
before what it leads to.

| reason | meaning |
| --- | --- |
`)
	for _, r := range reasons() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", r.reason, r.meaning)
	}
	b.WriteString(untokenizedReasons)
	return b.String()
}

// meaning explains a decision reason to an operator.
type meaning struct {
	reason  scheduler.Reason
	meaning string
}

func reasons() []meaning {
	return []meaning{
		{scheduler.ReasonBodyless, "there is no prompt to place, such as GET /v1/models"},
		{scheduler.ReasonUnserved, "no endpoint, up or down, has the model: the engine says so itself"},
		{scheduler.ReasonSingle, "no other endpoint could serve the model"},
		{scheduler.ReasonSubset, "the gateway's subset left no other"},
		{scheduler.ReasonUntokenized, "the tokens could not be made: placed by load; `warmroute_untokenized_total` says why"},
		{scheduler.ReasonNoIndex, "no endpoint has reported KV blocks yet: placed by load"},
		{scheduler.ReasonPrefix, "it holds as much of the prompt as any other"},
		{scheduler.ReasonBalanced, "another holds more of the prompt, and would have been slower"},
		{scheduler.ReasonNoLoad, "nobody holds any of the prompt, and nobody has reported its load"},
		{scheduler.ReasonNoOverlap, "nobody holds any of the prompt: placed by load"},
	}
}

const untokenizedReasons = `
## Why a request has no tokens

The reason of ` + "`warmroute_untokenized_total`" + `, and the outcome of ` + "`warmroute_tokenize_total`" + `.

| reason | meaning |
| --- | --- |
| ` + "`no_tokenizer`, `unknown_model`" + ` | no tokenizer is configured, or none for this model |
| ` + "`no_model`, `invalid_json`, `bad_request`" + ` | the request names no model, is no JSON object, or is one the engine refuses |
| ` + "`other_api`, `compressed`, `body_unseen`, `body_partial`, `body_too_large`" + ` | the prompt is not read: another path, a content-encoding, a body mode that shows no body or a part of it, a body above extproc.max_body_bytes |
| ` + "`deadline`, `abandoned`" + ` | extproc.deadline passed, or the client left, before the tokens were made |
| ` + "`multimodal`, `previous_response`, `prompt_embeds`, `suffix`, `truncated`, `unsupported`" + ` | the engine computes something we cannot |
| ` + "`no_template`, `template_unsupported`, `template_error`, `template_limit`, `template_kwargs`, `request_template`" + ` | the chat template is missing, cannot be run, failed on this request, or is not the one the request asks for |
| ` + "`no_text`, `nul`, `too_long`, `encode_error`, `tokenize_error`, `tokenizer_panic`" + ` | the text cannot be encoded exactly |
`
