package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// h2Clients is how many connections the clients of a cell with HTTP/2 share.
const h2Clients = 8

// newTransport is one client that speaks HTTP/2 over TLS, with one connection as long as the proxy takes more streams. A
// transport changes its configuration, so it has its own.
func newTransport(config *tls.Config) *http.Transport {
	t := &http.Transport{TLSClientConfig: config.Clone(), DisableCompression: true, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP2(true)
	return t
}

// h2stream makes one request after another, as streams of a connection that it shares. It is for one goroutine.
type h2stream struct {
	transport *http.Transport
	url       string
	request   []byte // the body
	body      []byte // of the last answer
	answered  string // ID of the last answer
}

func (s *h2stream) ask(ctx context.Context, each watch) error {
	s.body, s.answered = s.body[:0], ""
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(s.request))
	if err != nil {
		return err
	}
	r.Header = http.Header{"Accept": {"application/json"}, "Authorization": {"Bearer sk-bench"}, "Content-Type": {"application/json"}, "User-Agent": {"evenkeel-bench"}}
	res, err := s.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 {
		return fmt.Errorf("the answer came by %s, want HTTP/2", res.Proto)
	}
	s.answered = res.Header.Get(idHeader)
	if err := s.read(res.Body, each); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %.200s", res.StatusCode, s.body)
	}
	return nil
}

// read reads the whole body and tells of the events in it.
func (s *h2stream) read(body io.Reader, each watch) error {
	var c counter
	for {
		if len(s.body) == cap(s.body) {
			s.body = append(make([]byte, 0, max(4096, 2*cap(s.body))), s.body...)
		}
		n, err := body.Read(s.body[len(s.body):cap(s.body)])
		s.body = s.body[:len(s.body)+n]
		if n > 0 && each != nil {
			c.tell(s.body, time.Now(), each)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(s.body) > longestAnswer {
			return fmt.Errorf("more than %d bytes", longestAnswer)
		}
	}
}

func (s *h2stream) answer() []byte { return s.body }
func (s *h2stream) id() string     { return s.answered }
func (s *h2stream) close()         { s.transport.CloseIdleConnections() }
