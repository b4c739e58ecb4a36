package http1

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves h until the test ends and returns the address.
func start(t *testing.T, h http.HandlerFunc, change ...func(*Server)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, l, h, change...)
}

// pieces is a listener whose connections read a few bytes at a time, so that no head is there whole.
type pieces struct{ net.Listener }

func (p pieces) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	return piece{c}, err
}

type piece struct{ net.Conn }

func (p piece) Read(b []byte) (int, error) { return p.Conn.Read(b[:min(len(b), 7)]) }

func startOn(t *testing.T, l net.Listener, h http.HandlerFunc, change ...func(*Server)) string {
	s := &Server{Std: &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}}
	for _, f := range change {
		f(s)
	}
	ended := make(chan error)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; err != http.ErrServerClosed {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

// said is what a handler saw of a request.
func said(r *http.Request) string {
	b, err := io.ReadAll(r.Body)
	return fmt.Sprintf("%s %s %q %q %q %d %v %d:%.20q %v", r.Method, r.URL, r.Host, r.RequestURI, r.Header, r.ContentLength, r.Close, len(b), b, err)
}

const usual = "POST /v1/chat?a=1 HTTP/1.1\r\nHost: h:80\r\ncontent-type: application/json\r\nX-Odd-name:  two words \t\r\nA: 1\r\na: 2\r\nContent-Length: 5\r\n\r\nhello"

// Requests of every kind are answered as net/http alone answers them, whoever of the two does it, also one after another on one connection.
func TestAnswersAreNetHTTPs(t *testing.T) {
	served := func(w http.ResponseWriter, r *http.Request) {
		text := said(r)
		switch r.URL.Path {
		case "/length":
			w.Header().Set("Content-Length", "4")
			_, _ = io.WriteString(w, "four")
		case "/flush":
			_, _ = io.WriteString(w, "one")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "two")
		case "/large":
			_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/unchanged":
			w.WriteHeader(http.StatusNotModified)
		case "/silent":
		case "/close":
			w.Header().Set("Connection", "close")
			_, _ = io.WriteString(w, "bye")
		default:
			w.Header()["X-Two"] = []string{"1", "2"}
			w.WriteHeader(201)
			w.Header().Set("X-Late", "1")
			_, _ = io.WriteString(w, text)
		}
	}
	ours := start(t, served)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	split := startOn(t, pieces{l}, served)
	theirs := httptest.NewServer(http.HandlerFunc(served))
	defer theirs.Close()
	var requests []string
	for _, path := range []string{"/", "/length", "/flush", "/large", "/empty", "/unchanged", "/silent", "/close", "//x", "/%41?q", "/a%2fb", "*", "http://h/abs"} {
		for _, method := range []string{"GET", "HEAD", "POST", "DELETE", "gEt", "OPTIONS"} {
			body := ""
			if method == "POST" {
				body = "hello"
			}
			requests = append(requests, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body))
		}
	}
	requests = append(requests, usual,
		strings.Replace(usual, "Content-Length: 5", "Transfer-Encoding: chunked", 1)[:len(usual)-len("hello")+len("Transfer-Encoding: chunked")-len("Content-Length: 5")]+"5\r\nhello\r\n0\r\n\r\n",
		strings.Replace(usual, "A: 1", "Connection: close", 1), strings.Replace(usual, "A: 1", "Connection: Keep-Alive", 1),
		strings.Replace(usual, "HTTP/1.1", "HTTP/1.0", 1), strings.Replace(usual, "A: 1", "Expect: 100-continue", 1),
		strings.Replace(usual, "\r\nA: 1\r\n", "\nA: 1\n", 1), strings.Replace(usual, "A: 1", "A: 1\r\n folded", 1),
		strings.Replace(usual, "A: 1", "A: \x01", 1), strings.Replace(usual, "A: 1", "A : 1", 1), strings.Replace(usual, "Host: h:80", "Host: a/b", 1),
		strings.Replace(usual, "Host: h:80\r\n", "", 1), strings.Replace(usual, "A: 1", "Host: twice", 1), strings.Replace(usual, "A: 1", "Content-Length: 5", 1),
		strings.Replace(usual, "A: 1", "Content-Length: 6", 1), strings.Replace(usual, "Length: 5", "Length: +5", 1), strings.Replace(usual, "A: 1", "Big: "+strings.Repeat("b", 20_000), 1),
		"GET / HTTP/1.1\r\nHost: h\r\n"+strings.Repeat("N: 1\r\n", 60)+"\r\n", "GET / HTTP/1.1\r\n\r\n", "GET /\r\n\r\n", "\r\n\r\n", "\x16\x03\x01\x02\x00\x01")
	for _, request := range requests {
		want := twice(t, theirs.Listener.Addr().String(), request)
		for how, addr := range map[string]string{"whole": ours, "in pieces": split} {
			if got := twice(t, addr, request); got != want {
				t.Errorf("%.200q (%s): got\n%.600q\nwant\n%.600q", request, how, got, want)
			}
		}
	}
}

