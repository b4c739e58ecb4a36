//go:build linux

package overload

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"evenkeel/tests/harness"
)

// stream is a stream that has begun.
type stream struct {
	net.Conn
	r *bufio.Reader
}

func (s stream) ends(t testing.TB) {
	t.Helper()
	_ = s.SetDeadline(time.Now().Add(patience))
	rest, err := io.ReadAll(s.r)
	if err != nil || !strings.Contains(string(rest), "[DONE]") {
		t.Errorf("a stream that ran before ended with %v: %q", err, rest)
	}
}

// open asks for a stream and waits for its first content, if it is not refused.
func open(t testing.TB, c net.Conn, body string) (stream, *http.Response) {
	t.Helper()
	res, err := ask(c, body)
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(res.Body)
	if res.StatusCode == http.StatusOK {
		if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
			t.Fatalf("stream: %q %v", line, err)
		}
	}
	return stream{c, r}, res
}

// begin starts streams and returns them when the first content of each has come.
func begin(t testing.TB, b *harness.Balancer, n int, members string) []stream {
	t.Helper()
	var all []stream
	for range n {
		s, res := open(t, connect(t, b), chat(`"stream":true,`+members))
		if res.StatusCode != http.StatusOK {
			t.Fatalf("stream: %v", res)
		}
		all = append(all, s)
	}
	return all
}

// idly measures which part of one CPU the process uses for a second.
func idly(t testing.TB, b *harness.Balancer) float64 {
	t.Helper()
	begun, used := time.Now(), cpu(t, b.PID())
	<-time.After(time.Second) // what is measured is what the process does meanwhile
	return (cpu(t, b.PID()) - used).Seconds() / time.Since(begun).Seconds()
}

// TestR59ConnectionsStayWithinTheFiles: with 256 files the bound on connections is such that a flood of them is refused
// and takes nothing from what runs.
func TestR59ConnectionsStayWithinTheFiles(t *testing.T) {
	e := newEngine(t)
	b := harness.Limited(t, 256, nil, "--config", e.config(t, ""))
	running := begin(t, b, 20, "")
	for range 400 {
		if c, err := dial(b); err == nil { // else it was refused before it knew that it was connected
			defer c.Close()
		}
	}
	if load := idly(t, b); load > 0.5 {
		t.Errorf("the process uses %.2f of a CPU while it refuses connections", load)
	}
	if n := metric(t, b, "evenkeel_connections_refused_total", `listener="data"`, `reason="max"`); n < 300 {
		t.Errorf("%.0f connections were refused, want most of 400", n)
	}
	if n := metric(t, b, "evenkeel_connections_refused_total", `reason="accept_error"`); n != 0 {
		t.Errorf("the process ran out of files %.0f times", n)
	}
	e.finish()
	for _, s := range running {
		s.ends(t)
	}
}

// TestR59NoFilesLeft: where the operator allows more connections than there are files, those that find none wait or are
// told so, what runs goes on, nobody spins, no endpoint is blamed, and when files are free again all is well.
func TestR59NoFilesLeft(t *testing.T) {
	e := newEngine(t)
	b := harness.Limited(t, 64, nil, "--config", e.config(t, "connections: {max: 100000, per_address: 100000}\n"))
	running := begin(t, b, 5, "")
	told := connect(t, b) // is accepted while there are files, and asks when there are none
	harness.Eventually(t, patience, "it is accepted", func() bool { return metric(t, b, "evenkeel_connections", `listener="data"`) >= 6 })
	var idle []net.Conn
	for range 200 {
		idle = append(idle, connect(t, b))
	}
	harness.Eventually(t, patience, "a lack of files is logged", func() bool { return strings.Contains(b.Log(), "too many open files") })
	load := idly(t, b)
	t.Logf("%.3f of a CPU", load)
	if load > 0.5 {
		t.Errorf("the process uses %.2f of a CPU while it has no files", load)
	}
	if res, err := ask(told, chat("")); err != nil || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Errorf("without a file for a connection upstream a client got %v, %v; want 503 with a time to come back", res, err)
	}
	e.finish()
	for _, s := range running {
		s.ends(t)
	}
	for _, c := range idle {
		c.Close()
	}
	harness.Eventually(t, patience, "new clients are served again", func() bool {
		c := connect(t, b)
		defer c.Close()
		res, err := ask(c, chat(""))
		return err == nil && res.StatusCode == http.StatusOK
	})
	if n := metric(t, b, "evenkeel_breaker_openings_total"); n != 0 {
		t.Errorf("breakers opened %.0f times for what was nobody's fault", n)
	}
}
