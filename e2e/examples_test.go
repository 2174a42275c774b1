package e2e

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warmroute/warmroute/e2e/stack"
)

// TestExampleLocal follows examples/local/README.md: it runs the commands that
// stand there, as they stand there, and sees what the text promises.
func TestExampleLocal(t *testing.T) {
	root, err := stack.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "examples", "local", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range []string{"8000", "8001", "8002", "8003", "9002", "9003", "9090", "9901", "10000"} {
		l, err := net.Listen("tcp", "127.0.0.1:"+port) //nolint:noctx // closed at once
		if err != nil {
			t.Skipf("NOT TESTED: examples/local uses port %s, which another program has: %v", port, err)
		}
		_ = l.Close()
	}
	ready := map[string]string{ // where each program says that it serves
		".build/bin/enginesim": "http://127.0.0.1:8003/health",
		".build/bin/warmroute": "http://127.0.0.1:9090/readyz",
		".build/bin/envoy":     "http://127.0.0.1:9901/ready",
	}
	var asked, looked string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(text, -1) {
		command := string(block[1])
		program, _, _ := strings.Cut(command, " ")
		switch {
		case program == "make": // done by whoever runs this test
		case ready[program] != "":
			background(t, root, command)
			awaitOK(t, ready[program])
		case asked == "":
			asked = command
			if out := shell(t, root, asked); !strings.Contains(out, `"cached_tokens":0`) {
				t.Errorf("the first question was not cold:\n%s", out)
			}
		default:
			looked = command
		}
	}

	// "The same again: now it is that engine." Asked in quick succession, or on a
	// machine too busy to read loads in time, another may be less busy.
	warm := regexp.MustCompile(`"cached_tokens":48\b`)
	engine := regexp.MustCompile(`(?i)x-engine: \d+`)
	first, out := "", ""
	for deadline := time.Now().Add(patience); ; {
		time.Sleep(time.Second) // a person takes longer to ask again
		out = shell(t, root, asked)
		if at := engine.FindString(out); warm.MatchString(out) && at == first {
			break
		} else if warm.MatchString(out) {
			first = at
		}
		if time.Now().After(deadline) {
			t.Fatalf("the question never came twice from the cache of one engine:\n%s", out)
		}
	}

	out = shell(t, root, looked)
	for _, want := range []string{`"blocksHeld"`, `warmroute_decisions_total{model="tiny",`} {
		if !strings.Contains(out, want) {
			t.Errorf("looking inside shows no %s:\n%s", want, out)
		}
	}
}

func shell(t *testing.T, dir, command string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
	c.Dir = dir
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// background runs command until the test ends, and then expects it to stop
// cleanly.
func background(t *testing.T, dir, command string) {
	t.Helper()
	c := exec.Command("bash", "-c", "exec "+command) //nolint:gosec,noctx // stopped by a signal below, so that it can stop by itself
	c.Dir = dir
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var log bytes.Buffer
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGINT)
		err := c.Wait()
		if t.Failed() || err != nil {
			t.Errorf("%s ended with %v:\n%s", command, err, log.String())
		}
	})
}

// awaitOK waits until url answers 200.
func awaitOK(t *testing.T, url string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get(url) //nolint:gosec,noctx // a page on this machine
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer 200: %v", url, err)
		}
	}
}
