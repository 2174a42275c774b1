// Package stack runs the whole product on one machine: simulated engines, the
// picker and a real Envoy, each its own process on free loopback ports.
//
// Start returns when everything answers and Stop when everything has ended.
// The processes also end when the program that started them dies. Their output
// and the Envoy configuration that was used stay in Config.Dir. The binaries
// come from `make setup build`.
package stack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// readyTimeout bounds the start of each process; a busy machine needs seconds
// to load a tokenizer.
const readyTimeout = 60 * time.Second

// Config says what to start.
type Config struct {
	Root string // top folder of the checkout, as FindRoot returns it
	Dir  string // folder for logs and configuration; made when missing, emptied when not

	Engines    int      // how many engines
	Apart      bool     // one process per engine, so that one can be killed; each then calls itself engine 0
	EngineArgs []string // further flags of enginesim, the same for every engine

	Picker     bool     // start the picker, with all engines as its endpoints
	Endpoints  []string // the picker's endpoints instead of the engines
	PickerArgs []string // further flags of warmroute serve

	Envoy string // configuration: the name of a file in envoy/ without .yaml; empty for no Envoy
}

// Engine is where one simulated engine listens, each as host:port.
type Engine struct {
	Index  int    `json:"engine"` // among the engines of its process
	HTTP   string `json:"http"`
	Events string `json:"events"`
	Replay string `json:"replay"`
}

// URL is the base of the engine's HTTP API.
func (e Engine) URL() string { return "http://" + e.HTTP }

// Picker is where the picker listens, each as host:port.
type Picker struct{ ExtProc, Health, Admin string }

// Stack is a running set of processes.
type Stack struct {
	Engines []Engine
	Picker  Picker
	URL     string // where clients send requests: Envoy
	Admin   string // base URL of Envoy's admin interface

	cfg     Config
	engines []*process
	picker  *process
	envoy   *process
	failed  chan error // the first process that ended by itself
}

// FindRoot returns the top folder of the checkout that holds the working
// directory.
func FindRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("stack: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("stack: not inside the checkout: no go.mod above the working directory")
		}
		dir = parent
	}
}

// Start starts the engines, then the picker, then Envoy, and waits for each.
// When it fails, or ctx ends, it stops what it had started.
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	s := &Stack{cfg: cfg, failed: make(chan error, 1)}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) error {
	if err := os.RemoveAll(s.cfg.Dir); err != nil {
		return fmt.Errorf("stack: %w", err)
	}
	if err := os.MkdirAll(s.cfg.Dir, 0o755); err != nil {
		return fmt.Errorf("stack: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, step := range []func(context.Context) error{s.startEngines, s.startPicker, s.startEnvoy} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends every process, in the order of requests: Envoy, picker, engines.
// It returns an error when one of them did not end cleanly when asked to; the
// logs say why. Stopping twice is harmless.
func (s *Stack) Stop() error {
	err := errors.Join(s.StopEnvoy(), s.StopPicker())
	for i := range s.engines {
		s.engines[i].signal()
	}
	for i := range s.engines {
		err = errors.Join(err, s.engines[i].stop())
	}
	return err
}

// StopEnvoy stops Envoy alone, as a signal to terminate does.
func (s *Stack) StopEnvoy() error { return s.envoy.stop() }

// StopPicker stops the picker alone, as a signal to terminate does, and
// returns an error when it did not end cleanly.
func (s *Stack) StopPicker() error { return s.picker.stop() }

// KillEngine ends engine i at once, as a crash does. The engines must be apart.
func (s *Stack) KillEngine(i int) { s.engines[i].kill() }

// Failed delivers an error when a process ends that nobody has stopped.
func (s *Stack) Failed() <-chan error { return s.failed }

func (s *Stack) path(name string) string { return filepath.Join(s.cfg.Dir, name) }

// binary is the path of a program that make has built or installed.
func (s *Stack) binary(name string) (string, error) {
	path := filepath.Join(s.cfg.Root, ".build", "bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("stack: %w; run `make setup build` first", err)
	}
	return path, nil
}

func (s *Stack) run(name, program string, lines func([]byte), args ...string) (*process, error) {
	path, err := s.binary(program)
	if err != nil {
		return nil, err
	}
	return startProcess(name, s.path(name+".log"), lines, s.failed, path, args...)
}

func (s *Stack) startEngines(ctx context.Context) error {
	processes, each := 1, s.cfg.Engines
	if s.cfg.Apart {
		processes, each = s.cfg.Engines, 1
	}
	if s.cfg.Engines == 0 {
		return nil
	}
	args := append([]string{"--engines", strconv.Itoa(each), "--listen", "127.0.0.1:0"}, s.cfg.EngineArgs...)
	ready := make([]chan Engine, processes)
	for i := range ready {
		ready[i] = make(chan Engine, each)
		name := "engines"
		if s.cfg.Apart {
			name = "engine-" + strconv.Itoa(i)
		}
		p, err := s.run(name, "enginesim", addresses(ready[i]), args...)
		if err != nil {
			return err
		}
		s.engines = append(s.engines, p)
	}
	s.Engines = make([]Engine, s.cfg.Engines)
	for i, p := range s.engines {
		for range each {
			select {
			case e := <-ready[i]:
				if e.Index < 0 || e.Index >= each {
					return fmt.Errorf("stack: %s announces engine %d of %d", p.name, e.Index, each)
				}
				s.Engines[i*each+e.Index] = e
			case <-p.done:
				return p.failure()
			case <-ctx.Done():
				return p.late(ctx.Err())
			}
		}
		for _, e := range s.Engines[i*each : (i+1)*each] {
			if err := p.await(ctx, e.URL()+"/health"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Stack) startPicker(ctx context.Context) error {
	if !s.cfg.Picker {
		return nil
	}
	endpoints := s.cfg.Endpoints
	if endpoints == nil {
		for _, e := range s.Engines {
			endpoints = append(endpoints, e.HTTP)
		}
	}
	listening := make(chan address, 8)
	p, err := s.run("warmroute", "warmroute", listens(listening), pickerArgs(endpoints, s.cfg.PickerArgs)...)
	if err != nil {
		return err
	}
	s.picker = p
	for s.Picker.ExtProc == "" || s.Picker.Health == "" || s.Picker.Admin == "" {
		select {
		case a := <-listening:
			switch a.Service {
			case "extproc":
				s.Picker.ExtProc = a.Address
			case "health":
				s.Picker.Health = a.Address
			case "admin":
				s.Picker.Admin = a.Address
			}
		case <-p.done:
			return p.failure()
		case <-ctx.Done():
			return p.late(ctx.Err())
		}
	}
	return p.await(ctx, "http://"+s.Picker.Admin+"/readyz")
}

// get returns the status of a GET, 0 when there was no answer.
func get(ctx context.Context, url string) int {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}
