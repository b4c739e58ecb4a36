package config

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// loops refuses endpoints that are this balancer itself, as far as the configuration alone can tell: the same port on
// an address that must be this machine's. What it cannot tell, the count of hops in requests does.
func (v *validator) loops(listen, admin, metrics listener) {
	for i := range v.config.Endpoints {
		e := &v.config.Endpoints[i]
		u, err := url.Parse(strings.TrimPrefix(e.URL, poolPrefix))
		if err != nil || e.URL == "" || e.Proxy != "" {
			continue
		}
		text := u.Port()
		if text == "" {
			text = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			continue
		}
		for _, own := range []struct {
			key string
			at  listener
		}{{"listen", listen}, {"admin", admin}, {"metrics", metrics}} {
			if own.at.port != 0 && own.at.port == uint16(port) && sameMachine(u.Hostname(), own.at.host) {
				v.fail((*path)(nil).keys("endpoints", e.Name, "url"), "is this balancer's own %s address; write the model server's address, or give %s another port", own.key, own.key)
			}
		}
	}
}

// sameMachine reports whether an endpoint's host leads to what listens at another, where the names tell.
func sameMachine(host, listening string) bool {
	if strings.EqualFold(host, listening) {
		return true
	}
	here := func(h string) (local, everywhere bool) {
		if strings.EqualFold(h, "localhost") {
			return true, false
		}
		ip, err := netip.ParseAddr(h)
		if err != nil {
			return false, h == ""
		}
		return ip.Unmap().IsLoopback() || ip.IsUnspecified(), ip.IsUnspecified()
	}
	local, _ := here(host)
	own, everywhere := here(listening)
	if !local || !own && !everywhere {
		return false
	}
	// Two addresses of loopback, such as 127.0.0.2 and 127.0.0.3, are not the same.
	a, errA := netip.ParseAddr(host)
	b, errB := netip.ParseAddr(listening)
	return everywhere || errA != nil || errB != nil || a.IsUnspecified() || a.Unmap() == b.Unmap()
}
