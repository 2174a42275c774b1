package native

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// unbounded returns the tokenizer.json with its truncation and padding sections
// set to null: the library honours them on every encode, and engines switch them
// off. The text is otherwise left alone, so that the library reads the file as it
// is; data itself is not changed.
func unbounded(data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, errors.New("tokenizer is empty")
	}
	if uint64(len(data)) > math.MaxUint32 {
		return nil, fmt.Errorf("tokenizer of %d bytes: the library reads at most 4 GiB", len(data))
	}
	var out []byte
	done := 0 // data[:done] is in out
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("tokenizer is not a JSON object")
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
		switch key {
		case "truncation", "padding":
			end := int(dec.InputOffset())
			out = append(out, data[done:end-len(value)]...)
			out = append(out, "null"...)
			done = end
		case "version":
			// The library knows no other version, and its message for one with a NUL
			// in it would end the process.
			if string(value) != `"1.0"` {
				return nil, fmt.Errorf("tokenizer has version %s, want \"1.0\"", value)
			}
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if done == 0 {
		return data, nil
	}
	return append(out, data[done:]...), nil
}
