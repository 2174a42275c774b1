package stack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
)

// Decisions asks the picker's metrics how many picks were made, by reason.
func (s *Stack) Decisions(ctx context.Context) (map[string]int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Picker.Admin+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("stack: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("stack: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("stack: metrics: %w", err)
	}
	return decisions(text)
}

// decisions sums warmroute_decisions_total over all labels but the reason. No
// such series means that nothing has been picked yet.
func decisions(exposition []byte) (map[string]int, error) {
	line := regexp.MustCompile(`^warmroute_decisions_total\{(?:.*,)?reason="([a-z_]+)"(?:,.*)?\} (\S+)\s*$`)
	counts := map[string]int{}
	for text := range bytes.Lines(exposition) {
		m := line.FindSubmatch(text)
		if m == nil {
			continue
		}
		n, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			return nil, fmt.Errorf("stack: metric %q: %w", text, err)
		}
		counts[string(m[1])] += int(n)
	}
	return counts, nil
}
