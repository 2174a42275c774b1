package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warmroute/warmroute/e2e/stack"
)

const (
	modelName = "tiny"
	blockSize = 32 // the attention on the CPU takes multiples of 32
	blocks    = 80
	maxLength = 2048 // of a prompt with its answer, in tokens
	// startTime bounds the start of the engine: one minute when the machine is
	// idle and everything is compiled, four when it is not.
	startTime = 10 * time.Minute
)

// engine is a running vLLM.
type engine struct {
	url string
	log string
}

// paths are where make has put what the tests need.
type paths struct{ root, vllm, model, warmroute string }

func find(t *testing.T) paths {
	t.Helper()
	folder := os.Getenv("WARMROUTE_VLLM")
	if folder == "" {
		t.Skip("SKIPPED: a real vLLM is needed; `make e2e-vllm` installs one (5 GB) and runs this test")
	}
	root, err := stack.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	return paths{
		root: root, vllm: filepath.Join(folder, "venv", "bin", "vllm"), model: filepath.Join(folder, "model"),
		warmroute: filepath.Join(root, ".build", "bin", "warmroute"),
	}
}

// startEngine runs a vLLM until the test ends.
func startEngine(t *testing.T, p paths) *engine {
	t.Helper()
	port, events, replay := freePort(t), freePort(t), freePort(t)
	dir := filepath.Join(p.root, ".build", "e2e", "vllm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	e := &engine{url: fmt.Sprintf("http://127.0.0.1:%d", port), log: filepath.Join(dir, "vllm.log")}
	log, err := os.Create(e.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(p.vllm, "serve", p.model, "--served-model-name", modelName,
		"--host", "127.0.0.1", "--port", strconv.Itoa(port),
		"--dtype", "float32", "--enforce-eager", "--max-model-len", strconv.Itoa(maxLength), "--max-num-seqs", "8",
		"--max-num-batched-tokens", strconv.Itoa(maxLength),
		"--block-size", strconv.Itoa(blockSize), "--num-gpu-blocks-override", strconv.Itoa(blocks),
		"--enable-prefix-caching", "--enable-prompt-tokens-details",
		"--enable-auto-tool-choice", "--tool-call-parser", "hermes",
		"--kv-events-config", fmt.Sprintf(`{"enable_kv_cache_events": true, "publisher": "zmq", `+
			`"endpoint": "tcp://*:%d", "replay_endpoint": "tcp://*:%d"}`, events, replay))
	cmd.Env = append(os.Environ(),
		"VLLM_SERVER_DEV_MODE=1", "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1",
		"VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "HF_HUB_OFFLINE=1", "TOKENIZERS_PARALLELISM=false", "VLLM_HOST_IP=127.0.0.1")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil && cmd.ProcessState.ExitCode() > 0 {
				t.Logf("vLLM ended with %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("vLLM did not end within 30 s of SIGTERM")
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its workers
		if t.Failed() {
			t.Logf("the engine's log is %s", e.log)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+"/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return e
			}
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("vLLM ended: %v; its log is %s", err, e.log)
		case <-ctx.Done():
			t.Fatalf("vLLM did not start within %v; its log is %s", startTime, e.log)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// answer is what the tests read of the engine's answers, of every API.
type answer struct {
	status int
	body   []byte

	PromptTokenIDs []uint32 `json:"prompt_token_ids"` // chat
	InputTokens    *int     `json:"input_tokens"`     // Anthropic's count_tokens
	Tokens         []uint32 `json:"tokens"`           // /tokenize
	Choices        []struct {
		PromptTokenIDs []uint32 `json:"prompt_token_ids"` // completions
		Text           string   `json:"text"`
		Message        struct {
			Content string `json:"content"`
		} `json:"message"`
	} `json:"choices"`
	Usage struct {
		Input   *int `json:"input_tokens"`  // Responses
		Prompt  *int `json:"prompt_tokens"` // the others
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

// post sends v as JSON.
func post(t *testing.T, url string, v any) answer {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	a := answer{status: res.StatusCode}
	if a.body, err = io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	if a.status == http.StatusOK {
		if err := json.Unmarshal(a.body, &a); err != nil {
			t.Fatalf("%s: %v: %s", url, err, a.body)
		}
	}
	return a
}

// ids returns the prompt's tokens as the engine reports them.
func (a *answer) ids() []uint32 {
	if a.PromptTokenIDs == nil && len(a.Choices) > 0 {
		return a.Choices[0].PromptTokenIDs
	}
	return a.PromptTokenIDs
}

// tokenized is a line of `warmroute tokenize --jsonl`.
type tokenized struct {
	Tokens []uint32 `json:"tokens"`
	Exact  bool     `json:"exact"`
	Reason string   `json:"reason"`
}

// warmrouteTokenize runs the command over all requests.
func warmrouteTokenize(t *testing.T, p paths, requests []request) []tokenized {
	t.Helper()
	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	for _, r := range requests {
		if err := enc.Encode(map[string]any{"path": r.path, "body": r.body}); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), p.warmroute, "tokenize", "--tokenizer", p.model, "--jsonl")
	cmd.Stdin = &in
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("warmroute tokenize: %v: %s", err, stderr.String())
	}
	var all []tokenized
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var line tokenized
		if err := dec.Decode(&line); err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	if len(all) != len(requests) {
		t.Fatalf("warmroute tokenize printed %d lines for %d requests", len(all), len(requests))
	}
	return all
}
