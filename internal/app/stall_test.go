package app

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/mock"
	"evenkeel/tests/certs"
)

// Clients that stopped in the middle of their requests do not hold up the end of the process: once the drain is over they
// are told, in the way of the API, and the process ends.
func TestStalledUploadsAtTheEnd(t *testing.T) {
	ca := certs.NewAuthority(t, "ours")
	cert, key := ca.Local(t).Write(t, t.TempDir(), "server")
	e := engine(t, mock.Config{Models: []string{"m"}})
	const head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for name, secure := range map[string]bool{"plain": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			settings := endpoint(e.URL(), "drain_timeout: 100ms")
			dial := func(address string) (net.Conn, error) { return net.Dial("tcp", address) }
			if secure {
				settings = fmt.Sprintf("tls: {cert: %s, key: %s}\n", cert, key) + settings
				dial = func(address string) (net.Conn, error) {
					return tls.Dial("tcp", address, &tls.Config{RootCAs: ca.Pool()})
				}
			}
			w := startTLS(t, parse(t, settings), &tls.Config{RootCAs: ca.Pool()})
			w.serves("m")
			var stalled []net.Conn
			for _, request := range []string{
				head + "Content-Length: 1000\r\n\r\n{\"model\":",
				head + "Content-Length: 1000\r\n\r\n",
				head + "Transfer-Encoding: chunked\r\n\r\n9\r\n{\"model\":\r\n",
				head + "Transfer-Encoding: chunked\r\n\r\n",
			} {
				c, err := dial(host(w.url))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if _, err := io.WriteString(c, request); err != nil {
					t.Fatal(err)
				}
				stalled = append(stalled, c)
			}
			w.await("all are being read", func() bool { return w.app.proxy.Running() == int64(len(stalled)) })
			begun := time.Now()
			w.stop()
			for i, c := range stalled {
				_ = c.SetReadDeadline(time.Now().Add(patience))
				res, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Errorf("%d: no answer: %v", i, err)
					continue
				}
				text, err := io.ReadAll(res.Body)
				if err != nil || res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(text), `"evenkeel_shutting_down"`) || res.Header.Get("Retry-After") == "" {
					t.Errorf("%d: %d %v %v %s", i, res.StatusCode, err, res.Header, text)
				}
			}
			w.over()
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}
