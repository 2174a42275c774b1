package replay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Result is what one request met. Times are wall time.
type Result struct {
	Err       error
	Engine    string        // the engine that answered, by its x-engine header
	TTFT      time.Duration // from sending to the first generated text
	E2E       time.Duration // from sending to the end of the answer
	Prompt    int           // usage.prompt_tokens
	Cached    int           // usage.prompt_tokens_details.cached_tokens
	Completed int           // usage.completion_tokens
}

// Progress counts the requests of a replay under way.
type Progress struct {
	Total, Sent, Done, Failed int // Failed are among Done
}

// Run sends every call to base when its time comes, whether or not earlier ones
// are answered, and returns one result per call. A failed request is a result;
// the error is ctx's, when it ends early. progress, when not nil, is called after each
// change by one goroutine at a time.
func Run(ctx context.Context, base string, calls []Call, progress func(Progress)) ([]Result, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}

	var mu sync.Mutex
	state := Progress{Total: len(calls)}
	change := func(f func(*Progress)) {
		mu.Lock()
		defer mu.Unlock()
		f(&state)
		if progress != nil {
			progress(state)
		}
	}

	results := make([]Result, len(calls))
	var sent sync.WaitGroup
	start := time.Now()
	for i := range calls {
		select {
		case <-time.After(time.Until(start.Add(calls[i].At))):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		change(func(p *Progress) { p.Sent++ })
		sent.Go(func() {
			results[i] = send(ctx, client, base, calls[i].Body)
			change(func(p *Progress) {
				p.Done++
				if results[i].Err != nil {
					p.Failed++
				}
			})
		})
	}
	sent.Wait()
	return results, ctx.Err()
}

func send(ctx context.Context, client *http.Client, base string, body []byte) (r Result) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return Result{Err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	start := time.Now()
	res, err := client.Do(req)
	if err != nil {
		return Result{Err: err}
	}
	defer res.Body.Close()
	r.Engine = res.Header.Get("X-Engine")
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 512)) // for the message only
		r.Err = fmt.Errorf("replay: status %d: %s", res.StatusCode, bytes.TrimSpace(text))
		return r
	}
	r.Err = r.read(res.Body, func() time.Duration { return time.Since(start) })
	return r
}

// chunk is what is read of one chat.completion.chunk.
type chunk struct {
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		Prompt    int `json:"prompt_tokens"`
		Completed int `json:"completion_tokens"`
		Details   *struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// read takes the server-sent events of an answer; since tells how long the
// request has been under way.
func (r *Result) read(body io.Reader, since func() time.Duration) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	usage := false
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			r.E2E = since()
			switch {
			case !usage:
				return errors.New("replay: the answer has no usage")
			case r.TTFT == 0:
				return errors.New("replay: the answer has no text")
			}
			return nil
		}
		var c chunk
		if err := json.Unmarshal(data, &c); err != nil {
			return fmt.Errorf("replay: event %q: %w", data, err)
		}
		if len(c.Error) > 0 {
			return fmt.Errorf("replay: the answer ends with an error: %s", c.Error)
		}
		if r.TTFT == 0 && len(c.Choices) > 0 && c.Choices[0].Delta.Content != "" {
			r.TTFT = since()
		}
		if c.Usage != nil {
			usage = true
			r.Prompt, r.Completed = c.Usage.Prompt, c.Usage.Completed
			if c.Usage.Details != nil {
				r.Cached = c.Usage.Details.Cached
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	return errors.New("replay: the answer ends without [DONE]")
}