// twice sends a request two times over one connection and returns what came back, without the date.
func twice(t *testing.T, addr, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	method, _, _ := strings.Cut(request, " ")
	if method == "gEt" {
		method = "GET"
	}
	br := bufio.NewReader(c)
	var said strings.Builder
	for range 2 {
		_, _ = io.WriteString(c, request) // if the connection has ended, reading tells
		if !strings.Contains(request, "\r\n\r\n") {
			_ = c.(*net.TCPConn).CloseWrite()
		}
		for {
			res, err := http.ReadResponse(br, &http.Request{Method: method})
			if err != nil {
				return said.String() + "(the end)" // or a reset, which is a matter of luck
			}
			body, err := io.ReadAll(res.Body)
			if res.Close {
				err = nil // whether a reset overtakes the end is a matter of luck
			}
			if res.StatusCode < 400 && len(res.Header["Date"]) != 1 && res.StatusCode >= 200 {
				t.Errorf("%.60q: Date %q", request, res.Header["Date"])
			}
			res.Header.Del("Date")
			if strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") && res.StatusCode < 400 {
				res.Header.Del("Content-Type") // net/http guesses one
			}
			fmt.Fprintf(&said, "%d %q %d %q %v %q %v\n", res.StatusCode, res.Header, res.ContentLength, res.TransferEncoding, res.Close, body, err)
			if res.StatusCode >= 200 {
				break
			}
		}
	}
	return said.String()
}

// FuzzParse holds the parser to net/http's reading: what it takes, net/http takes, and reads alike.
func FuzzParse(f *testing.F) {
	f.Add([]byte(usual))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n"))
	f.Add([]byte("GET /a%20b//..?x=%zz HTTP/1.1\r\nHost: [::1]:80\r\nconnection: Close\r\n\r\nrest"))
	f.Add([]byte("PUT /\x80 HTTP/1.1\r\nHost: h\r\nÄ: ü\r\nX: \x80\xff\r\nContent-Length: 007\r\n\r\n1234567"))
	f.Fuzz(func(t *testing.T, data []byte) {
		pipe, _ := net.Pipe()
		c := newConn(&Server{Std: &http.Server{}}, pipe, context.Background())
		size := c.parse(data)
		if size == 0 {
			if len(c.req.Header) != 0 {
				t.Fatalf("a refused head leaves %q", c.req.Header)
			}
			return
		}
		br := bufio.NewReaderSize(bytes.NewReader(data), 64<<10)
		want, err := http.ReadRequest(br)
		if err != nil {
			t.Fatalf("%q is taken, and net/http says %v", data, err)
		}
		if len(data)-br.Buffered() != size {
			t.Fatalf("%q: the head has %d bytes, net/http read %d", data, size, len(data)-br.Buffered())
		}
		got := c.req
		if got.Method != want.Method || !reflect.DeepEqual(got.URL, want.URL) || got.Host != want.Host || got.RequestURI != want.RequestURI ||
			got.ContentLength != want.ContentLength || got.Close != want.Close || len(want.TransferEncoding) > 0 || want.Proto != "HTTP/1.1" {
			t.Fatalf("%q: got %+v, want %+v", data, got, want)
		}
		if !reflect.DeepEqual(got.Header, want.Header) {
			t.Fatalf("%q: got %q, want %q", data, got.Header, want.Header)
		}
	})
}

