package upstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"evenkeel/internal/llm"
)

// An answer is read as its framing says, and its connection is used again only if nothing speaks against it.
func TestAnswers(t *testing.T) {
	f := func(name, method, answer, want string, reused bool) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			server := newFake(t, func(_ int64, p *peer) {
				for {
					if r, _ := p.request(); r == nil {
						return
					}
					p.say(answer)
					if strings.HasSuffix(want, "to the end") {
						return
					}
				}
			})
			e := server.endpoint(t)
			for range 2 {
				res, body := mustFetch(t, e, &Request{Method: method, Path: "/x", Header: http.Header{}})
				if got := fmt.Sprintf("%d %d %s", res.StatusCode, res.ContentLength, body); got != want {
					t.Fatalf("answer %q, want %q", got, want)
				}
			}
			if got := server.accepted.Load() == 1; got != reused {
				t.Errorf("reused %v, want %v", got, reused)
			}
		})
	}
	f("length", "POST", ok, "200 2 ok", true)
	f("empty", "POST", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200 0 ", true)
	f("chunked", "POST", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\n\r\n", "200 -1 abcde", true)
	f("chunked, trailer", "POST", "HTTP/1.1 200 OK\r\nTrailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: 1\r\n\r\n", "200 -1 ok", true)
	f("chunked beats length", "POST", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "200 -1 ok", false)
	f("close", "POST", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "200 2 ok", false)
	f("until closed", "POST", "HTTP/1.1 200 OK\r\n\r\nto the end", "200 -1 to the end", false)
	f("1.0", "POST", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "200 2 ok", false)
	f("1.0, kept", "POST", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", "200 2 ok", true)
	f("1.0, until closed", "POST", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nto the end", "200 -1 to the end", false)
	f("HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n", "200 1234 ", true)
	f("HEAD with a body", "HEAD", ok, "200 2 ", false)
	f("HEAD, chunked", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "200 -1 ", true)
	f("204", "POST", "HTTP/1.1 204 No Content\r\n\r\n", "204 0 ", true)
	f("204 with a body", "POST", "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok", "204 0 ", false)
	f("304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", "304 0 ", true)
	f("interim", "POST", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"+ok, "200 2 ok", true)
	f("second answer", "POST", ok+"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "200 2 ok", false)
	f("one byte too many", "POST", ok+"\n", "200 2 ok", false)
	f("no reason", "POST", "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", "200 2 ok", true)
	f("unknown status", "POST", "HTTP/1.1 799 What\r\nContent-Length: 2\r\n\r\nok", "799 2 ok", true)
	f("bare LF", "POST", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "200 2 ok", true)
	f("same length twice", "POST", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", "200 2 ok", true)
	f("redirect", "POST", "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "307 0 ", true)
}

// What an endpoint may not answer is named as such, whoever it is that breaks.
func TestHeadsThatFail(t *testing.T) {
	long := strings.Repeat("x", 1<<10)
	f := func(name, answer string, class llm.Class) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			server := newFake(t, func(_ int64, p *peer) {
				if r, _ := p.request(); r != nil {
					p.say(answer)
					if class == llm.Malformed {
						p.untilGone()
					}
				}
			})
			e := server.endpoint(t)
			_, err := do(within(t), e, post("{}"))
			mustFail(t, err, class, false, true)
			if strings.HasPrefix(name, "endless") && !errors.Is(err, errHeadTooLarge) && !errors.Is(err, errInterim) {
				t.Errorf("error %v does not name the bound", err)
			}
			eventually(t, "the connection ends", func() bool { return server.connections() == 0 })
			if n := idling(e); n != 0 {
				t.Errorf("%d connections kept", n)
			}
		})
	}
	f("nothing", "", llm.Reset)
	f("half a status line", "HTTP/1.1 20", llm.Reset)
	f("half a head", "HTTP/1.1 200 OK\r\nContent-Le", llm.Reset)
	f("interim only", "HTTP/1.1 100 Continue\r\n\r\n", llm.Reset)
	f("garbage", "SSH-2.0-OpenSSH_9.6\r\n", llm.Malformed)
	f("TLS alert", "\x15\x03\x01\x00\x02\x02\x46\r\n", llm.Malformed)
	f("no version", "200 OK\r\n\r\n", llm.Malformed)
	f("status below 100", "HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n", llm.Malformed)
	f("signed status", "HTTP/1.1 +20 No\r\nContent-Length: 0\r\n\r\n", llm.Malformed)
	f("status of four digits", "HTTP/1.1 2000 OK\r\n\r\n", llm.Malformed)
	f("blank line first", "\r\n"+ok, llm.Malformed)
	f("header without a colon", "HTTP/1.1 200 OK\r\nContent-Length 2\r\n\r\nok", llm.Malformed)
	f("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", llm.Malformed)
	f("negative length", "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok", llm.Malformed)
	f("length over 63 bits", "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\nok", llm.Malformed)
	f("unknown coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\nok", llm.Malformed)
	f("101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", llm.Malformed)
	f("interim with a body", "HTTP/1.1 100 Continue\r\nContent-Length: 2\r\n\r\nok"+ok, llm.Malformed)
	f("endless interim", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100), llm.Malformed)
	f("endless line", "HTTP/1.1 200 OK\r\nX: "+strings.Repeat(long, 300), llm.Malformed)
	f("endless lines", "HTTP/1.1 200 OK\r\n"+strings.Repeat("X: "+long+"\r\n", 300), llm.Malformed)
	f("endless status line", "HTTP/1.1 200 "+strings.Repeat(long, 300), llm.Malformed)
	f("endless interim heads", strings.Repeat("HTTP/1.1 100 Continue\r\n"+strings.Repeat("X: "+long+"\r\n", 100)+"\r\n", 5), llm.Malformed)
}

// A large head that is still allowed, and a body beyond the bound of heads.
func TestLargeHeadAndBody(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nX: " + strings.Repeat("x", 200<<10) + "\r\n\r\n"
	e := newFake(t, answering(head+strings.Repeat("b", 1000000))).endpoint(t)
	for range 2 { // the bound is per answer
		if _, body := mustFetch(t, e, post("{}")); body != strings.Repeat("b", 1000000) {
			t.Fatalf("%d bytes of body, want 1000000", len(body))
		}
	}
}

// A body that breaks fails as what it is, goes on failing so, and ends its connection.
func TestBodiesThatFail(t *testing.T) {
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	f := func(name, answer string, reset bool, body string, class llm.Class) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			read := make(chan struct{})
			server := newFake(t, func(_ int64, p *peer) {
				if r, _ := p.request(); r == nil {
					return
				}
				p.say(answer)
				if reset {
					<-read
					p.reset()
				}
			})
			e := server.endpoint(t)
			res, err := do(within(t), e, post("{}"))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			got := make([]byte, len(body))
			if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != body {
				t.Fatalf("read %q, %v, want %q", got, err, body)
			}
			close(read)
			rest, err := io.ReadAll(res.Body)
			if err == nil || len(rest) > 0 {
				t.Fatalf("then %q, %v, want an error", rest, err)
			}
			if got := BrokenBody(err); got != class {
				t.Errorf("class %v, want %v (%v)", got, class, err)
			}
			if _, again := res.Body.Read(make([]byte, 1)); again == nil || again == io.EOF {
				t.Errorf("the next read returned %v: that looks like a whole answer", again)
			}
			if n := idling(e); n != 0 {
				t.Errorf("%d connections kept", n)
			}
		})
	}
	f("short", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", false, "ok", llm.Reset)
	f("reset", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", true, "ok", llm.Reset)
	f("until closed, reset", "HTTP/1.1 200 OK\r\n\r\nok", true, "ok", llm.Reset)
	f("chunk cut", chunked+"5\r\nok", false, "ok", llm.Reset)
	f("no last chunk", chunked+"2\r\nok\r\n", false, "ok", llm.Reset)
	f("reset between chunks", chunked+"2\r\nok\r\n", true, "ok", llm.Reset)
	f("nothing after the last chunk", chunked+"2\r\nok\r\n0\r\n", false, "ok", llm.Reset)
	f("trailer cut", chunked+"2\r\nok\r\n0\r\nX: y\r\n", false, "ok", llm.Reset)
	f("chunk size not a number", chunked+"2\r\nok\r\nxyz\r\n", false, "ok", llm.Malformed)
	f("chunk size too large", chunked+"2\r\nok\r\nfffffffffffffffff\r\n", false, "ok", llm.Malformed)
	f("chunk size line endless", chunked+"2\r\nok\r\n"+strings.Repeat("0", 8<<10), false, "ok", llm.Malformed)
	f("chunk without its line end", chunked+"2\r\nokX\r\n0\r\n\r\n", false, "ok", llm.Malformed)
	f("bare LF in chunks", chunked+"2\r\nok\r\n1\nx\n0\n\n", false, "ok", llm.Malformed)
	f("little but extensions", chunked+"2\r\nok\r\n"+strings.Repeat("1;"+strings.Repeat("e", 3<<10)+"\r\nx\r\n", 20), false, "okxxxxx", llm.Malformed)
	f("trailer too large", chunked+"2\r\nok\r\n0\r\nX: "+strings.Repeat("x", 8<<10)+"\r\n\r\n", false, "ok", llm.Malformed)
	f("trailer malformed", chunked+"2\r\nok\r\n0\r\nno colon\r\n\r\n", false, "ok", llm.Malformed)
}

// A chunk may announce more than memory holds; only what comes is read.
func TestHugeChunkIsRead(t *testing.T) {
	e := newFake(t, func(_ int64, p *peer) {
		if r, _ := p.request(); r != nil {
			p.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0fffffffffffffff\r\nabc")
			p.untilGone()
		}
	}).endpoint(t)
	res, err := do(within(t), e, post("{}"))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 3)
	if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != "abc" {
		t.Errorf("read %q, %v, want abc", got, err)
	}
	_ = res.Body.Close()
}

// A body that was closed before its end is not taken for a whole one, and its connection not for a fresh one.
func TestCloseBeforeTheEnd(t *testing.T) {
	server := newFake(t, answering("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"))
	e := server.endpoint(t)
	res, err := do(within(t), e, post("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(res.Body, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := res.Body.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := res.Body.Read(make([]byte, 4)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("Read after Close: %v, want %v", err, http.ErrBodyReadAfterClose)
	}
	eventually(t, "the connection ends", func() bool { return server.connections() == 0 })
}

// After its end a body goes on saying so, closed or not, and its connection may serve others meanwhile.
func TestReadAfterTheEnd(t *testing.T) {
	e := newFake(t, answering(ok)).endpoint(t)
	first, err := do(within(t), e, post("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(first.Body); err != nil {
		t.Fatal(err)
	}
	second, err := do(within(t), e, post("{}")) // on the same connection
	if err != nil {
		t.Fatal(err)
	}
	if n, err := first.Body.Read(make([]byte, 9)); n != 0 || err != io.EOF {
		t.Errorf("read %d bytes, %v, want the end", n, err)
	}
	if err := first.Body.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if body, err := io.ReadAll(second.Body); err != nil || string(body) != "ok" {
		t.Errorf("the other answer is %q, %v, want ok", body, err)
	}
}
