package replay

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadTrace(t *testing.T) {
	got, err := ReadTrace(strings.NewReader(
		`{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [0, 7]}` + "\n" +
			`{"timestamp": 3000, "input_length": 512, "output_length": 1, "hash_ids": [0]}` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Record{{0, 600, 3, []int64{0, 7}}, {3000, 512, 1, []int64{0}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadTraceRejects(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"an empty trace", "", "empty"},
		{"a line that is not JSON", "{", "line 1"},
		{"a prompt of no tokens", `{"timestamp":0,"input_length":0,"output_length":1,"hash_ids":[]}`, "lengths"},
		{"too few ids for the length", `{"timestamp":0,"input_length":513,"output_length":1,"hash_ids":[1]}`, "1 hash ids for 513"},
		{
			"time that runs backwards",
			`{"timestamp":5,"input_length":1,"output_length":1,"hash_ids":[1]}` + "\n" + `{"timestamp":4,"input_length":1,"output_length":1,"hash_ids":[1]}`,
			"line 2",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ReadTrace(strings.NewReader(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestArrivalsStayInsideTheirTickAndInOrder(t *testing.T) {
	var records []Record
	for _, ms := range []int64{0, 0, 0, 3000, 3000, 7000, 7000, 7000} {
		records = append(records, Record{Timestamp: ms})
	}
	at := arrivals(records, 1)
	end := map[int64]time.Duration{0: 3 * time.Second, 3000: 7 * time.Second, 7000: 11 * time.Second}
	for i, r := range records {
		if from := time.Duration(r.Timestamp) * time.Millisecond; at[i] < from || at[i] > end[r.Timestamp] {
			t.Errorf("request %d arrives at %v, outside %v to %v", i, at[i], from, end[r.Timestamp])
		}
		if i > 0 && at[i] < at[i-1] {
			t.Errorf("request %d arrives before the one above it", i)
		}
	}
	if diff := cmp.Diff(at, arrivals(records, 1)); diff != "" {
		t.Errorf("the same seed gave other arrivals: %s", diff)
	}
	if cmp.Equal(at, arrivals(records, 2)) {
		t.Error("another seed gave the same arrivals")
	}
}
