package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"evenkeel/internal/llm"
)

// reading is how an answer was read.
type reading struct {
	res  *http.Response
	body string
	err  error // of the head or the body
}

// complete reports whether answer is exactly one whole answer to a request, with nothing after it, on a
// connection that may be kept; and whether a reader finds the answer's end without the connection's.
func complete(method, answer string) (exactly, ends bool) {
	br := bufio.NewReader(strings.NewReader(answer))
	for {
		res, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			return false, false
		}
		if res.StatusCode >= 100 && res.StatusCode < 200 && res.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			return false, false
		}
		untilClosed := res.ContentLength < 0 && len(res.TransferEncoding) == 0 && res.Body != http.NoBody
		rest, _ := io.ReadAll(br)
		return !res.Close && len(rest) == 0, !untilClosed
	}
}

// Whatever an endpoint answers: no panic, no hang, what net/http's client makes of it, and no connection kept
// unless the answer was exactly one.
func FuzzAnswer(f *testing.F) {
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, answer := range []string{
		ok, ok + ok, ok + "x", "", "H", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\n\r\nuntil closed", "garbage\r\n\r\n", "\r\n" + ok,
		chunked + "2\r\nok\r\n0\r\n\r\n", chunked + "2;a=b\r\nok\r\n0\r\nX: y\r\n\r\n", chunked + "2\r\nok\r\n0\r\n", chunked + "ffffffffffffffff\r\nok",
		chunked + "2\nok\n0\n\n", chunked + "0\r\n\n", chunked + "0\r\n\n\r\n\r\n", chunked + "0\r\n\r\n" + ok, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 304 No\r\n\r\n",
		"HTTP/1.1 100 C\r\n\r\n" + ok, strings.Repeat("HTTP/1.1 102 P\r\n\r\n", 7) + ok, "HTTP/1.1 101 S\r\n\r\n", "HTTP/1.1 099 X\r\n\r\n", "HTTP/1.1 +20 X\r\n\r\n",
		"HTTP/1.1 200 OK\nContent-Length:2\n\nok", "HTTP/1.1 200 OK\r\n folded\r\nX : y\r\n\r\n", "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 200 OK\r\nX: \x00\xff\r\n\r\n",
	} {
		for method := range 3 {
			f.Add(method, []byte(answer))
		}
	}
	type script struct {
		answer string
		ends   bool // the server keeps the connection open after it
	}
	scripts := make(chan script, 1)
	said := make(chan struct{}, 1)
	server := newFake(f, func(_ int64, p *peer) {
		if r, _ := p.request(); r == nil {
			return
		}
		s := <-scripts
		p.say(s.answer)
		if !s.ends {
			_ = p.CloseWrite()
		}
		said <- struct{}{}
		p.untilGone()
	})
	std := &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeaderBytes}
	f.Fuzz(func(t *testing.T, which int, raw []byte) {
		method, answer := []string{"POST", "GET", "HEAD"}[uint(which)%3], string(raw)
		exactly, ends := complete(method, answer)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()

		e := server.endpoint(t)
		scripts <- script{answer, ends}
		var ours reading
		ours.res, ours.body, ours.err = fetch(ctx, e, &Request{Method: method, Path: "/", Header: http.Header{}})
		<-said
		if ctx.Err() != nil {
			t.Fatalf("%q: it hung: %v", answer, ours.err)
		}
		var failed *Error
		if errors.As(ours.err, &failed) && (failed.Unreachable || !failed.Sent || failed.Class != llm.Reset && failed.Class != llm.Malformed) {
			t.Errorf("%q: %+v", answer, failed)
		}
		if c := lastIdle(e); c != nil {
			if usable(c) && !(exactly && ours.err == nil) {
				t.Errorf("%q to %s: its connection is kept", answer, method)
			}
			e.Close()
		} else if exactly && ours.err == nil && !doubtful(answer) {
			t.Errorf("%q to %s: its connection is not kept", answer, method)
		}

		scripts <- script{answer, ends}
		var theirs reading
		req, err := http.NewRequestWithContext(ctx, method, "http://"+server.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if theirs.res, theirs.err = std.RoundTrip(req); theirs.err == nil {
			var body []byte
			body, theirs.err = io.ReadAll(theirs.res.Body)
			theirs.body = string(body)
			_ = theirs.res.Body.Close()
		}
		<-said
		compare(t, answer, ours, theirs)
	})
}

// compare checks that two readings of an answer agree where both got one.
func compare(t *testing.T, answer string, ours, theirs reading) {
	t.Helper()
	if ours.res == nil || theirs.res == nil {
		if ours.res != nil && theirs.res == nil {
			t.Errorf("%q: only net/http refuses it: %v", answer, theirs.err)
		}
		return // what we refuse beyond that is tested by name
	}
	if refused := errors.Is(ours.err, errField) || ours.err != nil && stricter.MatchString(answer); refused && strings.HasPrefix(theirs.body, ours.body) {
		return // a trailer or a size: what we refuse there is tested by name too
	}
	if ours.body != theirs.body || (ours.err == nil) != (theirs.err == nil) {
		t.Errorf("%q: body %q, %v; net/http reads %q, %v", answer, ours.body, ours.err, theirs.body, theirs.err)
	}
	if doubtful(answer) {
		return
	}
	if ours.res.StatusCode != theirs.res.StatusCode || ours.res.ContentLength != theirs.res.ContentLength {
		t.Errorf("%q: %d of %d bytes; net/http reads %d of %d", answer, ours.res.StatusCode, ours.res.ContentLength, theirs.res.StatusCode, theirs.res.ContentLength)
	}
	for _, name := range []string{"Connection", "Trailer"} { // net/http takes them out
		ours.res.Header.Del(name)
		theirs.res.Header.Del(name)
	}
	if theirs.res.Header.Get("Pragma") != "" { // net/http adds Cache-Control beside it
		ours.res.Header.Del("Cache-Control")
		theirs.res.Header.Del("Cache-Control")
	}
	if !maps.EqualFunc(ours.res.Header, theirs.res.Header, slices.Equal[[]string]) {
		t.Errorf("%q: headers %q; net/http reads %q", answer, ours.res.Header, theirs.res.Header)
	}
}

// doubtful reports whether an answer says two things of its end, or has an end that its version does not know:
// net/http believes the one that counts, and so do we, but we do not use the connection again.
func doubtful(answer string) bool {
	answer = strings.ToLower(answer)
	return strings.Contains(answer, "transfer-encoding") && (strings.Contains(answer, "content-length") || strings.Contains(answer, "http/1.0"))
}

// The oracle of FuzzAnswer must know what it is doing.
func TestComplete(t *testing.T) {
	f := func(method, answer string, exactly, ends bool) {
		t.Helper()
		if e, n := complete(method, answer); e != exactly || n != ends {
			t.Errorf("complete(%s, %q) = %v, %v, want %v, %v", method, answer, e, n, exactly, ends)
		}
	}
	f("POST", ok, true, true)
	f("POST", ok+"x", false, true)
	f("HEAD", ok, false, true)
	f("POST", ok[:len(ok)-1], false, false)
	f("POST", "HTTP/1.1 200 OK\r\n\r\nok", false, false)
	f("POST", "HTTP/1.1 100 C\r\n\r\n"+ok, true, true)
	f("POST", "HTTP/1.1 100 C\r\n\r\n", false, false)
}
