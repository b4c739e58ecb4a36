package proxy

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// memoryListener accepts connections that are made in memory, so that a server can run in virtual time.
type memoryListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	close(l.closed)
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.TCPAddr{} }

// inMemory serves h and returns what connects to it. The server ends when the test does.
func inMemory(t *testing.T, h http.Handler) func() net.Conn {
	l := &memoryListener{make(chan net.Conn), make(chan struct{})}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	ended := make(chan struct{})
	go func() { // ends with the listener
		defer close(ended)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return func() net.Conn {
		client, server := net.Pipe()
		l.conns <- server
		return client
	}
}

// bodiesOnly is a proxy that serves no model: whoever gets a 404 has had the whole body read.
func bodiesOnly(g *Generation) *Proxy {
	return New(Options{Current: func() *Generation { return g }, Done: func(Finished) {}, Logger: slog.New(slog.DiscardHandler)})
}

// upload is a client that sends a body of size bytes in its own way, and counts the time until it has the answer.
type upload struct {
	size    int
	chunked bool
	send    func(w io.Writer) // the body; what fails to be written does not matter
}

func (u upload) run(t *testing.T, conn net.Conn) (status int, code string, took time.Duration) {
	t.Helper()
	sent := make(chan struct{})
	defer func() {
		_ = conn.Close()
		<-sent
	}()
	began := time.Now()
	go func() { // ends when all is sent, or the connection is closed
		defer close(sent)
		framing := fmt.Sprintf("Content-Length: %d", u.size)
		if u.chunked {
			framing = "Transfer-Encoding: chunked"
		}
		_, _ = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n%s\r\n\r\n", framing)
		if u.chunked {
			u.send(chunks{conn})
			_, _ = io.WriteString(conn, "0\r\n\r\n")
			return
		}
		u.send(conn)
	}()
	br := bufio.NewReader(conn)
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	took = time.Since(began)
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"model_not_found", "evenkeel_body_timeout", codeBodyMemory} {
		if strings.Contains(string(body), `"code":"`+c+`"`) {
			code = c
		}
	}
	if res.StatusCode == http.StatusRequestTimeout {
		if _, err := br.ReadByte(); err != io.EOF {
			t.Errorf("the connection is not closed after a 408: %v", err)
		}
	}
	return res.StatusCode, code, took
}

// chunks writes each piece as a chunk.
type chunks struct{ w io.Writer }

