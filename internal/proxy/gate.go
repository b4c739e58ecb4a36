package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"evenkeel/internal/llm"
)

const (
	// mostHeaderLines bounds the header lines of a request: each costs memory and a look, whatever its size. Apache
	// httpd (LimitRequestFields) and Envoy (max_headers_count) take 100 by default.
	mostHeaderLines = 100
	// longestList bounds the value of Connection and of headers of ours, in bytes: they are lists that cost a look per
	// item, and some per deployment too.
	longestList = 4 << 10
	// mostHops is how many of us a request may have passed: more are no chain that anybody wants, but a loop.
	mostHops = 3
	// allowedMethods is the Allow header of a 405.
	allowedMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
)

// closing is the Connection header of an answer that is the last on its connection. It is shared and never changed.
var closing = []string{"close"}

// enter lets a request in by its head, or says why not. It returns the name of the request's key.
func (g *Generation) enter(w http.ResponseWriter, r *http.Request, api llm.API) (tenant string, failure *llm.Error) {
	if len(r.TransferEncoding) > 0 {
		// net/http does not tell whether there was a Content-Length too, which somebody before us may have gone by:
		// then what follows on the connection is not to be believed (RFC 9112 §6.1).
		w.Header()["Connection"] = closing
	}
	if failure = gate(w, r, api); failure != nil {
		if failure.Status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", allowedMethods)
		}
		return "", failure
	}
	return g.admit(r, api)
}

// gate says why a request's head cannot be served, nil if it can. It asks nobody: neither who sends it nor what is
// served here. What upstream could read otherwise than we do is refused, since what is behind us trusts our reading.
// It allocates nothing for a good request.
func gate(w http.ResponseWriter, r *http.Request, api llm.API) *llm.Error {
	if r.ProtoMajor == 1 && r.ProtoMinor > 1 || r.ProtoMajor > 2 {
		return refusal(http.StatusHTTPVersionNotSupported, "evenkeel_bad_version", "This server speaks HTTP/1.0, HTTP/1.1 and HTTP/2.")
	}
	mayHaveBody := true
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		mayHaveBody = false
	case http.MethodConnect:
		return noUpgrade()
	default: // methods are case-sensitive, RFC 9110 §9.1
		return refusal(http.StatusMethodNotAllowed, "evenkeel_bad_method", fmt.Sprintf("The method %q is not served here. Use one of %s.", clip(r.Method), allowedMethods))
	}
	local := api.Name == "models" && !mayHaveBody && r.Method != http.MethodOptions
	if bad := badPath(r.URL.Path, local); bad != "" {
		return refusal(http.StatusBadRequest, "evenkeel_bad_path", bad)
	}
	if failure := badHeader(r.Header); failure != nil {
		return failure
	}
	if !mayHaveBody && r.ContentLength != 0 {
		// Some servers do not read such a body, and take it for the next request on the connection.
		if r.ContentLength > 0 {
			return refusal(http.StatusBadRequest, "evenkeel_unexpected_body", "A "+r.Method+" has no body here. Send the request without one.")
		}
		r.Body = http.MaxBytesReader(w, r.Body, 0) // it may still turn out to be empty
	}
	return nil
}

func refusal(status int, code, message string) *llm.Error {
	return &llm.Error{Status: status, Type: "invalid_request_error", Code: code, Message: message}
}

func noUpgrade() *llm.Error {
	return refusal(http.StatusBadRequest, "evenkeel_no_upgrade", "Upgrades of the connection (WebSocket, CONNECT) are not supported. Send the request over plain HTTP.")
}

