package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

func (s *Stack) startEnvoy(ctx context.Context) error {
	if s.cfg.Envoy == "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(s.cfg.Root, "envoy", s.cfg.Envoy+".yaml"))
	if err != nil {
		return fmt.Errorf("stack: %w", err)
	}
	engines := make([]string, len(s.Engines))
	for i, e := range s.Engines {
		engines[i] = e.HTTP
	}
	if text, err = rewrite(text, engines, s.Picker.ExtProc); err != nil {
		return fmt.Errorf("stack: envoy/%s.yaml: %w", s.cfg.Envoy, err)
	}
	config, adminPath := s.path("envoy.yaml"), s.path("envoy-admin")
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return fmt.Errorf("stack: %w", err)
	}
	// Without its own base id a second Envoy on the machine does not start;
	// without the flush interval the access log is ten seconds late.
	s.envoy, err = s.run("envoy", "envoy", nil, "--config-path", config, "--admin-address-path", adminPath,
		"--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning", "--file-flush-interval-msec", "20",
		"--drain-time-s", "1", "--parent-shutdown-time-s", "2")
	if err != nil {
		return err
	}
	for s.Admin == "" {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-s.envoy.done:
			return s.envoy.failure()
		case <-ctx.Done():
			return s.envoy.late(ctx.Err())
		}
		if addr, err := os.ReadFile(adminPath); err == nil && len(addr) > 0 {
			s.Admin = "http://" + strings.TrimSpace(string(addr))
		}
	}
	if err := s.envoy.await(ctx, s.Admin+"/ready"); err != nil {
		return err
	}
	s.URL, err = listener(ctx, s.Admin)
	return err
}

// rewrite replaces the addresses of a configuration in envoy/ and nothing else:
// every port Envoy listens on becomes a free one, the members of the cluster
// "engines" become engines and the one of "picker" becomes picker. A cluster
// without members, such as ORIGINAL_DST, stays as it is.
func rewrite(text []byte, engines []string, picker string) ([]byte, error) {
	var bootstrap map[string]any
	if err := yaml.Unmarshal(text, &bootstrap); err != nil {
		return nil, err
	}
	if err := setAddress(bootstrap["admin"], "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	resources, _ := bootstrap["static_resources"].(map[string]any)
	listeners, _ := resources["listeners"].([]any)
	if len(listeners) == 0 {
		return nil, errors.New("no listener")
	}
	for _, l := range listeners {
		if err := setAddress(l, "127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("listener: %w", err)
		}
	}
	clusters, _ := resources["clusters"].([]any)
	members := map[string][]string{"engines": engines, "picker": {picker}}
	for _, c := range clusters {
		cluster, _ := c.(map[string]any)
		name, _ := cluster["name"].(string)
		addrs, known := members[name]
		if !known {
			return nil, fmt.Errorf("cluster %q is neither engines nor picker", name)
		}
		assignment, ok := cluster["load_assignment"].(map[string]any)
		if !ok {
			continue
		}
		endpoints := make([]any, len(addrs))
		for i, addr := range addrs {
			endpoint := map[string]any{"address": nil}
			if err := setAddress(endpoint, addr); err != nil {
				return nil, fmt.Errorf("cluster %s: %w", name, err)
			}
			endpoints[i] = map[string]any{"endpoint": endpoint}
		}
		assignment["endpoints"] = []any{map[string]any{"lb_endpoints": endpoints}}
	}
	return yaml.Marshal(bootstrap)
}

// setAddress sets the address field of an admin, listener or endpoint object.
func setAddress(object any, hostport string) error {
	m, ok := object.(map[string]any)
	if !ok {
		return errors.New("not an object")
	}
	addr, err := netip.ParseAddrPort(hostport)
	if err != nil {
		return err
	}
	m["address"] = map[string]any{"socket_address": map[string]any{
		"address": addr.Addr().String(), "port_value": addr.Port(),
	}}
	return nil
}

// listener asks Envoy on which port its first listener ended up.
func listener(ctx context.Context, admin string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, admin+"/listeners?format=json", nil)
	if err != nil {
		return "", fmt.Errorf("stack: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("stack: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "", fmt.Errorf("stack: %w", err)
	}
	var status struct {
		Listeners []struct {
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(body, &status); err != nil || len(status.Listeners) == 0 {
		return "", fmt.Errorf("stack: envoy names no listener: %q", body)
	}
	at := status.Listeners[0].Local.Socket
	return fmt.Sprintf("http://%s:%d", at.Address, at.Port), nil
}
