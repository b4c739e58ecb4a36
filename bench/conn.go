package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	readBuffer    = 16 << 10
	longestAnswer = 4 << 20         // bytes of a body
	patience      = 2 * time.Minute // for one whole answer
)

// asker makes one request after another and reads the answers. It is for one goroutine.
type asker interface {
	// ask makes the request and reads the whole answer. When ctx ends, it breaks off. After an error the next call makes
	// a new connection where one is needed.
	ask(ctx context.Context, each watch) error
	answer() []byte // the body of the last answer, until the next
	id() string     // evenkeel's name for the last answer, empty if it has none
	close()
}

// idHeader is the field of an answer that names the exchange, for explain.
const idHeader = "x-evenkeel-id"

// watch is told of the events of a stream as they come. n is the index of the event, at the time its bytes were read.
type watch func(n int, at time.Time)

// counter finds events in a body that grows.
type counter struct{ events, seen int }

func (c *counter) tell(body []byte, at time.Time, each watch) {
	for {
		i := bytes.Index(body[c.seen:], []byte("\n\n"))
		if i < 0 {
			return
		}
		c.seen += i + 2
		each(c.events, at)
		c.events++
	}
}

// conn is a persistent HTTP/1.1 connection that costs little beside what is measured. It knows no more of HTTP than
// the targets use.
type conn struct {
	addr     string
	tls      *tls.Config // nil = none
	request  []byte
	nc       net.Conn // nil when not connected
	br       *bufio.Reader
	body     []byte // of the last answer, without its framing
	answered string // ID of the last answer
}

func newConn(addr string, secure *tls.Config, request []byte) *conn {
	return &conn{addr: addr, tls: secure, request: request, br: bufio.NewReaderSize(nil, readBuffer)}
}

func (c *conn) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	if c.tls != nil {
		secure := tls.Client(nc, c.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			return errors.Join(err, nc.Close())
		}
		nc = secure
	}
	c.nc = nc
	c.br.Reset(nc)
	return nil
}

func (c *conn) answer() []byte { return c.body }
func (c *conn) id() string     { return c.answered }

func (c *conn) close() {
	if c.nc != nil {
		_ = c.nc.Close() // nothing more is wanted of it
		c.nc = nil
	}
}

func (c *conn) ask(ctx context.Context, each watch) error {
	if c.nc == nil {
		if err := c.dial(ctx); err != nil {
			return err
		}
	}
	nc := c.nc
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	keep, err := c.exchange(each)
	stop()
	if err != nil || !keep {
		c.close()
	}
	return err
}

func (c *conn) exchange(each watch) (keep bool, err error) {
	c.body, c.answered = c.body[:0], ""
	if err := c.nc.SetDeadline(time.Now().Add(patience)); err != nil {
		return false, err
	}
	if _, err := c.nc.Write(c.request); err != nil {
		return false, fmt.Errorf("write: %w", err)
	}
	h, err := readHead(c.br)
	if err != nil {
		return false, fmt.Errorf("head: %w", err)
	}
	c.answered = h.id
	if h.chunked {
		err = c.chunks(each)
	} else {
		err = c.fixed(h.length)
	}
	if err != nil {
		return false, fmt.Errorf("body: %w", err)
	}
	if h.status != 200 {
		return h.keep, fmt.Errorf("status %d: %.200s", h.status, c.body)
	}
	return h.keep, nil
}

// head is what matters of an answer's head.
type head struct {
	status  int
	length  int // −1 if there is none
	chunked bool
	keep    bool
	id      string
}

func readHead(br *bufio.Reader) (head, error) {
	h := head{length: -1, keep: true}
	line, err := readLine(br)
	if err != nil {
		return h, err
	}
	rest, ok := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	if !ok || len(rest) < 3 {
		return h, fmt.Errorf("%.40q is not a status line of HTTP/1.1", line)
	}
	if h.status, err = strconv.Atoi(string(rest[:3])); err != nil {
		return h, fmt.Errorf("status %.40q: %w", line, err)
	}
	for {
		line, err := readLine(br)
		if err != nil {
			return h, err
		}
		if len(line) == 0 {
			break
		}
		if err := h.field(line); err != nil {
			return h, err
		}
	}
	if h.length < 0 && !h.chunked {
		return h, errors.New("the answer has neither a length nor chunks: its end could not be told from a loss")
	}
	return h, nil
}

func (h *head) field(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return fmt.Errorf("%.40q is not a header field", line)
	}
	switch len(name) { // most fields are none of these
	case len("content-length"):
		if bytes.EqualFold(name, []byte("content-length")) {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 31)
			if err != nil || n > longestAnswer {
				return fmt.Errorf("content-length %.40q", value)
			}
			h.length = int(n)
		}
	case len("transfer-encoding"):
		if bytes.EqualFold(name, []byte("transfer-encoding")) {
			h.chunked = strings.EqualFold(string(bytes.TrimSpace(value)), "chunked")
		}
	case len(idHeader):
		if bytes.EqualFold(name, []byte(idHeader)) {
			h.id = string(bytes.TrimSpace(value))
		}
	case len("connection"):
		if bytes.EqualFold(name, []byte("connection")) && strings.EqualFold(string(bytes.TrimSpace(value)), "close") {
			h.keep = false
		}
	}
	return nil
}

// readLine returns a line without its end. It is valid until the next read.
func readLine(br *bufio.Reader) ([]byte, error) {
	line, err := br.ReadSlice('\n')
	if err != nil {
		if err == io.EOF && len(line) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}), nil
}

// fixed reads a body of n bytes.
func (c *conn) fixed(n int) error {
	c.grow(n)
	c.body = c.body[:n]
	_, err := io.ReadFull(c.br, c.body)
	return err
}

// chunks reads a chunked body and tells of the events in it.
func (c *conn) chunks(each watch) error {
	at := time.Now() // of what came with the head
	var found counter
	for {
		if each != nil && c.br.Buffered() == 0 {
			if _, err := c.br.Peek(1); err != nil {
				return unexpected(err)
			}
			at = time.Now()
		}
		line, err := readLine(c.br)
		if err != nil {
			return unexpected(err)
		}
		n, err := strconv.ParseUint(string(line), 16, 31)
		if err != nil || len(c.body)+int(n) > longestAnswer {
			return fmt.Errorf("chunk size %.40q", line)
		}
		if err := c.chunk(int(n)); err != nil {
			return unexpected(err)
		}
		if n == 0 {
			return nil
		}
		if each != nil {
			found.tell(c.body, at, each)
		}
	}
}

// chunk appends n bytes and reads the line end behind them.
func (c *conn) chunk(n int) error {
	c.grow(n)
	from := len(c.body)
	c.body = c.body[:from+n]
	if _, err := io.ReadFull(c.br, c.body[from:]); err != nil {
		return err
	}
	line, err := readLine(c.br)
	if err == nil && len(line) > 0 {
		err = fmt.Errorf("%.40q behind a chunk", line)
	}
	return err
}

// grow makes room for n more bytes.
func (c *conn) grow(n int) {
	if need := len(c.body) + n; need > cap(c.body) {
		c.body = append(make([]byte, 0, 2*need), c.body...)
	}
}

// unexpected makes a connection that ends inside an answer an error that says so.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
