package app

import (
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"evenkeel/internal/mock"
	"evenkeel/internal/route"
	"evenkeel/internal/telemetry"
)

// held is a connection that was made and has its request answered, so that it is known to be open.
func held(t *testing.T, from, address string) (net.Conn, error) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	c, err := d.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	return c, asks(c)
}

// asks does one request on a connection.
func asks(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	got := make([]byte, 4096)
	n, err := c.Read(got)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(got[:n]), "HTTP/1.1 200 OK\r\n") {
		return fmt.Errorf("answered %q", got[:n])
	}
	return nil
}

func TestC08ConnectionLimits(t *testing.T) {
	e := engine(t, mock.Config{Models: []string{"m"}})
	text := "connections: {max: 6, per_address: 4}\n" + endpoint(e.URL(), "")
	w := start(t, parse(t, text))
	w.serves("m")
	w.client.CloseIdleConnections()
	open := func() float64 { return w.metric("evenkeel_connections", `listener="data"`) }
	w.await("no connection is open", func() bool { return open() == 0 })
	refused := func(why string) float64 {
		return w.metric("evenkeel_connections_refused_total", `listener="data"`, `reason="`+why+`"`)
	}
	f := func(from string, good bool) net.Conn {
		t.Helper()
		c, err := held(t, from, host(w.url))
		if (err == nil) != good {
			t.Errorf("from %s: %v, want good: %v", from, err, good)
		}
		return c
	}
	var conns []net.Conn
	for range 4 {
		conns = append(conns, f("127.0.0.1", true))
	}
	f("127.0.0.1", false)
	if got := refused("per_address"); got != 1 {
		t.Errorf("%.0f refused for their address, want 1", got)
	}
	conns = append(conns, f("127.0.0.2", true), f("127.0.0.2", true))
	f("127.0.0.2", false)
	f("127.0.0.3", false)
	if got := refused("max"); got != 2 {
		t.Errorf("%.0f refused, want 2", got)
	}
	if got := open(); got != 6 {
		t.Errorf("%.0f are open, want 6", got)
	}
	w.logged("connections are refused", "per_address", "127.0.0.1")
	// Those that are in are served, and those that leave make room.
	for _, c := range conns {
		if err := asks(c); err != nil {
			t.Error(err)
		}
	}
	conns[0].Close()
	w.await("its place is free", func() bool { return open() == 5 })
	f("127.0.0.1", true)
	f("127.0.0.1", false)
	// The admin listener has places of its own.
	if a := w.get(w.admin + "/livez"); a.status != http.StatusOK {
		t.Errorf("the admin listener: %+v", a)
	}
	// A reload changes the limits.
	if err := w.app.Reload(parse(t, strings.Replace(text, "{max: 6, per_address: 4}", "{max: 7}", 1))); err != nil {
		t.Fatal(err)
	}
	f("127.0.0.1", true)
	f("127.0.0.1", false)
	for _, c := range conns[1:4] {
		c.Close()
	}
	w.await("three places are free", func() bool { return open() == 4 })
	if a := w.chat("m"); a.status != http.StatusOK {
		t.Errorf("%+v", a)
	}
}

// A flood of connections that say nothing, or half of something, does not keep others from being served.
func TestC08Flood(t *testing.T) {
	e := engine(t, mock.Config{Models: []string{"m"}})
	w := start(t, parse(t, "connections: {max: 200, per_address: 50}\n"+endpoint(e.URL(), "")))
	w.serves("m")
	stop := make(chan struct{})
	var flood sync.WaitGroup
	var made atomic.Int64
	for range 4 {
		flood.Go(func() {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 66)}}
			var open []net.Conn
			defer func() {
				for _, c := range open {
					c.Close()
				}
			}()
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := d.Dial("tcp", host(w.url))
				if err != nil {
					continue
				}
				made.Add(1)
				_, _ = io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: ") // it may be closed already
				if open = append(open, c); len(open) > 100 {
					open[0].Close()
					open = open[1:]
				}
			}
		})
	}
	w.await("the flood is there", func() bool { return made.Load() > 500 })
	for range 50 {
		if a := w.chat("m"); a.status != http.StatusOK {
			t.Errorf("%+v", a)
		}
		w.client.CloseIdleConnections() // the next one has to get in anew
	}
	if got := w.metric("evenkeel_connections", `listener="data"`); got > 52 {
		t.Errorf("%.0f connections are open, of an address that may have 50", got)
	}
	close(stop)
	flood.Wait()
}

// exhausted is a listener for which the system has no file descriptors, until it is given some.
type exhausted struct {
	net.Listener
	left  atomic.Int64 // errors to come
	calls atomic.Int64
}

func (l *exhausted) Accept() (net.Conn, error) {
	l.calls.Add(1)
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// Without file descriptors the server waits, does not spin and does not end; with them it goes on.
func TestC08NoFileDescriptors(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := telemetry.New(telemetry.Options{View: func() route.View { return route.View{} }, Known: func(string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	lines := newLogBuffer()
	l := &listener{name: "data", limits: &limits{}, metrics: metrics.Listener("data"), logger: slog.New(slog.NewTextHandler(lines, nil))}
	source := &exhausted{Listener: socket}
	source.left.Store(6)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }),
		ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan error, 1)
	begun := time.Now()
	front := l.web(s)
	go func() { ended <- front.Serve(l.limit(s, source)) }() // ends with front.Close
	c, err := held(t, "127.0.0.1", socket.Addr().String())
	if err != nil {
		t.Errorf("a client was not served: %v", err)
	}
	if took := time.Since(begun); took < 300*time.Millisecond { // 5+10+20+40+80+160 ms
		t.Errorf("six errors took %v: it spins", took)
	}
	if n := source.calls.Load(); n > 8 {
		t.Errorf("%d calls of Accept, want 7 or 8", n)
	}
	if text := lines.text(); !strings.Contains(text, "too many open files") || strings.Count(text, "\n") != 1 {
		t.Errorf("logged %q, want one line with the reason", text)
	}
	c.Close()
	front.Close()
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

func TestConnectionsWithin(t *testing.T) {
	for _, f := range []struct{ files, want int64 }{{0, 0}, {1, 1}, {256, 64}, {1024, 384}, {65536, 32640}, {1 << 20, 524160}} {
		if got := connectionsWithin(f.files); got != f.want {
			t.Errorf("%d files: %d, want %d", f.files, got, f.want)
		}
	}
	if n := openFiles(); n < 0 || n > 0 && n < 20 {
		t.Errorf("this process may have %d files", n)
	}
}

type addressed struct {
	net.Conn
	address string
}

func (a addressed) RemoteAddr() net.Addr { return fakeAddress(a.address) }

type fakeAddress string

func (fakeAddress) Network() string  { return "tcp" }
func (a fakeAddress) String() string { return string(a) }

func TestSource(t *testing.T) {
	f := func(address, want string) {
		t.Helper()
		got := source(addressed{nil, address})
		if want == "" && got != (netip.Prefix{}) || want != "" && got.String() != want {
			t.Errorf("%s: %v, want %q", address, got, want)
		}
	}
	f("192.0.2.7:1234", "192.0.2.7/32")
	f("[::ffff:192.0.2.7]:1234", "192.0.2.7/32")
	f("[2001:db8:1:2:3:4:5:6]:1234", "2001:db8:1:2::/64")
	f("[fe80::1%eth0]:1234", "fe80::/64")
	f("@", "")
	f("", "")
}
