package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a process may take to end after a signal to terminate.
const stopGrace = 10 * time.Second

// process is one child. A nil *process is one that was never started; it can
// be stopped.
type process struct {
	name    string
	log     string // file with all its output
	cmd     *exec.Cmd
	stopped chan struct{} // closed when somebody wanted it to end, by once
	once    sync.Once
	done    chan struct{} // closed when it has ended; err is set before
	err     error
}

// startProcess starts a program in its own process group, so that a ctrl-C in
// the terminal reaches only its parent, which then stops it in order. Every
// line of output goes to the log file and to lines.
func startProcess(name, log string, lines func([]byte), failed chan<- error, path string, args ...string) (*process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("stack: %s: %w", name, err)
	}
	cmd := exec.Command(path, args...)
	out := &lineWriter{file: file, lines: lines}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = childAttributes()
	// A grandchild that keeps the pipe open must not keep us.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		file.Close()
		return nil, fmt.Errorf("stack: %s: %w", name, err)
	}
	p := &process{name: name, log: log, cmd: cmd, stopped: make(chan struct{}), done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		file.Close()
		close(p.done)
		select {
		case <-p.stopped:
		default:
			select {
			case failed <- p.failure():
			default:
			}
		}
	}()
	return p, nil
}

// await polls url until it answers 200.
func (p *process) await(ctx context.Context, url string) error {
	for {
		if get(ctx, url) == http.StatusOK {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-p.done:
			return p.failure()
		case <-ctx.Done():
			return p.late(fmt.Errorf("%s: %w", url, ctx.Err()))
		}
	}
}

// signal asks the process to end and does not wait.
func (p *process) signal() {
	if p == nil {
		return
	}
	p.once.Do(func() {
		close(p.stopped)
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM) // it may have ended
	})
}

// stop asks the process to end, waits, and after stopGrace kills it. The error
// tells that it had to be killed, or what it ended with.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	p.signal()
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		p.kill()
		return fmt.Errorf("stack: %s did not end within %v of SIGTERM%s", p.name, stopGrace, p.tail())
	}
	if p.err != nil && !killed(p.err) {
		return p.failure()
	}
	return nil
}

// kill ends the process at once and waits until it is gone.
func (p *process) kill() {
	p.once.Do(func() { close(p.stopped) })
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	<-p.done
}

// killed reports whether err tells of a SIGKILL, which only we send.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// failure says with what the process ended, and its last words.
func (p *process) failure() error {
	if p.err == nil {
		return fmt.Errorf("stack: %s ended by itself%s", p.name, p.tail())
	}
	return fmt.Errorf("stack: %s: %w%s", p.name, p.err, p.tail())
}

func (p *process) late(err error) error {
	return fmt.Errorf("stack: %s is not ready: %w%s", p.name, err, p.tail())
}

// tail is the end of the log, indented below the error it explains.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(lines) > 8 {
		lines = lines[len(lines)-8:]
	}
	return "\n    " + string(bytes.Join(lines, []byte("\n    "))) + "\n    (" + p.log + ")"
}

// lineWriter copies a process's output to a file and hands on whole lines.
// exec writes to it from one goroutine, because Stdout equals Stderr.
type lineWriter struct {
	file  *os.File
	lines func([]byte) // nil when nobody listens
	rest  []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	if w.lines != nil {
		w.rest = append(w.rest, p...)
		for {
			line, rest, whole := bytes.Cut(w.rest, []byte("\n"))
			if !whole {
				break
			}
			w.lines(line)
			w.rest = rest
		}
	}
	return w.file.Write(p)
}
