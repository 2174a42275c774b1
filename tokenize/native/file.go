package native

import (
	"encoding/json"
	"fmt"
)

// AddedToken is a piece of text that a tokenizer takes for one token wherever
// it stands, before anything else looks at the text.
type AddedToken struct {
	ID      uint32 `json:"id"`
	Content string `json:"content"`
	Special bool   `json:"special"`
	// Normalized: it is looked for in the normalized text, behind the others.
	Normalized bool `json:"normalized"`
	LStrip     bool `json:"lstrip"`      // it takes the blanks before it along
	RStrip     bool `json:"rstrip"`      // and those behind it
	SingleWord bool `json:"single_word"` // it counts only between other words
}

// file is what Go needs to know of a tokenizer.json.
type file struct {
	AddedTokens  []AddedToken `json:"added_tokens"`
	Normalizer   *step        `json:"normalizer"`
	PreTokenizer *step        `json:"pre_tokenizer"`
	Model        struct {
		Type    string   `json:"type"`
		Dropout *float64 `json:"dropout"`
	} `json:"model"`
}

// step is a normalizer or a pre-tokenizer, or a sequence of them.
type step struct {
	Type           string `json:"type"`
	AddPrefixSpace *bool  `json:"add_prefix_space"`
	Normalizers    []step `json:"normalizers"`
	PreTokenizers  []step `json:"pretokenizers"`
}

func parseFile(data []byte) (*file, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return &f, nil
}

// normalizes reports whether text may be changed before it is encoded.
func (f *file) normalizes() bool {
	return f.Normalizer != nil && (f.Normalizer.Type != "Sequence" || len(f.Normalizer.Normalizers) > 0)
}

// byteLevel reports whether the tokens of a text spell it byte for byte, unless
// it is not in normal form C: what the fast engine can be checked by. Others are
// left to the reference.
func (f *file) byteLevel() bool {
	if f.Model.Dropout != nil || f.Model.Type != "" && f.Model.Type != "BPE" {
		return false
	}
	if f.normalizes() && f.Normalizer.Type != "NFC" {
		return false
	}
	if f.PreTokenizer == nil {
		return false
	}
	found := false
	for _, s := range append([]step{*f.PreTokenizer}, f.PreTokenizer.PreTokenizers...) {
		if s.Type == "ByteLevel" {
			found = true
			if s.AddPrefixSpace == nil || *s.AddPrefixSpace {
				return false
			}
		}
	}
	return found
}
