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

| metric | kind | meaning |
| --- | --- | --- |
`)
	for _, s := range exported() {
		kind := "counter"
		if s.gauge {
			kind = "gauge"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.name, kind, s.help)
	}
	b.WriteString("| `warmroute_pick_duration_seconds` | histogram | Time from the complete request to the pick. |\n")
	b.WriteString("| `warmroute_stage_duration_seconds` | histogram | Time a request spends in one stage of the pick: parse, tokenize, pick. |\n")
	return b.String()
}
