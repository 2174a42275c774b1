package stack

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func shell(t *testing.T, failed chan error, lines func([]byte), script string) *process {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	p, err := startProcess("child", filepath.Join(t.TempDir(), "child.log"), lines, failed, sh, "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

func TestStop(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"a program that ends cleanly when asked", `trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done`, ""},
		{"a program that ends with an error when asked", `trap 'echo oops; exit 3' TERM; echo up; while :; do sleep 0.01; done`, "exit status 3"},
		{"a program that dies of the signal has not stopped cleanly", `echo up; exec sleep 60`, "signal: terminated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := make(chan string, 8)
			p := shell(t, make(chan error, 1), func(line []byte) { up <- string(line) }, c.script)
			if line := <-up; line != "up" {
				t.Fatalf("first line %q", line)
			}
			err := p.stop()
			if got := err != nil; got != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("stop: %v, want %q", err, c.want)
			}
			if again := p.stop(); (again == nil) != (err == nil) {
				t.Errorf("second stop: %v", again)
			}
		})
	}
}

func TestAProcessThatEndsByItselfIsReported(t *testing.T) {
	failed := make(chan error, 1)
	p := shell(t, failed, nil, `echo no such model; exit 2`)
	<-p.done
	err := <-failed
	for _, want := range []string{"child", "exit status 2", "no such model"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestKillingIsNoFailure(t *testing.T) {
	failed := make(chan error, 1)
	p := shell(t, failed, nil, `exec sleep 60`)
	p.kill()
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if len(failed) != 0 {
		t.Error(<-failed)
	}
}
