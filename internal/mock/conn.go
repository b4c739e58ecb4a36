package mock

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	maxHeadBytes = 1 << 20
	maxBodyBytes = 64 << 20
	// keepBufferBytes is the size up to which a connection keeps its buffers for the next request.
	keepBufferBytes = 128 << 10
)

var (
	errClientGone = errors.New("mock: the client left")
	errCut        = errors.New("mock: the answer was cut on purpose") // the connection cannot go on
	errEndedEarly = errors.New("mock: the answer was ended early on purpose, cleanly as HTTP")
	errBodyTooBig = errors.New("mock: request body too big")
	errPipelined  = fmt.Errorf("%w: too many requests stand behind it", errCut)
)

// conn serves one connection in one goroutine. Only poke and reset may be called by others.
type conn struct {
	engine  *Engine
	session *session
	nc      net.Conn
	in      meteredReader
	br      *bufio.Reader

	mu     sync.Mutex // held for moments only
	parked bool       // waiting for something other than a point in time: poke wakes it

	// Of the current request; the slices are buffers that the next one uses again.
	req     *http.Request
	body    []byte
	out     []byte // not written yet
	event   []byte
	answer  answer
	pace    fixedPace
	began   time.Time // when the API call had come
	latest  time.Time // when the last token so far was out
	chunked bool
	last    bool // the connection ends after this answer

	counting bool // it is an API call
}

// meteredReader fails once a limit is read: http.ReadRequest has none of its own.
type meteredReader struct {
	r    io.Reader
	left int
}

func (m *meteredReader) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, errors.New("mock: request head too big")
	}
	if len(p) > m.left {
		p = p[:m.left]
	}
	n, err := m.r.Read(p)
	m.left -= n
	return n, err
}

func newConn(e *Engine, s *session, nc net.Conn) *conn {
	c := &conn{engine: e, session: s, nc: nc, in: meteredReader{r: nc}}
	c.br = bufio.NewReader(&c.in)
	return c
}

// poke wakes the connection if it is parked, so that it looks again at what it waits for.
func (c *conn) poke() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parked {
		c.nc.SetReadDeadline(time.Unix(1, 0))
	}
}

func (c *conn) setParked(parked bool) {
	c.mu.Lock()
	c.parked = parked
	c.mu.Unlock()
}

// reset closes the connection with a TCP RST.
func (c *conn) reset() {
	nc := c.nc
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn() // closing the outer one would say goodbye first
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	nc.Close()
}

func (c *conn) serve() {
	defer c.nc.Close()
	for {
		c.in.left = maxHeadBytes
		if c.park(func() bool { return c.br.Buffered() > 0 || !c.session.keep.Load() }) != nil || c.br.Buffered() == 0 {
			return
		}
		c.nc.SetReadDeadline(time.Time{})
		req, err := http.ReadRequest(c.br)
		c.in.left = maxBodyBytes * 2 // the body has its own limit; this leaves room for chunk framing
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				c.req, c.last = &http.Request{ProtoMajor: 1, ProtoMinor: 1}, true
				c.respond(http.StatusBadRequest, "text/plain", []byte("malformed request: "+err.Error()+"\n"))
			}
			return
		}
		c.req = req
		c.chunked = req.ProtoAtLeast(1, 1)
		c.last = req.Close || !c.chunked
		if err := c.handle(); err != nil || c.last {
			return
		}
		c.req, c.counting = nil, false
		c.body, c.out, c.event = reuse(c.body), reuse(c.out), reuse(c.event)
	}
}

func reuse(b []byte) []byte {
	if cap(b) > keepBufferBytes {
		return nil
	}
	return b[:0]
}

