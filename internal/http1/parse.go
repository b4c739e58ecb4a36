package http1

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
)

// buffer is where requests are read to. A head that does not fit is net/http's.
type buffer [8 << 10]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// mostFields is how many header lines a usual request has at most.
const mostFields = 32

// target is memory for what a request's head says.
type target struct {
	url    url.URL
	values [mostFields]string
	closes bool // the client wants the connection closed
}

var headEnd = []byte("\r\n\r\n")

// methods are those of usual requests.
var methods = map[string]string{
	"GET": "GET", "HEAD": "HEAD", "POST": "POST", "PUT": "PUT", "PATCH": "PATCH", "DELETE": "DELETE", "OPTIONS": "OPTIONS",
}

// parse takes the head that data begins with into the request and returns its size; 0 if the request is not usual or its
// head not whole. It takes nothing that net/http would not take, and reads it alike: FuzzParse holds it to that.
func (c *conn) parse(data []byte) (size int) {
	end := bytes.Index(data, headEnd)
	if end < 0 {
		return 0
	}
	line := bytes.IndexByte(data, '\r')
	text := string(data[:end+2]) // the one copy that all strings are parts of
	rest := text[line:]
	if !c.requestLine(text[:line]) || !strings.HasPrefix(rest, "\r\n") {
		return 0
	}
	if !c.fields(rest[2:]) {
		clear(c.req.Header)
		return 0
	}
	return end + len(headEnd)
}

func (c *conn) requestLine(line string) bool {
	method, rest, _ := strings.Cut(line, " ")
	path, ok := strings.CutSuffix(rest, " HTTP/1.1")
	if !ok || path == "" || path[0] != '/' {
		return false
	}
	if method = methods[method]; method == "" {
		return false
	}
	plain := true
	for i := 0; i < len(path); i++ {
		b := path[i]
		if b <= ' ' || b >= 0x7f {
			return false
		}
		plain = plain && pathByte[b]
	}
	r := c.req
	if plain {
		c.url = url.URL{Path: path}
	} else {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return false
		}
		c.url = *u
	}
	r.Method, r.URL, r.RequestURI = method, &c.url, path
	return true
}

// pathByte are the bytes of a target that stand for themselves in a path.
var pathByte = bytesOf("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/-._~")

// tokenByte are those of a header's name (RFC 9110 §5.6.2).
var tokenByte = bytesOf("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~")

// hostByte are those of the host that requests usually name.
var hostByte = bytesOf("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._:[]")

func bytesOf(set string) (table [256]bool) {
	for i := range len(set) {
		table[set[i]] = true
	}
	return table
}

// fields takes the header lines, each of which ends with CRLF.
func (c *conn) fields(text string) bool {
	r := c.req
	r.Host, r.ContentLength, r.Close, c.closes = "", 0, false, false
	hosts, lengths := 0, 0
	for n := 0; text != ""; n++ {
		end := strings.IndexByte(text, '\r')
		if n == mostFields || len(text) < end+2 || text[end+1] != '\n' {
			return false
		}
		name, value, ok := field(text[:end])
		if !ok {
			return false
		}
		text = text[end+2:]
		switch name {
		case "Host":
			if hosts++; hosts > 1 || !all(value, &hostByte) {
				return false
			}
			r.Host = value
			continue
		case "Content-Length":
			if lengths++; lengths > 1 || !c.length(value) {
				return false
			}
		case "Connection":
			switch {
			case strings.EqualFold(value, "keep-alive"):
			case strings.EqualFold(value, "close"):
				c.closes = true
			default:
				return false
			}
		case "Transfer-Encoding", "Expect", "Upgrade", "Trailer", "Te", "Pragma", "Proxy-Connection", "Keep-Alive", "Http2-Settings":
			return false
		}
		c.values[n] = value
		if before, more := r.Header[name]; more {
			r.Header[name] = append(before, value)
		} else {
			r.Header[name] = c.values[n : n+1 : n+1]
		}
	}
	if hosts == 0 || r.Host == "" {
		return false
	}
	r.Close = c.closes
	c.body.left = r.ContentLength
	if r.Body = &c.body; r.ContentLength == 0 {
		r.Body = http.NoBody
	}
	return true
}

// length takes a Content-Length, which is digits alone.
func (c *conn) length(value string) bool {
	if value == "" || len(value) > 18 {
		return false
	}
	var n int64
	for i := range len(value) {
		d := value[i] - '0'
		if d > 9 {
			return false
		}
		n = n*10 + int64(d)
	}
	c.req.ContentLength = n
	return true
}

// field parts a header line. The name is in its usual case.
func field(line string) (name, value string, ok bool) {
	colon := strings.IndexByte(line, ':')
	if colon <= 0 {
		return "", "", false
	}
	raw := line[:colon]
	if name = common[raw]; name == "" {
		if !all(raw, &tokenByte) {
			return "", "", false
		}
		name = textproto.CanonicalMIMEHeaderKey(raw)
	}
	value = strings.Trim(line[colon+1:], " \t")
	for i := range len(value) {
		if b := value[i]; b < ' ' && b != '\t' || b == 0x7f {
			return "", "", false
		}
	}
	return name, value, true
}

func all(s string, set *[256]bool) bool {
	for i := range len(s) {
		if !set[s[i]] {
			return false
		}
	}
	return true
}

// common are names as clients usually write them, by which the usual case is found without work.
var common = func() map[string]string {
	m := map[string]string{}
	for _, name := range []string{
		"Host", "Content-Length", "Content-Type", "Connection", "User-Agent", "Accept", "Accept-Encoding", "Accept-Language", "Authorization",
		"X-Api-Key", "Anthropic-Version", "Anthropic-Beta", "Openai-Organization", "Openai-Project", "Idempotency-Key", "X-Request-Id",
		"X-Stainless-Arch", "X-Stainless-Async", "X-Stainless-Lang", "X-Stainless-Os", "X-Stainless-Package-Version", "X-Stainless-Read-Timeout",
		"X-Stainless-Retry-Count", "X-Stainless-Runtime", "X-Stainless-Runtime-Version", "X-Stainless-Timeout", "Traceparent", "Tracestate",
		"X-Evenkeel-Timeout", "X-Evenkeel-Pin", "X-Evenkeel-Exclude", "X-Evenkeel-Fallback", "X-Forwarded-For", "X-Session-Id", "Sec-Fetch-Mode",
	} {
		m[name], m[strings.ToLower(name)] = name, name
	}
	return m
}()
