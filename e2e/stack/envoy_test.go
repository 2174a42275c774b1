package stack

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRewriteChangesEveryAddressAndNothingElse(t *testing.T) {
	files, err := filepath.Glob("../../envoy/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no configuration in envoy/: %v", err)
	}
	engines, picker := []string{"127.0.0.1:41001", "127.0.0.1:41002"}, "127.0.0.1:41003"
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			after, err := rewrite(before, engines, picker)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]int{"41001": 1, "41002": 1, "41003": 1}
			if strings.HasPrefix(filepath.Base(file), "original-dst") {
				want["41001"], want["41002"] = 0, 0
			}
			if strings.HasPrefix(filepath.Base(file), "round-robin") {
				want["41003"] = 0
			}
			for port, n := range want {
				if got := strings.Count(string(after), port); got != n {
					t.Errorf("port %s stands %d times, want %d", port, got, n)
				}
			}
			for _, port := range []string{"port_value: 9901", "port_value: 10000", "port_value: 9002", "port_value: 800"} {
				if strings.Contains(string(after), port) {
					t.Errorf("%s is still there", port)
				}
			}
			again, err := rewrite(after, engines, picker)
			if err != nil || !slices.Equal(again, after) {
				t.Errorf("rewriting twice differs from once: %v", err)
			}
		})
	}
}