// An answer that a handler breaks off is not ended as if it were whole, and nothing follows it.
func TestAbortedAnswers(t *testing.T) {
	addr := start(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun")
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, "lost")
		panic(http.ErrAbortHandler)
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, usual)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(res.Body); err != io.ErrUnexpectedEOF || string(b) != "begun" {
		t.Errorf("read %q, %v", b, err)
	}
}

// A body that the handler leaves is skipped if it is small; else the connection ends, and the client sees the answer all the same.
func TestBodiesLeftUnread(t *testing.T) {
	var seen atomic.Int32
	addr := start(t, func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	})
	for _, size := range []int{10, 10_000, mostDiscarded, mostDiscarded + 1, 5 << 20} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		seen.Store(0)
		br := bufio.NewReader(c)
		for i := range 2 {
			go func() {
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size)
				_, _ = io.Copy(c, io.LimitReader(iotest.DataErrReader(zeros{}), int64(size)))
			}()
			res, err := http.ReadResponse(br, nil)
			if err != nil || res.StatusCode != 413 {
				t.Fatalf("%d bytes, request %d: %v %v", size, i+1, res, err)
			}
			_ = res.Body.Close()
			if large := size > mostDiscarded; res.Close != large {
				t.Errorf("%d bytes: the connection is closed: %v", size, res.Close)
			} else if large {
				break
			}
		}
		_ = c.Close()
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// While a request runs, Shutdown waits; idle connections it closes at once.
func TestShutdown(t *testing.T) {
	running, over := make(chan struct{}), make(chan struct{})
	var s *Server
	var closed atomic.Int32
	addr := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(running)
			<-over
		}
		_, _ = io.WriteString(w, "done")
	}, func(made *Server) {
		s = made
		s.Std.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				closed.Add(1)
			}
		}
	})
	ask := func(path string) (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
		return c, bufio.NewReader(c)
	}
	idle, idleReader := ask("/")
	if _, err := http.ReadResponse(idleReader, nil); err != nil {
		t.Fatal(err)
	}
	_, slow := ask("/slow")
	<-running
	ended := make(chan error)
	go func() { ended <- s.Shutdown(context.Background()) }()
	_ = idle.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, idleReader); err != nil {
		t.Errorf("the idle connection: %v", err)
	}
	select {
	case err := <-ended:
		t.Errorf("Shutdown returned %v while a request ran", err)
	default:
	}
	close(over)
	res, err := http.ReadResponse(slow, nil)
	if err != nil || !res.Close {
		t.Errorf("the answer during the shutdown: %+v %v", res, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := closed.Load(); n != 2 {
		t.Errorf("%d connections were told to be closed, want 2", n)
	}
}

// A connection that was made just before a shutdown may have its request under way: it is answered.
func TestShutdownSparesNewConnections(t *testing.T) {
	var s *Server
	addr := start(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "here") }, func(made *Server) { s = made })
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for accepted := false; !accepted; {
		s.mu.Lock()
		accepted = len(s.conns) == 1
		s.mu.Unlock()
	}
	ended := make(chan error)
	go func() { ended <- s.Shutdown(context.Background()) }()
	for !s.closing.Load() {
		runtime.Gosched()
	}
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || !res.Close {
		t.Errorf("%+v %v, want an answer with Connection: close", res, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A request that is served here costs a few allocations: its text, and what a URL that is not plain takes.
func TestAllocations(t *testing.T) {
	addr := start(t, func(w http.ResponseWriter, r *http.Request) {
		var room [8]byte
		_, _ = io.ReadFull(r.Body, room[:5])
		w.Header()["Content-Length"] = five
		_, _ = w.Write(room[:5])
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	request := []byte(strings.Replace(usual, "X-Odd-name:  two words \t\r\nA: 1\r\na: 2\r\n", "", 1))
	answer := make([]byte, 4096)
	if n := testing.AllocsPerRun(2000, func() {
		if _, err := c.Write(request); err != nil {
			t.Fatal(err)
		}
		for n := 0; !bytes.HasSuffix(answer[:n], []byte("\r\n\r\nhello")); {
			m, err := c.Read(answer[n:])
			if n += m; err != nil {
				t.Fatal(err)
			}
		}
	}); n > 4 {
		t.Errorf("%v allocations, want at most 4", n)
	}
}

var five = []string{"5"}
