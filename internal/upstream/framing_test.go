package upstream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// script is a connection on which everything that the server says is there already.
type script struct {
	net.Conn
	in     io.Reader
	closed bool
}

func (s *script) Read(b []byte) (int, error)  { return s.in.Read(b) }
func (s *script) Write(b []byte) (int, error) { return len(b), nil }
func (s *script) Close() error                { s.closed = true; return nil }

// scripted is a connection of a pool of its own on which in has come.
func scripted(in []byte) (*conn, *script) {
	s := &script{in: bytes.NewReader(in)}
	p := &pool{idleTimeout: time.Hour, open: 1}
	return newConn(p, &socket{Conn: s}, nil), s
}

// readScript reads one answer that comes in some pieces, and returns what is left after it.
func readScript(method string, pieces ...[]byte) (got reading, rest []byte, kept bool) {
	c, s := scripted(nil)
	s.in = inPieces(pieces)
	var stop Stop
	got.res, got.err = c.receive(method, &stop)
	if got.err == nil {
		var body []byte
		body, got.err = io.ReadAll(got.res.Body)
		got.body = string(body)
	} else {
		c.end() // as do does
	}
	rest, _ = io.ReadAll(io.MultiReader(bytes.NewReader(c.in.bytes()), s.in))
	kept = len(c.pool.idle) > 0
	if kept == s.closed {
		panic("a connection is neither kept nor closed")
	}
	c.pool.closeIdle()
	return got, rest, kept
}

// inPieces gives one piece at a time.
func inPieces(pieces [][]byte) io.Reader {
	readers := make([]io.Reader, len(pieces))
	for i, p := range pieces {
		readers[i] = bytes.NewReader(p)
	}
	return io.MultiReader(readers...)
}

// readStandard is readScript by net/http.
func readStandard(method string, in []byte) (got reading, rest []byte) {
	br := bufio.NewReader(bytes.NewReader(in))
	for range mostInterim + 1 {
		got.res, got.err = http.ReadResponse(br, &http.Request{Method: method})
		if got.err != nil || got.res.StatusCode < 100 || got.res.StatusCode > 199 {
			break
		}
	}
	if got.err == nil {
		var body []byte
		body, got.err = io.ReadAll(got.res.Body)
		got.body = string(body)
	}
	rest, _ = io.ReadAll(br)
	return got, rest
}

