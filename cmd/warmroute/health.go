package main

import (
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// healthServices are the names probes ask for: the whole server, the two a
// Kubernetes deployment uses, and the processor's own.
func healthServices() []string {
	return []string{"", "liveness", "readiness", extprocv3.ExternalProcessor_ServiceDesc.ServiceName}
}

// newHealth returns a health service that answers NOT_SERVING for all but
// liveness until ready is called.
func newHealth() *health.Server {
	h := health.NewServer()
	for _, name := range healthServices() {
		h.SetServingStatus(name, healthv1.HealthCheckResponse_NOT_SERVING)
	}
	h.SetServingStatus("liveness", healthv1.HealthCheckResponse_SERVING)
	return h
}

func setReady(h *health.Server) {
	for _, name := range healthServices() {
		h.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
}

// healthOnly is a gRPC server with nothing but the health service.
func healthOnly(h *health.Server) *grpc.Server {
	s := grpc.NewServer()
	healthv1.RegisterHealthServer(s, h)
	return s
}
