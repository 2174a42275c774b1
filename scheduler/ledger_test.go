package scheduler

import (
	"math"
	"testing"
	"time"
)

// sec is a time or a duration in seconds.
func sec(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func TestLedger(t *testing.T) {
	type pick struct{ at, work float64 }
	for _, tt := range []struct {
		name  string
		picks []pick
		load  *Load // seen at now
		now   float64
		want  float64 // pending seconds
	}{
		{"nothing was sent", nil, nil, 0, 0},
		{"work is pending at once", []pick{{0, 2}}, nil, 0, 2},
		{"work drains", []pick{{0, 2}}, nil, 1.5, 0.5},
		{"work never turns negative", []pick{{0, 2}}, nil, 9, 0},
		{"work adds up while busy", []pick{{0, 2}, {1, 2}}, nil, 1, 3},
		{"idle time is not saved up", []pick{{0, 1}, {5, 1}}, nil, 5, 1},
		{"an idle report ends seen work", []pick{{0, 60}}, &Load{}, 5, 0},
		{"an idle report does not end work it cannot have seen", []pick{{4.5, 60}}, &Load{}, 5, 59.5},
		{"an empty queue leaves at most one prompt", []pick{{0, 30}, {0, 20}, {0, 10}}, &Load{Running: 3}, 5, 10},
		{"a queue keeps at least the newest prompts", []pick{{0, 1}, {0, 2}, {0, 1}}, &Load{Running: 1, Waiting: 2}, 9, 3},
		{"a queue keeps at most one more than wait", []pick{{0, 10}, {0, 10}, {0, 10}, {0, 10}}, &Load{Running: 1, Waiting: 2}, 5, 30},
		{"a queue of others is not ours", []pick{{0, 1}}, &Load{Running: 1, Waiting: 50}, 9, 1},
		{"a pick that may wait already is not counted twice", []pick{{0, 4}, {4.9, 1}}, &Load{Running: 1, Waiting: 1}, 5, 1},
		{"a pick after the sample comes on top of the queue", []pick{{0, 4}, {1, 4}, {5.1, 1}}, &Load{Running: 1, Waiting: 1}, 5, 5},
		{"unseen work comes on top", []pick{{0, 10}, {4.9, 1}}, &Load{Running: 1}, 5, 6},
	} {
		l := newLedger()
		for _, p := range tt.picks {
			l.reserve(sec(p.at), sec(p.work), 100)
		}
		if tt.load != nil {
			l.observe(sec(tt.now), tt.load)
		}
		if got := l.pending(sec(tt.now)).Seconds(); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: pending %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestLedgerCountsUnseenPicks(t *testing.T) {
	l := newLedger()
	l.reserve(0, 10*time.Millisecond, 100)
	l.reserve(sec(1), 10*time.Millisecond, 30)
	if got := l.unseen.Load(); got != 2 {
		t.Errorf("before a report: %d unseen, want 2", got)
	}
	l.observe(sec(1.05), &Load{Running: 1})
	if got, tokens := l.unseen.Load(), l.unseenTokens.Load(); got != 1 || tokens != 30 {
		t.Errorf("after a report: %d unseen with %d tokens, want 1 with 30", got, tokens)
	}
	l.restart()
	if got := l.unseen.Load(); got != 0 || l.pending(sec(1)) != 0 {
		t.Errorf("after a restart: %d unseen", got)
	}
}

// A speed that is assumed three times too low must not let the backlog of a
// busy engine grow without end.
func TestLedgerIsBoundedWhenEngineIsFaster(t *testing.T) {
	l := newLedger()
	for i := range 10_000 {
		now := sec(float64(i) / 10)
		l.reserve(now, 300*time.Millisecond, 100)
		l.observe(now, &Load{Running: 4})
	}
	if got := l.pending(sec(1000)); got > sec(3) {
		t.Errorf("pending %v, want a few prompts", got)
	}
	if len(l.picks) > ledgerSize {
		t.Errorf("%d picks kept, want at most %d", len(l.picks), ledgerSize)
	}
}

func TestLedgerKeepsBusyWorkBehindAQueueItCannotCount(t *testing.T) {
	l := newLedger()
	for range 2 * ledgerSize {
		l.reserve(0, time.Second, 100)
	}
	l.observe(sec(10), &Load{Running: 8, Waiting: 2 * ledgerSize})
	if got, want := l.pending(sec(10)), sec(2*ledgerSize-10); got != want {
		t.Errorf("pending %v, want %v", got, want)
	}
}