// badPath says what is wrong with a decoded path, "" if nothing is. The names of models, which are looked up here
// and go nowhere, may hold whatever does not look like a way out of them.
func badPath(p string, local bool) string {
	if p == "" || p[0] != '/' {
		return "The path must begin with a slash."
	}
	ascii := true
	begin := 1 // of the segment
	for i := 1; i < len(p); i++ {
		switch b := p[i]; {
		case b == '/':
			if badSegment(p[begin:i], local) {
				return "The path holds empty, '.' or '..' segments."
			}
			begin = i + 1
		case b < ' ' || b == 0x7f:
			return "The path holds control characters."
		case b == '\\' && !local:
			return "The path holds a backslash, which some servers take for a slash."
		case b == '%' && !local && i+2 < len(p) && isHex(p[i+1]) && isHex(p[i+2]):
			return "The path is percent-encoded twice."
		case b >= utf8.RuneSelf:
			ascii = false
		}
	}
	if begin < len(p) && badSegment(p[begin:], local) { // a slash at the end is fine
		return "The path holds empty, '.' or '..' segments."
	}
	if !ascii && !utf8.ValidString(p) {
		return "The path is not UTF-8."
	}
	return ""
}

// badSegment reports whether a server could leave a segment out, or take it for a way up. Some cut off parameters
// behind a semicolon first.
func badSegment(s string, local bool) bool {
	if s == ".." {
		return true
	}
	if local || s != "" && s[0] != '.' && s[0] != ';' {
		return false
	}
	s, _, _ = strings.Cut(s, ";")
	return s == "" || s == "." || s == ".."
}

func isHex(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'f' || 'A' <= b && b <= 'F'
}

// badHeader says what of a header cannot be accepted.
func badHeader(h http.Header) *llm.Error {
	lines := 0
	for name, values := range h {
		if lines += len(values); lines > mostHeaderLines {
			return refusal(http.StatusRequestHeaderFieldsTooLarge, "evenkeel_too_many_headers",
				fmt.Sprintf("The request has more than %d header lines.", mostHeaderLines))
		}
		ours := strings.HasPrefix(name, headerPrefix)
		if (ours || name == "Connection") && longest(values) > longestList {
			return refusal(http.StatusRequestHeaderFieldsTooLarge, "evenkeel_long_header",
				fmt.Sprintf("A line of the header %s is longer than %d bytes.", clip(strings.ToLower(name)), longestList))
		}
		if len(values) > 1 && (ours || name == "Content-Type") {
			return refusal(http.StatusBadRequest, "evenkeel_duplicate_header",
				fmt.Sprintf("The header %s comes more than once. Which one counts would depend on who reads it: send one.", clip(strings.ToLower(name))))
		}
	}
	if asked := h["Upgrade"]; asked != nil && connectionHas(h, "upgrade") {
		// Some clients offer HTTP/2 with every first request (RFC 7540 §3.2, Java's for example): not to answer the
		// offer is allowed, and it does not go upstream.
		if len(asked) != 1 || !strings.EqualFold(strings.TrimSpace(asked[0]), "h2c") {
			return noUpgrade()
		}
	}
	if _, ok := hops(h); !ok {
		return &llm.Error{Status: http.StatusLoopDetected, Code: "evenkeel_loop",
			Message: fmt.Sprintf("This request has passed %d balancers already (x-evenkeel-hops: %q): an endpoint's url leads back to one of them. Look for it in their configurations.",
				mostHops, clip(h.Get(headerHops)))}
	}
	return nil
}

// longest returns the length of the longest value, in bytes.
func longest(values []string) int {
	n := 0
	for _, v := range values {
		n = max(n, len(v))
	}
	return n
}

// connectionHas reports whether a Connection line has an option, given in lower case.
func connectionHas(h http.Header, option string) bool {
	for _, line := range h["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(token), option) {
				return true
			}
		}
	}
	return false
}

// hops returns how many of us a request has passed before, and false if there were too many or the number is none of
// ours.
func hops(h http.Header) (int, bool) {
	values := h[headerHops]
	if len(values) == 0 {
		return 0, true
	}
	v := values[0]
	if len(v) != 1 || v[0] < '0' || v[0] >= '0'+mostHops {
		return mostHops, false
	}
	return int(v[0] - '0'), true
}
