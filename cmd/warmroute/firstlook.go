package main

import (
	"context"
	"slices"
	"time"

	"github.com/warmroute/warmroute/extproc"
	"github.com/warmroute/warmroute/scheduler"
)

// firstLook is a picker for the moments after a start. Engines that were not
// asked yet count as down, and an answer that none can serve would fail a
// request that any of them takes: such a request waits for the answers first.
type firstLook struct {
	picker extproc.Picker
	done   <-chan struct{}         // closed once every engine has answered, or failed to
	serves func(model string) bool // some engine that has answered is up and serves it
	wait   time.Duration           // the longest a request waits
}

// lookAgain is the pause between two looks at the engines that have answered:
// some do long before the last one has failed to.
const lookAgain = 10 * time.Millisecond

// Pick is that of the picker, once it may know enough.
func (f *firstLook) Pick(ctx context.Context, req *scheduler.Request) (scheduler.Decision, error) {
	select {
	case <-f.done:
	default:
		f.await(ctx, req.Model)
	}
	return f.picker.Pick(ctx, req)
}

func (f *firstLook) await(ctx context.Context, model string) {
	late := time.NewTimer(f.wait)
	defer late.Stop()
	for !f.serves(model) {
		select {
		case <-f.done:
			return
		case <-late.C:
			return
		case <-ctx.Done():
			return
		case <-time.After(lookAgain):
		}
	}
}

// served reports whether an engine of the pool is up and serves model.
func (p *picker) served(model string) bool {
	return slices.ContainsFunc(p.pool.Snapshot(), func(e *scheduler.Endpoint) bool {
		return e.Up && (model == "" || len(e.Models) == 0 ||
			slices.ContainsFunc(e.Models, func(m scheduler.Model) bool { return m.Name == model }))
	})
}
