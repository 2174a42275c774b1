package main

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/protobuf/types/known/durationpb"

	warmroutev1 "github.com/warmroute/warmroute/proto/warmroute/v1"
	"github.com/warmroute/warmroute/proto/warmroute/v1/warmroutev1connect"
	"github.com/warmroute/warmroute/scheduler"
)

// adminHandler serves the admin port: metrics, probes and the admin service
// (JSON for curl and browsers, gRPC for tools). It never shows prompt text.
func (p *picker) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.telemetry.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { ok(w) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-p.fleet.probed:
			ok(w)
		default:
			http.Error(w, "endpoints are still being asked who they are", http.StatusServiceUnavailable)
		}
	})
	mux.Handle(warmroutev1connect.NewAdminServiceHandler(adminService{p}))
	return mux
}

func ok(w http.ResponseWriter) {
	_, _ = w.Write([]byte("ok\n")) // the prober has gone; there is nobody to tell
}

// adminService answers what the picker believes.
type adminService struct{ p *picker }

// ListEndpoints implements the AdminService.
func (a adminService) ListEndpoints(
	context.Context, *connect.Request[warmroutev1.ListEndpointsRequest],
) (*connect.Response[warmroutev1.ListEndpointsResponse], error) {
	now := time.Now()
	var answer warmroutev1.ListEndpointsResponse
	eps := slices.Clone(a.p.pool.Snapshot())
	slices.SortFunc(eps, func(x, y *scheduler.Endpoint) int {
		return cmp.Or(x.Addr.Compare(y.Addr), cmp.Compare(x.Rank, y.Rank))
	})
	for _, e := range eps {
		answer.Endpoints = append(answer.Endpoints, a.endpoint(e, now))
	}
	return connect.NewResponse(&answer), nil
}

func (a adminService) endpoint(e *scheduler.Endpoint, now time.Time) *warmroutev1.Endpoint {
	stats := a.p.index.EndpointStats(e.ID)
	out := &warmroutev1.Endpoint{
		Address:   e.Addr.String(),
		Up:        e.Up,
		BaseModel: e.Base,
		BlockSize: int32(cmp.Or(e.BlockSize, a.p.index.BlockSize(e.ID))), //nolint:gosec // tokens a block, a small number
		KvBlocks:  int64(e.KVBlocks),
	}
	for _, n := range stats.Blocks {
		out.BlocksHeld += int64(n)
	}
	if e.Rank >= 0 {
		rank := int32(e.Rank) //nolint:gosec // a data-parallel rank
		out.Rank = &rank
	}
	for _, m := range e.Models {
		out.Models = append(out.Models, &warmroutev1.Model{Name: m.Name, Adapter: m.Adapter})
	}
	if !e.Load.At.IsZero() {
		out.Load = &warmroutev1.Load{
			Waiting: int32(e.Load.Waiting), //nolint:gosec // requests queued at one engine
			Running: int32(e.Load.Running), //nolint:gosec // requests running at one engine
			KvUsage: e.Load.KVUsage,
			Age:     durationpb.New(now.Sub(e.Load.At)),
		}
	}
	out.Events = a.p.fleet.eventStreams(e, now)
	return out
}
