package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// minWords is the smallest vocabulary that makes blocks of different ids
// differ early.
const minWords = 256

// ReadWords returns the words that are one token of the byte-level BPE
// tokenizer in dir when a blank stands before them, in order.
func ReadWords(dir string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	var file struct {
		Model struct {
			Vocab map[string]int `json:"vocab"`
		} `json:"model"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("replay: %s: tokenizer.json: %w", dir, err)
	}
	var words []string
	for token := range file.Model.Vocab {
		// Byte-level BPE writes the blank as Ġ.
		word, ok := strings.CutPrefix(token, "Ġ")
		if ok && len(word) > 1 && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz") == "" {
			words = append(words, word)
		}
	}
	if len(words) < minWords {
		return nil, fmt.Errorf("replay: %s: %d words that are one token, want at least %d", dir, len(words), minWords)
	}
	slices.Sort(words)
	return words, nil
}

// Config says how a trace becomes requests.
type Config struct {
	Model  string   // model name written into each request
	Words  []string // vocabulary of the prompts, one token each
	Shrink int      // recorded tokens that one sent token stands for; divides BlockTokens
	Rate   float64  // load: 2 replays the arrivals in half their time
	Scale  float64  // simulated seconds per second of wall time, as the engines run
	Seed   uint64   // of the arrivals inside one tick of the trace
}

func (c *Config) validate() error {
	switch {
	case c.Shrink < 1 || BlockTokens%c.Shrink != 0:
		return fmt.Errorf("replay: shrink %d does not divide %d", c.Shrink, BlockTokens)
	case c.Rate <= 0 || c.Scale <= 0:
		return fmt.Errorf("replay: rate %g and scale %g, want more than 0", c.Rate, c.Scale)
	case len(c.Words) == 0:
		return errors.New("replay: no words")
	}
	return nil
}

// Call is one request to send.
type Call struct {
	At   time.Duration // wall time after the start of the replay
	Body []byte        // JSON body of a POST to /v1/chat/completions
}

// Plan turns a trace into requests, in order of arrival.
func Plan(trace []Record, cfg Config) ([]Call, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	calls := make([]Call, len(trace))
	for i, at := range arrivals(trace, cfg.Seed) {
		body, err := json.Marshal(chat(&trace[i], &cfg))
		if err != nil {
			return nil, fmt.Errorf("replay: request %d: %w", i, err)
		}
		calls[i] = Call{At: time.Duration(float64(at) / cfg.Rate / cfg.Scale), Body: body}
	}
	return calls, nil
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type chatRequest struct {
	Model         string         `json:"model"`
	Messages      []message      `json:"messages"`
	MaxTokens     int            `json:"max_tokens"`
	IgnoreEOS     bool           `json:"ignore_eos"`
	Stream        bool           `json:"stream"`
	StreamOptions map[string]any `json:"stream_options"`
}

// chat writes a record as a conversation: its first block as the system prompt,
// which almost all requests of a trace share, and the rest as the user's text.
// Where a message ends depends on positions alone, so equal leading ids are
// equal leading tokens.
func chat(rec *Record, cfg *Config) chatRequest {
	left := (rec.Input + cfg.Shrink - 1) / cfg.Shrink
	blocks := make([]string, len(rec.HashIDs))
	for i, id := range rec.HashIDs {
		n := min(left, BlockTokens/cfg.Shrink)
		blocks[i] = blockText(id, n, cfg.Words)
		left -= n
	}
	messages := []message{{"system", blocks[0]}}
	if len(blocks) == 1 {
		messages[0].Role = "user"
	} else {
		messages = append(messages, message{"user", strings.Join(blocks[1:], " ")})
	}
	return chatRequest{
		Model:         cfg.Model,
		Messages:      messages,
		MaxTokens:     max(1, (rec.Output+cfg.Shrink-1)/cfg.Shrink),
		IgnoreEOS:     true,
		Stream:        true,
		StreamOptions: map[string]any{"include_usage": true},
	}
}

// blockText is the first n words of the text that stands for a hash id.
func blockText(id int64, n int, words []string) string {
	random := rand.New(rand.NewPCG(uint64(id), 0x6b76)) // any constant; ids are small numbers
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(words[random.IntN(len(words))])
	}
	return b.String()
}
