package console

import (
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// guard keeps web pages out. The console listens where the operator's browser can reach it, so any page the
// browser shows could ask it: a page of another origin says so in Origin; a page that lets its own name
// point to this address (DNS rebinding) is same-origin for the browser, but the Host header then holds its
// name. So the host must be an address, localhost, or a name that was configured.
func guard(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		if !hostAllowed(r.Host, names) {
			writeText(w, http.StatusForbidden, fmt.Sprintf(
				"host %q is refused, since a page of another site could use a name of its own: ask by %s; more names are those of the certificate in admin_tls, and the host of admin: in the configuration\n",
				shortened(r.Host), askable(names)))
			return
		}
		for _, origin := range r.Header.Values("Origin") {
			if !sameOrigin(origin, r.Host) {
				writeText(w, http.StatusForbidden, fmt.Sprintf("requests from pages of %q are refused\n", shortened(origin)))
				return
			}
		}
		order := r.Method == http.MethodPost && r.URL.Path == ordersPath
		if r.Method != http.MethodGet && r.Method != http.MethodHead && !order {
			h.Set("Allow", "GET, HEAD")
			writeText(w, http.StatusMethodNotAllowed, fmt.Sprintf("method %q is refused: the console only answers GET and HEAD, and POST to %s\n", shortened(r.Method), ordersPath))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostAllowed judges a Host header. Without one (HTTP/1.0) it was no browser.
func hostAllowed(host string, names []string) bool {
	if host == "" {
		return true
	}
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		name = host[1 : len(host)-1]
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	name = strings.TrimSuffix(name, ".")
	return strings.EqualFold(name, "localhost") || slices.ContainsFunc(names, func(n string) bool { return n != "" && strings.EqualFold(n, name) })
}

// askable lists what a client may ask by.
func askable(names []string) string {
	list := []string{"IP address", "localhost"}
	for _, name := range names {
		if _, err := netip.ParseAddr(name); err != nil && name != "" && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}

func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.EqualFold(u.Host, host)
}

// wantsText reports whether an answer is to be text. JSON is the default; ?format= says otherwise, and so
// does an Accept header that prefers text/plain.
func wantsText(r *http.Request) (bool, error) {
	switch format := r.URL.Query().Get("format"); format {
	case "text":
		return true, nil
	case "json":
		return false, nil
	case "":
		return prefersText(strings.Join(r.Header.Values("Accept"), ",")), nil
	default:
		return false, fmt.Errorf("format %q is not known: it is text or json", shortened(format))
	}
}

// prefersText reads an Accept header: of text/plain and application/json, the one with the higher quality
// wins, the first of equals. Wildcards leave the default.
func prefersText(accept string) bool {
	best, text := 0.0, false
	for part := range strings.SplitSeq(accept, ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err != nil || kind != "text/plain" && kind != "application/json" {
			continue
		}
		quality := 1.0
		if q, ok := params["q"]; ok {
			if quality, err = strconv.ParseFloat(q, 64); err != nil || !(quality >= 0 && quality <= 1) {
				continue
			}
		}
		if quality > best {
			best, text = quality, kind == "text/plain"
		}
	}
	return text
}