// odd are answers that are read in more than one way by somebody. The first word says what we do: "same" as
// net/http, or "refuse" what it takes, or only the "body".
var odd = []struct{ verdict, answer string }{
	{"same", ok},
	{"same", "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok"},
	{"same", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"},
	{"same", "HTTP/1.1 200 OK\r\nContent-Length:2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nContent-Length: \t 2\t \r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nContent-Length: 0002\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\ncontent-length: 2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nContent-Length: 2_0\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\n: 2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nX\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nX: \xff\xfe\r\nContent-Length: 2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nx-lower-CASE: 1\r\nX-LOWER-case: 2\r\nContent-Length: 2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\n X: 1\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: \x0bchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\n\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0;c\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n02\r\nok\r\n000\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0000000000000002\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000002\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+2\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n 2\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 ;a\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokk\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000002\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\nok\r\n0\r\n\r\n"},
	{"body", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 \r\nok\r\n0\r\n\r\n"},
	{"body", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\t\r\n\r\n"},
	{"body", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\n\r\n\r\n"},
	{"body", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n z\r\n\r\n"},
	{"same", "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	{"same", "HTTP/1.1 304 No\r\nContent-Length: 2\r\n\r\nok"},
	{"same", "HTTP/1.1 199 No\r\nX: y\r\n\r\n" + ok},
	{"same", "HTTP/1.1 1000 OK\r\n\r\n"},
	{"same", "HTTP/1.1 20 OK\r\n\r\n"},
	{"same", "HTTP/1.1 2x0 OK\r\n\r\n"},
	{"same", "HTTP/1.1 200OK\r\n\r\n"},
	{"same", "HTTP/1.1\t200 OK\r\n\r\n"},
	{"same", "http/1.1 200 OK\r\n\r\n"},
	{"same", "HTTP/1.10 200 OK\r\n\r\n"},
	{"same", "ICY 200 OK\r\n\r\n"},
	{"same", "\n" + ok},
	{"refuse", "HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok"},
	{"refuse", "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok"},
	{"refuse", "HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\nok"},
	{"refuse", "HTTP/1.1 200 O\x01K\r\nContent-Length: 2\r\n\r\nok"},
	{"refuse", "HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nok"},
	{"refuse", "HTTP/1.1 +20 OK\r\nContent-Length: 2\r\n\r\nok"},
	{"refuse", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok"},
	{"same", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\t3\r\n\r\nok"},
	{"refuse", "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok"},
	{"refuse", "HTTP/1.1 200 OK\r\nX: a\r\n chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
}

// TestOddAnswers says for each odd answer what becomes of it, and that nothing odd is read unlike net/http reads it.
func TestOddAnswers(t *testing.T) {
	for _, o := range odd {
		ours, _, _ := readScript("POST", []byte(o.answer))
		theirs, _ := readStandard("POST", []byte(o.answer))
		if o.verdict == "refuse" {
			if ours.res != nil {
				t.Errorf("%q is taken as %d %q", o.answer, ours.res.StatusCode, ours.body)
			}
			if theirs.res == nil {
				t.Errorf("%q is refused by net/http too: %v", o.answer, theirs.err)
			}
			continue
		}
		if (ours.res == nil) != (theirs.res == nil) || (ours.err == nil) != (theirs.err == nil && o.verdict != "body") {
			t.Errorf("%q: error %v, net/http's %v", o.answer, ours.err, theirs.err)
		}
		if o.verdict == "body" && theirs.err != nil {
			t.Errorf("%q: its body is refused by net/http too: %v", o.answer, theirs.err)
		}
		agree(t, o.answer, ours, theirs)
	}
}

// agree checks that two readings of an answer that both took are the same.
func agree(t *testing.T, answer string, ours, theirs reading) {
	t.Helper()
	if ours.res == nil || theirs.res == nil {
		if ours.res != nil {
			t.Errorf("%q: only net/http refuses it: %v", answer, theirs.err)
		}
		return
	}
	if ours.err == nil && (theirs.err != nil || ours.body != theirs.body) || ours.res.StatusCode != theirs.res.StatusCode {
		t.Errorf("%q: %d %q, %v; net/http reads %d %q, %v", answer, ours.res.StatusCode, ours.body, ours.err, theirs.res.StatusCode, theirs.body, theirs.err)
	}
	a, b := ours.res.Header.Clone(), theirs.res.Header.Clone()
	for _, name := range []string{"Trailer", "Content-Length", "Connection"} { // net/http drops them now and then
		a.Del(name)
		b.Del(name)
	}
	if b.Get("Pragma") != "" { // net/http adds one beside it
		a.Del("Cache-Control")
		b.Del("Cache-Control")
	}
	if !maps.EqualFunc(a, b, slices.Equal[[]string]) {
		t.Errorf("%q: headers %q; net/http reads %q", answer, a, b)
	}
}

// FuzzFraming reads any bytes as we do and as net/http does: what we take it takes, status, headers, body and
// what follows the answer are the same, and a connection is kept only where both see nothing after the answer.
func FuzzFraming(f *testing.F) {
	for i, o := range odd {
		f.Add(i, []byte(o.answer))
	}
	f.Add(0, []byte("HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nKeep-Alive: timeout=5, max=0\r\n\r\n2;a=b\r\nok\r\n0\r\nX: y\r\n\r\n"+ok))
	f.Add(2, []byte("HTTP/1.1 200 OK\r\nConnection: x, close\r\nPragma: no-cache\r\n\r\n"))
	f.Fuzz(func(t *testing.T, which int, in []byte) {
		method, split := []string{"POST", "GET", "HEAD"}[uint(which)%3], int(uint(which)/3)%(len(in)+1)
		ours, rest, kept := readScript(method, in[:split], in[split:])
		theirs, theirRest := readStandard(method, in)
		agree(t, string(in), ours, theirs)
		if ours.res == nil || ours.err != nil {
			return
		}
		if !bytes.Equal(rest, theirRest) && ours.res.Body.(*answerBody).kind != untilClosed {
			t.Errorf("%q: %q is left, net/http leaves %q", in, rest, theirRest)
		}
		seen := len(in)-len(theirRest) < split // what follows the answer came with its end
		if kept && (seen || theirs.res.Close) {
			t.Errorf("%q: the connection is kept; net/http leaves %q, close %v", in, theirRest, theirs.res.Close)
		}
	})
}

// In whatever pieces an answer comes, it is read alike.
func TestAnswersInPieces(t *testing.T) {
	for _, o := range odd {
		in := []byte(o.answer)
		whole, wholeRest, wholeKept := readScript("POST", in)
		f := func(how string, pieces ...[]byte) {
			t.Helper()
			got, rest, kept := readScript("POST", pieces...)
			same := got.body == whole.body && got.err == whole.err && (got.res == nil) == (whole.res == nil)
			if !same || whole.err == nil && (!bytes.Equal(rest, wholeRest) || kept != wholeKept && len(rest) == 0) {
				t.Errorf("%q %s: %q, %v, %q left, kept %v; else %q, %v, %q left, kept %v", in, how, got.body, got.err, rest, kept, whole.body, whole.err, wholeRest, wholeKept)
			}
		}
		for i := range in {
			f(fmt.Sprint("in two at ", i), in[:i], in[i:])
		}
		f("byte by byte", bytewise(in)...)
	}
}

// What a server announces of its connections is heeded, and what cannot be read is not taken for anything.
func TestKeepAlive(t *testing.T) {
	f := func(header string, keep time.Duration, reusable bool) {
		t.Helper()
		c, _ := scripted([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + header + "\r\nok"))
		res, err := c.receive("GET", new(Stop))
		if err != nil {
			t.Fatal(err)
		}
		if b := res.Body.(*answerBody); c.keep != keep || b.reusable != reusable {
			t.Errorf("%q: kept for %v, reusable %v, want %v, %v", header, c.keep, b.reusable, keep, reusable)
		}
	}
	f("", time.Hour, true)
	f("Keep-Alive: timeout=5\r\n", 4*time.Second, true)
	f("Keep-Alive: timeout=5, max=100\r\n", 4*time.Second, true)
	f("keep-alive: Max=3,Timeout=1\r\n", 800*time.Millisecond, true)
	f("Keep-Alive: timeout=0\r\n", 0, true)
	f("Keep-Alive: timeout=3600\r\n", time.Minute, true)
	f("Keep-Alive: max=0\r\n", time.Hour, false)
	f("Keep-Alive: timeout=5, max=0\r\n", 4*time.Second, false)
	f("Keep-Alive: timeout=-1, max=x\r\n", time.Hour, true)
	f("Keep-Alive: timeout=99999999999\r\n", time.Hour, true)
	f("Keep-Alive: 300\r\n", time.Hour, true)
	f("Connection: close\r\n", time.Hour, false)
	f("Connection: Keep-Alive, Close\r\n", time.Hour, false)
	f("Connection: closed\r\n", time.Hour, true)
	f("Transfer-Encoding: chunked\r\n", time.Hour, false)
}

// The bound of headers is one of lines, however short they are.
func TestC28HeaderCount(t *testing.T) {
	f := func(lines int, want error) {
		t.Helper()
		got, _, _ := readScript("GET", []byte("HTTP/1.1 200 OK\r\n"+strings.Repeat("A: b\r\n", lines)+"Content-Length: 0\r\n\r\n"))
		if got.err != want {
			t.Errorf("%d headers: %v, want %v", lines+1, got.err, want)
		}
	}
	f(maxFields-1, nil)
	f(maxFields, errTooManyFields)
	f(maxFields*20, errTooManyFields)
}

// BenchmarkHead weighs reading an answer's head and its two bytes of body against http.ReadResponse.
func BenchmarkHead(b *testing.B) {
	in := bytes.NewReader(nil)
	c, s := scripted(nil)
	s.in = in
	var stop Stop
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			in.Reset([]byte(chat))
			res, err := c.receive("POST", &stop)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			c, _ = c.pool.take()
		}
	})
	b.Run("net-http", func(b *testing.B) {
		b.ReportAllocs()
		br, req := bufio.NewReader(in), &http.Request{Method: "POST"}
		for b.Loop() {
			in.Reset([]byte(chat))
			res, err := http.ReadResponse(br, req)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
		}
	})
	c.end()
}
