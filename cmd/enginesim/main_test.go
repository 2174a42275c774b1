package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

const tiny = "../../examples/models/tiny"

// startRun runs the program until the test ends and returns the lines it printed.
func startRun(t *testing.T, engines int, args ...string) []started {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, args, w)
		w.CloseWithError(err) //nolint:errcheck // never fails
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		http.DefaultClient.CloseIdleConnections()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	var lines []started
	sc := bufio.NewScanner(r)
	for range engines {
		if !sc.Scan() {
			t.Fatal(sc.Err())
		}
		var l started
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

func post(t *testing.T, url, body string, into any) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestTwoTurnsOnTwoEngines(t *testing.T) {
	lines := startRun(t, 2, "--engines", "2", "--listen", "127.0.0.1:0", "--tokenizer", tiny, "--time-scale", "100")
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	type answer struct {
		Choices []struct{ Message message }
		Usage   struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	ask := func(engine int, messages []message) (a answer) {
		body, err := json.Marshal(map[string]any{"model": "tiny", "messages": messages, "max_tokens": 40})
		if err != nil {
			t.Fatal(err)
		}
		resp := post(t, "http://"+lines[engine].HTTP+"/v1/chat/completions", string(body), &a)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Engine") != string(rune('0'+engine)) {
			t.Fatalf("got %s from engine %q", resp.Status, resp.Header.Get("X-Engine"))
		}
		return a
	}

	turns := []message{{"user", strings.Repeat("Tell me about caches. ", 20)}}
	first := ask(0, turns)
	if first.Usage.Details.Cached != 0 {
		t.Errorf("turn 1: got %d cached tokens, want 0", first.Usage.Details.Cached)
	}
	turns = append(turns, first.Choices[0].Message, message{"user", "More."})
	// The answer comes back as the tokens that were generated, so all but the
	// last of them are cached too.
	want := (first.Usage.Prompt + 40 - 1) / 16 * 16
	if got := ask(0, turns).Usage.Details.Cached; got != want {
		t.Errorf("turn 2: got %d cached tokens, want %d", got, want)
	}
	if got := ask(1, turns).Usage.Details.Cached; got != 0 {
		t.Errorf("turn 2 on the other engine: got %d cached tokens, want 0", got)
	}
}

func TestFlagsSayWhatIsWrong(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "none")
	cases := []struct {
		name string
		args []string
		want string
	}{
		{"no engines", []string{"--engines", "0"}, "--engines 0"},
		{"no port", []string{"--listen", "localhost"}, "127.0.0.1:8000"},
		{"an unknown format", []string{"--event-format", "xml"}, "map or array"},
		{"an argument", []string{"start"}, "flags only"},
		{"a missing tokenizer", []string{"--tokenizer", bad}, "tokenizer.json"},
		{"one block", []string{"--blocks", "1", "--listen", "127.0.0.1:0"}, "null block"},
		{"a time that stands still", []string{"--time-scale", "0", "--listen", "127.0.0.1:0"}, "time scale"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := run(t.Context(), c.args, io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestPortInUseIsNamed(t *testing.T) {
	line := startRun(t, 1, "--listen", "127.0.0.1:0")[0]
	err := run(t.Context(), []string{"--listen", line.HTTP}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), line.HTTP) || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("got %v, want an error that names the address and the flag", err)
	}
}

func TestHelpListsTheFlags(t *testing.T) {
	var help strings.Builder
	if _, err := parseFlags([]string{"--help"}, &help); err == nil {
		t.Error("help is not an error")
	}
	for _, flag := range []string{"engines", "time-scale", "hash-seed", "event-format"} {
		if !strings.Contains(help.String(), "-"+flag) {
			t.Errorf("help lacks --%s", flag)
		}
	}
}