func (c chunks) Write(b []byte) (int, error) {
	if _, err := fmt.Fprintf(c.w, "%x\r\n%s\r\n", len(b), b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// steady sends body in pieces, one each interval. It stops when the connection is closed.
func steady(body string, piece int, each time.Duration) func(io.Writer) {
	return func(w io.Writer) {
		for rest := body; len(rest) > 0; {
			n := min(piece, len(rest))
			if _, err := io.WriteString(w, rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
			time.Sleep(each) // virtual
		}
	}
}

const strangerBody = `{"model":"nobody","messages":[{"role":"user","content":"`

func stranger(size int) string {
	return strangerBody + strings.Repeat("a", size-len(strangerBody)-len(`"}]}`)) + `"}]}`
}

// TestC02SlowBodies: a body must come at a rate, not only move: drips are closed within a minute, also ones that never
// pause for long, while slow but honest lines get through however long they take.
func TestC02SlowBodies(t *testing.T) {
	f := func(name string, u upload, status int, earliest, latest time.Duration) {
		t.Helper()
		for _, u.chunked = range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, chunked %v", name, u.chunked), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := bodiesOnly(&Generation{MaxBody: 32 << 20})
					got, code, took := u.run(t, inMemory(t, p)())
					want := map[int]string{404: "model_not_found", 408: "evenkeel_body_timeout"}[status]
					if got != status || code != want || took < earliest || took > latest {
						t.Errorf("%d %s after %v, want %d %s after %v to %v", got, code, took, status, want, earliest, latest)
					}
					synctest.Wait()
					if n := p.BodyMemory(); n != 0 {
						t.Errorf("%d bytes are held", n)
					}
				})
			})
		}
	}
	const s = time.Second
	mega := stranger(1 << 20)
	f("nothing comes", upload{size: 100, send: func(io.Writer) { time.Sleep(time.Hour) }}, 408, 29*s, 30*s)
	f("a byte each 29 s", upload{size: 1 << 20, send: steady(mega, 1, 29*s)}, 408, 29*s, 31*s)
	f("a byte each 10 ms", upload{size: 1 << 20, send: steady(mega, 1, s/100)}, 408, 30*s, 35*s)
	f("half the rate", upload{size: 1 << 20, send: steady(mega, 512, s)}, 408, 55*s, 61*s)
	f("fast, then nothing", upload{size: 1 << 20, send: steady(mega, 1<<20-1, time.Hour)}, 408, 29*s, 30*s)
	f("fast, then a drip", upload{size: 1 << 20, send: func(w io.Writer) {
		_, _ = io.WriteString(w, mega[:1<<19])
		steady(mega[1<<19:], 1, s)(w)
	}}, 408, 29*s, 31*s)

	f("at once", upload{size: 1 << 20, send: steady(mega, 1<<20, 0)}, 404, 0, 0)
	f("2 KB/s for ten minutes", upload{size: 1 << 20, send: steady(mega, 2048, s)}, 404, 500*s, 520*s)
	f("a pause of 28 s every 64 KB", upload{size: 1 << 20, send: steady(mega, 64<<10, 28*s)}, 404, 400*s, 450*s)
	f("28 s before it begins", upload{size: 1000, send: func(w io.Writer) {
		time.Sleep(28 * s)
		_, _ = io.WriteString(w, stranger(1000))
	}}, 404, 28*s, 28*s)
}

// While much of the memory is taken, a large body must come faster, so that slow ones cannot keep it for hours. Small
// ones may take their time.
func TestC02SlowBodiesWhereMemoryIsShort(t *testing.T) {
	const s = time.Second
	const bound = 16 << 20
	f := func(name string, others int64, size, perSecond, status int, earliest, latest time.Duration) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := bodiesOnly(&Generation{MaxBody: 8 << 20, BodyMemory: bound})
				p.bodies.taken.Add(others)
				u := upload{size: size, send: steady(stranger(size), perSecond, s)}
				got, code, took := u.run(t, inMemory(t, p)())
				if got != status || took < earliest || took > latest {
					t.Errorf("%d %s after %v, want %d after %v to %v", got, code, took, status, earliest, latest)
				}
				synctest.Wait()
				if n := p.BodyMemory(); n != others {
					t.Errorf("%d bytes are held", n-others)
				}
			})
		})
	}
	f("enough memory", 0, 4<<20, 16<<10, 404, 250*s, 260*s)
	f("little memory", bound/2, 4<<20, 16<<10, 408, 30*s, 50*s)
	f("little memory, fast", bound/2, 4<<20, 100<<10, 404, 40*s, 42*s)
	f("little memory, small", bound/2, 64<<10, 2<<10, 404, 31*s, 32*s)
}

// The deadline of a body ends with it: net/http reads on to see a client leave, and would take it for one.
func TestDeadlineOfABodyEndsWithIt(t *testing.T) {
	for _, size := range []int{500, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			g := &Generation{MaxBody: 32 << 20}
			var m bodyMemory
			connect := inMemory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var b requestBody
				defer b.release()
				if e := b.read(w, r, &m, g); e != nil {
					t.Error(e)
				}
				select {
				case <-r.Context().Done():
					t.Error("the client seems to have left")
				case <-time.After(10 * bodyPause):
				}
			}))
			conn := connect()
			if status, _, took := (upload{size: size, send: steady(stranger(size), size, 0)}).run(t, conn); status != 200 || took != 10*bodyPause {
				t.Errorf("%d after %v", status, took)
			}
		})
	}
}
