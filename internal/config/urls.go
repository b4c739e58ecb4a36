package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"evenkeel/internal/secret"
)

// apiPaths are ends of what is pasted instead of a base URL, the longest first.
var apiPaths = []string{
	"/v1/chat/completions", "/chat/completions", "/v1/completions", "/completions", "/v1/messages", "/messages",
	"/v1/responses", "/responses", "/v1/embeddings", "/embeddings", "/v1/models",
}

// poolPrefix stands before the scheme of a pool's URL: each address of the host is an endpoint of its own.
const poolPrefix = "dns+"

// canonicalURL checks the address of an endpoint and brings it into one form: lower-case scheme and host, no default
// port, no final slash and no final /v1, since requests bring their own /v1/... . Its errors never hold the address.
func canonicalURL(text string) (string, error) {
	if !strings.Contains(text, "://") {
		return "", errors.New("needs http:// or https:// in front")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil && strings.Contains(text, "://["):
		return "", errIPv6
	case err != nil && bareIPv6(text):
		return "", errors.New("has an IPv6 address without brackets; write it as in http://[::1]:8000")
	case err != nil:
		return "", errors.New("is not a URL such as http://10.0.0.1:8000")
	}
	scheme, isPool := strings.CutPrefix(strings.ToLower(u.Scheme), poolPrefix)
	switch {
	case scheme != "http" && scheme != "https" && isPool:
		return "", errors.New("must start with dns+http:// or dns+https://")
	case scheme != "http" && scheme != "https":
		return "", errors.New("must start with http:// or https://")
	case u.User != nil:
		return "", errors.New("must not hold a user or password; write the credential as api_key")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(text, "#"):
		return "", errors.New("must not hold ? or #; write host and path only")
	case u.Hostname() == "" || strings.ContainsAny(u.Hostname(), " \t"):
		return "", errors.New("has no host; write http://HOST:PORT")
	}
	host, err := canonicalHost(u, scheme)
	if err != nil {
		return "", err
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	for _, api := range apiPaths {
		if strings.HasSuffix(path, api) {
			return "", fmt.Errorf("ends in %s, which requests bring themselves; write the base URL, without %s", api, api)
		}
	}
	path = strings.TrimRight(strings.TrimSuffix(path, "/v1"), "/")
	if isPool {
		if _, err := netip.ParseAddr(u.Hostname()); err == nil {
			return "", errors.New("holds an address, and dns+ is for a name that has several; write it without dns+")
		}
		scheme = poolPrefix + scheme
	}
	return scheme + "://" + host + path, nil
}

// PoolHost returns the name whose addresses are this endpoint's members; false if it is a single endpoint.
func (e *Endpoint) PoolHost() (host string, ok bool) {
	rest, ok := strings.CutPrefix(e.URL, poolPrefix)
	if !ok {
		return "", false
	}
	u, err := url.Parse(rest)
	if err != nil {
		return "", false
	}
	return u.Hostname(), true
}

// Member returns the endpoint that a pool has at an address: like the pool, and named after both. The name of the host
// stays in its URL, for the Host header and TLS.
func (e *Endpoint) Member(address netip.Addr) Endpoint {
	m := *e
	m.URL = strings.TrimPrefix(e.URL, poolPrefix)
	port := "80"
	if u, err := url.Parse(m.URL); err == nil && u.Port() != "" {
		port = u.Port()
	} else if strings.HasPrefix(m.URL, "https:") {
		port = "443"
	}
	m.Address = net.JoinHostPort(address.String(), port)
	m.Name = e.Name + "@" + m.Address
	return m
}

// canonicalProxy checks the address of an egress proxy. Its errors never hold the address.
func canonicalProxy(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || !strings.Contains(text, "://"):
		return "", errors.New("is not an address such as http://10.0.0.9:3128")
	case strings.ToLower(u.Scheme) != "http":
		return "", errors.New("must start with http://, which is how the proxy is spoken to; HTTPS endpoints go through it encrypted all the same")
	case u.User != nil:
		return "", errors.New("must not hold a user or password, which this version does not send")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(text, "#") || strings.Trim(u.Path, "/") != "":
		return "", errors.New("must be host and port only, such as http://10.0.0.9:3128")
	case u.Hostname() == "" || strings.ContainsAny(u.Hostname(), " \t"):
		return "", errors.New("has no host; write http://HOST:PORT")
	}
	host, err := canonicalHost(u, "http")
	if err != nil {
		return "", err
	}
	return "http://" + host, nil
}

var errIPv6 = errors.New("has an IPv6 address that is not one; write it as in http://[::1]:8000")

// bareIPv6 reports whether a URL's host is an IPv6 address without brackets, perhaps with a port behind it.
func bareIPv6(text string) bool {
	_, host, _ := strings.Cut(text, "://")
	host, _, _ = strings.Cut(host, "/")
	address, err := netip.ParseAddr(host)
	return err == nil && address.Is6()
}

func canonicalHost(u *url.URL, scheme string) (string, error) {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if strings.Contains(host, ":") {
		if net.ParseIP(strings.SplitN(host, "%", 2)[0]) == nil {
			return "", errIPv6
		}
		host = "[" + strings.ReplaceAll(host, "%", "%25") + "]"
	}
	if strings.HasSuffix(u.Host, ":") {
		return "", errors.New("has a colon without a port")
	}
	if port == "" {
		return host, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", errors.New("has a port outside of 1 to 65535")
	}
	if scheme == "http" && n == 80 || scheme == "https" && n == 443 {
		return host, nil
	}
	return host + ":" + strconv.FormatUint(n, 10), nil
}

// showURL quotes an address for a message without what may be a secret in it: user, password and query.
func showURL(text string) string {
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		scheme := ""
		if j := strings.Index(text, "://"); j >= 0 && j < i {
			scheme = text[:j+3]
		}
		text = scheme + secret.Redacted + text[i:]
	}
	if i := strings.IndexAny(text, "?#"); i >= 0 {
		text = text[:i+1] + "..."
	}
	return show(text)
}

// FromURLs returns the configuration of a command line with addresses only. Each endpoint is named by its host and
// port, is asked what it is, and gets upstreamKey. As with Load, Validate lists the problems of the error again, and others.
func FromURLs(urls []string, upstreamKey secret.String) (*Config, error) {
	c := Default()
	var r report
	first := map[string]string{}
	for _, text := range urls {
		canonical, err := canonicalURL(text)
		if err != nil {
			r.problem(place{}, nil, "URL %s %s", showURL(text), err)
			continue
		}
		_, name, _ := strings.Cut(canonical, "://")
		name, _, _ = strings.Cut(name, "/")
		if before, again := first[name]; again {
			r.problem(place{}, nil, "URLs %s and %s are both named %s; remove one, or name them in a config file",
				showURL(before), showURL(text), name)
			continue
		}
		first[name] = text
		endpoint := Endpoint{Name: name, URL: canonical, APIKey: upstreamKey}
		endpoint.setDefaults()
		c.Endpoints = append(c.Endpoints, endpoint)
	}
	if len(urls) == 0 {
		r.problem(place{}, nil, "no URL of an endpoint; write one such as http://10.0.0.1:8000")
	}
	c.decoded = r
	return &c, r.err()
}
