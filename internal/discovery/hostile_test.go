package discovery

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/internal/secret"
)

const key = "sk-very-secret-0123456789"

// probeWithKey is Probe with a time for each GET. It fails the test if the key is in the report.
func probeWithKey(t *testing.T, rt http.RoundTripper, url string, timeout time.Duration) Report {
	t.Helper()
	p := newProber(Target{Name: "gpu-1", URL: url, APIKey: secret.New(key)}, rt, timeout)
	p.round(context.Background(), false, func(Report) {})
	if text := fmt.Sprintf("%v %+v", p.last.Err, p.last); strings.Contains(text, key) {
		t.Errorf("the key is in the report: %s", text)
	}
	return p.last
}

func wantReport(t *testing.T, r Report, reachable bool, inError string) {
	t.Helper()
	if r.Reachable != reachable || r.Err == nil || !strings.Contains(r.Err.Error(), inError) {
		t.Errorf("got reachable %t and error %v; want %t and an error with %q", r.Reachable, r.Err, reachable, inError)
	}
	if r.Models != nil {
		t.Errorf("got models %v", r.Models)
	}
}

func TestHostileBodies(t *testing.T) {
	var bomb bytes.Buffer // small on the wire
	z := gzip.NewWriter(&bomb)
	io.CopyN(z, spaces{}, maxBody+1)
	z.Close()
	f := func(inError string, body func(http.ResponseWriter, *http.Request)) {
		t.Helper()
		mux := http.NewServeMux()
		mux.HandleFunc("/v1/models", body)
		mux.HandleFunc("/props", body)
		wantReport(t, probeWithKey(t, transport(t), listen(t, mux), time.Minute), true, inError)
	}
	f("GET /v1/models: the answer is longer than 4 MiB", func(w http.ResponseWriter, r *http.Request) {
		chunk := []byte(strings.Repeat(`{"id":"m"},`, 6000))
		for n := 0; n <= maxBody; n += len(chunk) { // whole, so that the time does not matter
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	f("GET /v1/models: the answer is longer than 4 MiB", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(bomb.Bytes())
	})
	f("GET /v1/models: unexpected EOF", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, `{"data":[`)
	})
	f("GET /v1/models: 200, but the answer is no JSON object", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat("[", 1<<20))
	})
	f(`it redirects to another address`, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://elsewhere.example/"+r.Header.Get("Authorization")[len("Bearer "):])
		w.WriteHeader(http.StatusFound)
	})
	f(`it redirects to "https://elsewhere.example/v1/models"`, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://user:"+key+"@elsewhere.example/v1/models?key="+key)
		w.WriteHeader(http.StatusPermanentRedirect)
	})
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// A status line is an answer, also if nothing follows it.
func TestBodyThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := probeWithKey(t, stuckBodies{}, "http://gpu-1", getTimeout)
		wantReport(t, r, true, "GET /v1/models: no whole answer in time (5s for one GET): context deadline exceeded")
		if d := time.Since(start); d != getTimeout {
			t.Errorf("it took %v", d)
		}
	})
}

// stuckBodies answers with a body that trickles until the time is up.
type stuckBodies struct{}

func (stuckBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: stuckBody{r.Context()}}, nil
}

type stuckBody struct{ ctx context.Context }

func (b stuckBody) Read(p []byte) (int, error) {
	select {
	case <-time.After(10 * time.Millisecond):
		return copy(p, " "), nil
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

func (stuckBody) Close() error { return nil }

// Pages that each take nearly the whole time for one GET do not add up without end.
func TestProbeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := Probe(t.Context(), slow{&server{pages: pages{"/v1/models": `{"data":[{"id":"m"}]}`}}, 4 * time.Second}, Target{URL: "http://a"})
		if got, want := describe(r), "up=true kind=openai-compatible version= models=m/0 kv=0"; got != want {
			t.Errorf("got %s", got)
		}
		if d := time.Since(start); d != probeTimeout {
			t.Errorf("it took %v", d)
		}
	})
}

// slow answers after a while.
type slow struct {
	http.RoundTripper
	wait time.Duration
}

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(s.wait):
		return s.RoundTripper.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func TestNoHTTPAnswer(t *testing.T) {
	f := func(timeout time.Duration, inError string, answer func(net.Conn, *http.Request)) {
		t.Helper()
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { // ends when the listener is closed
			defer close(done)
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					answer(conn, req)
				}
				conn.Close()
			}
		}()
		r := probeWithKey(t, transport(t), "http://"+ln.Addr().String(), timeout)
		ln.Close()
		<-done
		wantReport(t, r, false, inError)
		if r.Kind != "" {
			t.Errorf("got kind %q of a server that gave no answer", r.Kind)
		}
	}
	f(time.Minute, "GET /v1/models: net/http: HTTP/1.x transport connection broken: malformed HTTP", func(c net.Conn, _ *http.Request) {
		io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n\r\n")
	})
	f(time.Minute, "GET /v1/models: no usable answer: it is garbled, and holds the endpoint's key", func(c net.Conn, r *http.Request) {
		io.WriteString(c, r.Header.Get("Authorization")+"\r\n\r\n")
	})
	f(100*time.Millisecond, "GET /v1/models: no whole answer in time (100ms for one GET)", func(c net.Conn, _ *http.Request) {
		io.Copy(io.Discard, c) // until the prober gives up
	})
	f(time.Minute, "GET /v1/models: ", func(net.Conn, *http.Request) {}) // EOF or reset
	f(time.Minute, "GET /v1/models: ", func(c net.Conn, _ *http.Request) { c.(*net.TCPConn).SetLinger(0) })

	url := listen(t, &server{})
	wantReport(t, probeWithKey(t, transport(t), strings.Replace(url, "http:", "https:", 1), time.Minute), false,
		`GET /v1/models: the server does not speak TLS; if it should not, write http:// in the url of endpoint "gpu-1": `)

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close() // nobody else takes an ephemeral port that soon
	wantReport(t, probeWithKey(t, transport(t), "http://"+ln.Addr().String(), time.Minute), false, "connection refused")
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	other := &server{pages: vllm}
	target := listen(t, other)
	url := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	r := probeWithKey(t, transport(t), url, time.Minute)
	wantReport(t, r, true, fmt.Sprintf("GET /v1/models: 307 Temporary Redirect: it redirects to %q", target+"/v1/models"))
	wantPaths(t, other.asked())
	if r.Kind != generic {
		t.Errorf("got kind %q", r.Kind)
	}
}
