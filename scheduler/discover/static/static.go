// Package static reads a list of engine addresses that does not change.
package static

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Resolver looks up the addresses of a host; *net.Resolver is one. The network
// is "ip": addresses of both families.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Parse reads addresses, host:port each, where host is an IP address (an IPv6
// one in brackets) or a name that r resolves once, now. Each string may hold
// several, separated by commas. A name with several addresses stands for as
// many engines; when it has addresses of both families the IPv4 ones count,
// since both would name the same engine. Each address is returned once, in the
// order given. An error names the entry and what to write instead.
func Parse(ctx context.Context, r Resolver, lists ...string) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, list := range lists {
		for entry := range strings.SplitSeq(list, ",") {
			if entry = strings.TrimSpace(entry); entry == "" {
				continue
			}
			addrs, err := parse(ctx, r, entry)
			if err != nil {
				return nil, err
			}
			for _, a := range addrs {
				if !slices.Contains(out, a) {
					out = append(out, a)
				}
			}
		}
	}
	return out, nil
}

// parse returns the addresses of one entry.
func parse(ctx context.Context, r Resolver, entry string) ([]netip.AddrPort, error) {
	if scheme, rest, ok := strings.Cut(entry, "://"); ok {
		return nil, fmt.Errorf("static: endpoint %q: write %s without %s://", entry, strings.TrimRight(rest, "/"), scheme)
	}
	if ip, err := netip.ParseAddr(entry); err == nil {
		if ip.Is6() {
			return nil, fmt.Errorf("static: endpoint %q has no port: write [%s]:8000", entry, entry)
		}
		return nil, fmt.Errorf("static: endpoint %q has no port: write %s:8000", entry, entry)
	}
	i := strings.LastIndexByte(entry, ':')
	if i < 0 {
		return nil, fmt.Errorf("static: endpoint %q has no port: write %s:8000", entry, entry)
	}
	host, digits := entry[:i], entry[i+1:]
	port, err := strconv.ParseUint(digits, 10, 16)
	switch {
	case err != nil || port == 0:
		return nil, fmt.Errorf("static: endpoint %q: port %q is not a number from 1 to 65535", entry, digits)
	case host == "":
		return nil, fmt.Errorf("static: endpoint %q has no host: write 127.0.0.1:%d", entry, port)
	}

	var ips []netip.Addr
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		ip, err := netip.ParseAddr(inner)
		if !ok || err != nil {
			return nil, fmt.Errorf("static: endpoint %q: %q is not an IPv6 address in brackets", entry, host)
		}
		ips = []netip.Addr{ip}
	} else if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Is6() {
			return nil, fmt.Errorf("static: endpoint %q: write an IPv6 address in brackets, [%s]:%d", entry, host, port)
		}
		ips = []netip.Addr{ip}
	} else {
		ips, err = r.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, fmt.Errorf("static: endpoint %q: %w: check the name, or write an IP address", entry, err)
		}
	}
	return addresses(entry, ips, uint16(port))
}

// addresses joins ips and port.
func addresses(entry string, ips []netip.Addr, port uint16) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	has4 := slices.ContainsFunc(ips, func(ip netip.Addr) bool { return ip.Unmap().Is4() })
	for _, ip := range ips {
		ip = ip.Unmap()
		switch {
		case ip.IsUnspecified():
			return nil, fmt.Errorf("static: endpoint %q: %s is where an engine listens, not where it is reached", entry, ip)
		case ip.Zone() != "":
			return nil, fmt.Errorf("static: endpoint %q: a zone means nothing to the gateway: write an address without %%%s", entry, ip.Zone())
		case has4 && ip.Is6():
		default:
			out = append(out, netip.AddrPortFrom(ip, port))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("static: endpoint %q has no address: check the name, or write an IP address", entry)
	}
	return out, nil
}