// readBody reads the whole body into c.body.
func (c *conn) readBody() error {
	n := c.req.ContentLength
	if n > maxBodyBytes {
		return errBodyTooBig
	}
	if n != 0 && c.req.Header.Get("Expect") == "100-continue" {
		if _, err := io.WriteString(c.nc, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return err
		}
	}
	if n >= 0 {
		if int64(cap(c.body)) < n {
			c.body = make([]byte, n)
		}
		c.body = c.body[:n]
		_, err := io.ReadFull(c.req.Body, c.body)
		return err
	}
	c.body = c.body[:0]
	for {
		if len(c.body) == cap(c.body) {
			c.body = append(c.body, 0)[:len(c.body)]
		}
		n, err := c.req.Body.Read(c.body[len(c.body):cap(c.body)])
		c.body = c.body[:len(c.body)+n]
		if len(c.body) > maxBodyBytes {
			return errBodyTooBig
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// sleep waits until the given time, by reading: so a client that leaves is noticed at once (errClientGone).
func (c *conn) sleep(until time.Time) error {
	if !until.After(time.Now()) {
		return nil
	}
	c.nc.SetReadDeadline(until)
	for {
		err := c.watch()
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			time.Sleep(time.Until(until)) // pipelined requests fill the buffer, so leaving cannot be seen
			return nil
		default:
			return c.gone()
		}
	}
}

// park waits until ready says so; it is asked at the start and after each poke and each byte.
func (c *conn) park(ready func() bool) error {
	c.setParked(true)
	defer c.setParked(false)
	for {
		// In this order, so that a poke after the look at ready cannot be lost.
		c.nc.SetReadDeadline(time.Time{})
		if ready() {
			return nil
		}
		err := c.watch()
		if errors.Is(err, bufio.ErrBufferFull) {
			return errPipelined // the client cannot be watched any more
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return c.gone()
		}
	}
}

// watch waits for a further byte, the deadline or the end of the connection.
func (c *conn) watch() error {
	_, err := c.br.Peek(c.br.Buffered() + 1)
	return err
}

// gone says why the connection is gone: because of the client, unless it was us.
func (c *conn) gone() error {
	if c.session.dead.Load() {
		return errCut
	}
	return errClientGone
}

// flush writes what is in c.out.
func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	if err != nil {
		return c.gone()
	}
	return nil
}

// head appends a response head to c.out: all but the framing (content-length or transfer-encoding) and the empty line.
func (c *conn) head(status int, contentType string) {
	if c.counting {
		c.engine.count.statuses[status].Add(1)
	}
	c.last = c.last || !c.session.keep.Load()
	b := append(c.out, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(append(b, ' '), http.StatusText(status)...)
	b = append(b, "\r\nserver: evenkeel-mock\r\nx-mock-engine: "...)
	b = append(b, c.engine.cfg.Name...)
	if contentType != "" {
		b = append(append(b, "\r\ncontent-type: "...), contentType...)
	}
	if id := c.req.Header["X-Request-Id"]; len(id) == 1 {
		b = append(append(b, "\r\nx-request-id: "...), id[0]...)
	}
	if c.last {
		b = append(b, "\r\nconnection: close"...)
	}
	c.out = append(b, "\r\n"...)
}

// respond writes a whole answer. extra are further header lines, each without its end.
func (c *conn) respond(status int, contentType string, body []byte, extra ...string) error {
	c.head(status, contentType)
	for _, line := range extra {
		c.out = append(append(c.out, line...), "\r\n"...)
	}
	c.out = append(c.out, "content-length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(c.out, "\r\n\r\n"...)
	if c.req.Method != http.MethodHead {
		c.out = append(c.out, body...)
	}
	return c.flush()
}

// chunk appends p as one HTTP chunk; to a client of HTTP/1.0, as it is.
func (c *conn) chunk(p []byte) {
	if !c.chunked {
		c.out = append(c.out, p...)
		return
	}
	c.out = strconv.AppendInt(c.out, int64(len(p)), 16)
	c.out = append(c.out, "\r\n"...)
	c.out = append(c.out, p...)
	c.out = append(c.out, "\r\n"...)
}

// lastChunk appends the end of a chunked body.
func (c *conn) lastChunk() {
	if c.chunked {
		c.out = append(c.out, "0\r\n\r\n"...)
	}
}
