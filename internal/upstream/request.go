package upstream

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"evenkeel/internal/llm"
)

// Request is what goes upstream.
type Request struct {
	Method string
	Path   string      // escaped, begins with a slash
	Query  string      // raw, without the question mark
	Header http.Header // already filtered; only read, and only until Do returns
	// Rank is the data-parallel rank behind the endpoint that is to serve it, in place of what Header says of that; empty = as Header says.
	Rank string
	// Body is sent one piece after another; all empty = no body. Its bytes are read until Do has failed or the
	// answer's body has ended, failed or was closed, and never after that.
	Body [3][]byte
	// Fresh asks for a new connection over HTTP/1.1: another that was kept might be as stale as the last one.
	Fresh bool
}

// headerRank is where vLLM looks for the rank.
const headerRank = "X-Data-Parallel-Rank"

func (r *Request) length() int64 {
	return int64(len(r.Body[0])) + int64(len(r.Body[1])) + int64(len(r.Body[2]))
}

// target is where an endpoint's requests go and what all of them carry.
type target struct {
	form   string // before the path: empty, or scheme and host where a proxy must be told (RFC 9112 §3.2.2)
	prefix string // of all paths, escaped
	host   string // the Host header
	own    []llm.Header
	secret bool // own[0] is the credential
}

// newTarget prepares the head of requests to base.
func newTarget(base *url.URL, kind llm.Kind, key string) target {
	t := target{prefix: base.EscapedPath(), host: withoutZone(base.Host)}
	if key != "" {
		t.own, t.secret = append(t.own, llm.Header{Name: kind.CredentialHeader, Value: kind.CredentialPrefix + key}), true
	}
	t.own = append(t.own, kind.DefaultHeaders...)
	return t
}

// replaces reports whether own[i] goes out in place of what h has under its name: the credential always, the
// others if h has nothing.
func (t *target) replaces(i int, h http.Header) bool {
	return i == 0 && t.secret || h.Get(t.own[i].Name) == ""
}

// uri is the request's target, path and query.
func (t *target) uri(r *Request) string {
	path := r.Path
	if !escaped(path) {
		u := url.URL{Path: path}
		if plain, err := url.PathUnescape(path); err == nil {
			u.Path, u.RawPath = plain, path
		}
		path = u.EscapedPath()
	}
	path = t.prefix + path
	if r.Query != "" {
		path += "?" + blanks.Replace(r.Query)
	}
	return path
}

// escaped reports whether a path can stand in a request line as it is (RFC 3986 §3.3).
func escaped(path string) bool {
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9':
		case c == '%':
			if i+2 >= len(path) || !hex(path[i+1]) || !hex(path[i+2]) {
				return false
			}
			i += 2
		case strings.IndexByte("/-_.~!$&'()*+,;=:@[]", c) < 0:
			return false
		}
	}
	return true
}

func hex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// blanks escapes what would end the request line early. HTTP/1.1 clients cannot send it, HTTP/2 ones can.
var blanks = strings.NewReplacer(" ", "%20", "\t", "%09", "\r", "%0D", "\n", "%0A")

// withoutZone removes the zone of an IPv6 address from host and port: it means something on this machine only
// (RFC 6874 §4).
func withoutZone(host string) string {
	address, port, ok := strings.Cut(host, "]")
	if !ok {
		return host
	}
	address, _, _ = strings.Cut(address, "%")
	return address + "]" + port
}

// appendHead writes the head of an HTTP/1.1 request. Header values were checked when they were parsed; what
// could split the head all the same is left out, and so is an empty User-Agent.
func (t *target) appendHead(b []byte, r *Request) []byte {
	b = append(b, r.Method...)
	b = append(b, ' ')
	b = append(b, t.form...)
	b = append(b, t.uri(r)...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, t.host...)
	b = append(b, "\r\n"...)
	for name, values := range r.Header {
		if t.ours(name, r) {
			continue
		}
		for _, v := range values {
			if plainText(v) && (v != "" || name != "User-Agent") {
				b = appendField(b, name, v)
			}
		}
	}
	for i, h := range t.own {
		if t.replaces(i, r.Header) {
			b = appendField(b, h.Name, h.Value)
		}
	}
	if r.Rank != "" {
		b = appendField(b, headerRank, r.Rank)
	}
	if n := r.length(); n > 0 || r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, n, 10)
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...)
}

// ours reports whether a header is not the caller's to set: those that frame the message or speak of the
// connection, and those that the endpoint or r sets itself.
func (t *target) ours(name string, r *Request) bool {
	switch name {
	case headerRank:
		return r.Rank != ""
	case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Upgrade", "Expect":
		return true
	}
	for i := range t.own {
		if name == t.own[i].Name && t.replaces(i, r.Header) {
			return true
		}
	}
	return false
}

// header is what appendHead writes, as a map of its own.
func (t *target) header(r *Request) http.Header {
	h := r.Header
	out := make(http.Header, len(h)+len(t.own)+1)
	for name, values := range h {
		if t.ours(name, r) {
			continue
		}
		for _, v := range values {
			if plainText(v) && (v != "" || name != "User-Agent") {
				out[name] = append(out[name], v)
			}
		}
	}
	for i, own := range t.own {
		if t.replaces(i, h) {
			out[own.Name] = []string{own.Value}
		}
	}
	if r.Rank != "" {
		out[headerRank] = []string{r.Rank}
	}
	return out
}

func appendField(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}
