package main

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestConfigFileErrorsSayWhatToDo(t *testing.T) {
	tests := []struct {
		name string
		file string
		want string
	}{
		{"misspelt section", "extprok: {listen: ':1'}", `line 1: unknown field "extprok"; did you mean "extproc"?`},
		{"misspelt field", "extproc:\n  listn: ':1'", `line 2: unknown field "listn"; did you mean "listen"?`},
		{"field nobody knows", "zzzzzzzzz: 1", "doc/configuration.md lists the known ones"},
		{"address without port", "admin: {listen: localhost}", `admin.listen: "localhost" is not host:port`},
		{"deadline of nothing", "extproc: {deadline: 0s}", "extproc.deadline must be a positive duration"},
		{"duration without a unit", "extproc:\n  deadline: 5", `line 2: "5" is not a duration`},
		{"speed of nothing", "scheduling: {prefill_speed: 0}", "scheduling.prefill_speed must be a positive number"},
		{"wrong type", "extproc: {max_body_bytes: many}", "max_body_bytes"},
		{"model without name", "models: [{tokenizer: /t}]", "models[0] has no name"},
		{"model without tokenizer", "models: [{name: m}]", `model "m" has no tokenizer`},
		{"two documents", "admin: {listen: ':1'}\n---\nhealth: {listen: ':2'}", "2 documents where one is read"},
		{"port too high", "admin: {listen: ':99999'}", `admin.listen: ":99999" is not host:port`},
		{"body of no limit", "extproc: {max_body_bytes: 9223372036854775807}", "max_body_bytes must be from 1"},
		{"endpoint that is no address", "endpoints: {static: ['10.0.0.1']}", "endpoints.static: static: endpoint \"10.0.0.1\" has no port"},
		{"log level nobody knows", "telemetry: {log_level: loud}", `telemetry.log_level must be debug, info, warn or error, not "loud"`},
		{"content format nobody knows", "models: [{name: m, tokenizer: /t, content_format: wild}]", `content_format must be auto, string or openai, not "wild"`},
		{"name given twice", "models: [{name: m, tokenizer: /t}, {name: n, aliases: [m], tokenizer: /t}]", `"m" is given twice`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "warmroute.yaml")
			if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := effectiveConfig([]string{"--config", path}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestFilesWithoutSettingsLeaveTheDefaults(t *testing.T) {
	for _, file := range []string{"", "\n\n", "# nothing set\n", "---\n# nothing set\n---\n", "extproc:\nmodels:\n"} {
		path := filepath.Join(t.TempDir(), "warmroute.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		got, _, err := effectiveConfig([]string{"--config", path}, io.Discard)
		if err != nil {
			t.Errorf("file %q: %v", file, err)
			continue
		}
		if diff := cmp.Diff(got, defaultConfig()); diff != "" {
			t.Errorf("file %q: got (-) and want (+) differ:\n%s", file, diff)
		}
	}
}

func TestFlagsOverrideTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "warmroute.yaml")
	file := `
extproc: {listen: ':1111', deadline: 90ms}
endpoints: {static: ['10.0.0.1:8000']}
models:
- {name: a, tokenizer: a}
- {name: b, tokenizer: /b}
`
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	got, check, err := effectiveConfig([]string{
		"--config", path, "--check", "--extproc-listen", ":2222",
		"--endpoints", "10.0.0.2:8000, 10.0.0.3:8000", "--tokenizer", "b=/other", "--tokenizer", "c=/c",
	}, io.Discard)
	if err != nil || !check {
		t.Fatalf("effectiveConfig: check %v, error %v", check, err)
	}
	want := defaultConfig()
	want.ExtProc.Listen = ":2222"
	want.ExtProc.Deadline = 90 * time.Millisecond
	want.Endpoints.Static = []string{"10.0.0.2:8000", "10.0.0.3:8000"}
	want.Models = []modelConfig{
		{Name: "a", Tokenizer: filepath.Join(dir, "a")}, // relative to the file
		{Name: "b", Tokenizer: "/other"},
		{Name: "c", Tokenizer: "/c"},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got (-) and want (+) differ:\n%s", diff)
	}
}

// TestEveryFieldIsAKey holds the struct and its documentation together.
func TestEveryFieldIsAKey(t *testing.T) {
	var c config
	documented := make(map[string]bool)
	for _, k := range append(c.keys(), modelKeys()...) {
		documented[k.path] = true
	}
	var fields []string
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		for f := range typ.Fields() {
			path := prefix + f.Tag.Get("yaml")
			switch {
			case f.Type.Kind() == reflect.Struct:
				walk(path+".", f.Type)
			case f.Type == reflect.TypeFor[[]modelConfig]():
				walk(path+"[].", f.Type.Elem())
			default:
				fields = append(fields, path)
			}
		}
	}
	walk("", reflect.TypeFor[config]())
	for _, path := range fields {
		if !documented[path] {
			t.Errorf("%s has no key, so no documentation", path)
		}
		delete(documented, path)
	}
	for path := range documented {
		t.Errorf("%s is documented but no field", path)
	}
}
