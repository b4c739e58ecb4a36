package config

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// exposure checks who can reach the listeners against what protects them.
func (v *validator) exposure() {
	c, root := v.config, (*path)(nil)
	listen, admin := v.address(root.key("listen"), c.Listen, true), v.address(root.key("admin"), c.Admin, false)
	metrics := v.address(root.key("metrics"), c.Metrics, false)
	known := len(c.VirtualKeys) > 0 || c.TLS.ClientCA != "" // who connects
	if listen.beyond && !known && c.Auth != AuthNone && !v.broken.has("virtual_keys") && !v.broken.has("tls") && !v.broken.has("tls.client_ca") {
		v.fail(root.key("listen"), "%s is reachable by others without a key; write virtual_keys, tls with client_ca, or auth: none (--no-auth) to serve everybody", c.Listen)
	}
	if listen.beyond && c.Credentials == CredentialsClient {
		v.fail(root.key("credentials"), "client passes every caller's key on, which is allowed on loopback only; listen on 127.0.0.1 or use api_key")
	}
	if c.Credentials == CredentialsClient && len(c.VirtualKeys) > 0 {
		v.fail(root.key("credentials"), "client would send virtual keys upstream; remove credentials or virtual_keys")
	}
	if c.Auth == AuthNone && len(c.VirtualKeys) > 0 {
		v.fail(root.key("auth"), "none contradicts virtual_keys; remove one of them")
	}
	if admin.beyond && c.AdminTLS.ClientCA == "" && !v.broken.has("admin_tls") && !v.broken.has("admin_tls.client_ca") {
		v.fail(root.key("admin"), "%s is reachable by others, and the admin listener knows them by client certificates only; write admin_tls with client_ca, or listen on 127.0.0.1 (for scrapers there is metrics:)", c.Admin)
	}
	v.loops(listen, admin, metrics)
	all := []bound{{"listen", c.Listen, Default().Listen, listen}, {"admin", c.Admin, Default().Admin, admin}, {"metrics", c.Metrics, "", metrics}}
	for i, b := range all {
		for _, a := range all[:i] {
			if a.port != 0 && a.port == b.port && a.host == b.host {
				v.sameAddress(a, b)
			}
		}
	}
}

// bound is the key of a listener, its address as written, and that by default.
type bound struct {
	key, text, usual string
	listener
}

// sameAddress reports two listeners at one address: at b, unless that is where it is by default and a was moved there.
func (v *validator) sameAddress(a, b bound) {
	byDefault := func(l bound) bool { return l.text == l.usual && !v.written((*path)(nil).key(l.key)) }
	if byDefault(b) {
		a, b = b, a
	}
	note := ""
	if byDefault(a) {
		note = ", which is its default"
	}
	v.fail((*path)(nil).key(b.key), "%s is the address of %s too%s; give one of them another port", b.text, a.key, note)
}

type listener struct {
	host   string
	port   uint16 // 0: chosen by the system, or off
	beyond bool   // other machines can reach it
}

// address reads host:port. A host that is a name counts as reachable by others, but for localhost.
func (v *validator) address(at *path, text string, needed bool) listener {
	if text == "" {
		if needed {
			v.fail(at, "is empty; write an address such as 127.0.0.1:8080")
		}
		return listener{}
	}
	host, port, err := net.SplitHostPort(text)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || strings.ContainsAny(host, " \t/@") {
		v.fail(at, "must be host:port such as 127.0.0.1:8080, is %s", show(text))
		return listener{}
	}
	ip, err := netip.ParseAddr(host)
	loopback := err == nil && ip.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
	return listener{host, uint16(n), !loopback}
}
