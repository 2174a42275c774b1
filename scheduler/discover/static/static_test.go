package static

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hosts is a resolver that knows a few names.
type hosts map[string][]string

func (h hosts) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	list, ok := h[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	var out []netip.Addr
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

func TestParse(t *testing.T) {
	resolver := hosts{
		"engine-0":  {"10.0.0.1"},
		"engines":   {"10.0.0.2", "10.0.0.3"},
		"localhost": {"::1", "127.0.0.1"},
		"six":       {"fd00::1", "fd00::2"},
		"mapped":    {"::ffff:10.0.0.9"},
		"empty":     {},
	}
	for _, tt := range []struct {
		name  string
		lists []string
		want  []string
		err   string
	}{
		{"nothing", nil, nil, ""},
		{"addresses with spaces and a trailing comma", []string{" 10.0.0.1:8000, 10.0.0.1:8001 ,"}, []string{"10.0.0.1:8000", "10.0.0.1:8001"}, ""},
		{"several lists", []string{"10.0.0.1:1", "10.0.0.2:1"}, []string{"10.0.0.1:1", "10.0.0.2:1"}, ""},
		{"an address named twice counts once", []string{"10.0.0.1:1,engine-0:1,[::ffff:10.0.0.1]:1"}, []string{"10.0.0.1:1"}, ""},
		{"IPv6 in brackets", []string{"[fd00::1]:8000"}, []string{"[fd00::1]:8000"}, ""},
		{"a name with several addresses is several engines", []string{"engines:80"}, []string{"10.0.0.2:80", "10.0.0.3:80"}, ""},
		{"both families name the same engine", []string{"localhost:80"}, []string{"127.0.0.1:80"}, ""},
		{"a name with IPv6 addresses only", []string{"six:80"}, []string{"[fd00::1]:80", "[fd00::2]:80"}, ""},
		{"IPv4 in IPv6 form", []string{"mapped:80"}, []string{"10.0.0.9:80"}, ""},
		{"a URL", []string{"http://10.0.0.1:8000/"}, nil, `static: endpoint "http://10.0.0.1:8000/": write 10.0.0.1:8000 without http://`},
		{"an address without a port", []string{"10.0.0.1"}, nil, `static: endpoint "10.0.0.1" has no port: write 10.0.0.1:8000`},
		{"IPv6 without brackets and port", []string{"fd00::1"}, nil, `static: endpoint "fd00::1" has no port: write [fd00::1]:8000`},
		{"IPv6 without brackets", []string{"fd00:0:0:0:0:0:0:1:8000"}, nil, `static: endpoint "fd00:0:0:0:0:0:0:1:8000": write an IPv6 address in brackets, [fd00:0:0:0:0:0:0:1]:8000`},
		{"brackets around something else", []string{"[engine]:1"}, nil, `static: endpoint "[engine]:1": "[engine]" is not an IPv6 address in brackets`},
		{"a name without a port", []string{"engine-0"}, nil, `static: endpoint "engine-0" has no port: write engine-0:8000`},
		{"a port that is a word", []string{"engine-0:http"}, nil, `static: endpoint "engine-0:http": port "http" is not a number from 1 to 65535`},
		{"port zero", []string{"engine-0:0"}, nil, `static: endpoint "engine-0:0": port "0" is not a number from 1 to 65535`},
		{"a port without a host", []string{":8000"}, nil, `static: endpoint ":8000" has no host: write 127.0.0.1:8000`},
		{"a wildcard", []string{"0.0.0.0:8000"}, nil, `static: endpoint "0.0.0.0:8000": 0.0.0.0 is where an engine listens, not where it is reached`},
		{"a zone", []string{"[fe80::1%eth0]:8000"}, nil, `static: endpoint "[fe80::1%eth0]:8000": a zone means nothing to the gateway: write an address without %eth0`},
		{"a name nobody knows", []string{"nowhere:1"}, nil, `static: endpoint "nowhere:1": lookup nowhere: no such host: check the name, or write an IP address`},
		{"a name without addresses", []string{"empty:1"}, nil, `static: endpoint "empty:1" has no address: check the name, or write an IP address`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addrs, err := Parse(t.Context(), resolver, tt.lists...)
			var got []string
			for _, a := range addrs {
				got = append(got, a.String())
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("addresses (-got +want):\n%s", diff)
			}
			message := ""
			if err != nil {
				message = err.Error()
			}
			if message != tt.err {
				t.Errorf("got error %q, want %q", message, tt.err)
			}
		})
	}
}
