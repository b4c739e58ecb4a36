package upstream

import (
	"io"
	"net/http"
	"time"
)

// writerLag is how long an answer's end waits for the goroutine that writes the request.
const writerLag = 10 * time.Millisecond

// framing is how a body ends.
type framing uint8

const (
	whole       framing = iota // there is none
	counted                    // after some bytes
	chunked                    // with the last chunk
	untilClosed                // with the connection
)

// answerBody is a response's body. At its end the connection goes back to the pool; before that, Close or an
// error ends the connection. For one goroutine at a time.
type answerBody struct {
	home     *answer
	conn     *conn // nil once it was given away or closed
	stop     *Stop
	kind     framing
	left     int64     // counted: bytes to come
	chunks   io.Reader // chunked
	reusable bool      // nothing that the answer says speaks against another request on its connection
	err      error     // what a Read returns once conn is nil
}

func (b *answerBody) Read(p []byte) (int, error) {
	switch {
	case b.conn == nil:
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	}
	n, err := b.next(p)
	switch {
	case err == io.EOF:
		b.ended()
	case err != nil:
		if b.conn.broke != nil && !connectionBroke(err) {
			err = io.ErrUnexpectedEOF // it only looks malformed because it was cut
		}
		_ = b.Close()
		b.err = err
	}
	return n, err
}

// next reads some of the body. io.EOF is the body's end.
func (b *answerBody) next(p []byte) (int, error) {
	br := b.conn.br
	switch b.kind {
	case counted:
		n, err := br.Read(p[:min(int64(len(p)), b.left)])
		switch b.left -= int64(n); {
		case b.left == 0:
			err = io.EOF
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		}
		return n, err
	case chunked:
		n, err := b.chunks.Read(p)
		if err == io.EOF {
			err = b.trailer()
		}
		return n, err
	}
	return br.Read(p)
}

// trailer reads what follows the last chunk and drops it: nobody asked for it. It returns io.EOF after its end.
func (b *answerBody) trailer() error {
	left := maxTrailerBytes
	for {
		line, err := b.conn.br.ReadSlice('\n')
		switch left -= len(line); {
		case left < 0 || len(line) == b.conn.br.Size():
			return errTrailerTooLarge
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
		end := len(line) - len("\r\n")
		if end < 0 || line[end] != '\r' {
			return errField // as in chunks, lines end strictly here
		}
		if end == 0 {
			return io.EOF
		}
		if n := canonicalName(line[:end]); n < 0 || !plainText(line[n:end]) {
			return errField
		}
	}
}

// ended gives the connection back if nothing speaks against using it again: the whole request was read, and
// nothing came after the answer.
func (b *answerBody) ended() {
	c := b.conn
	b.conn, b.err = nil, io.EOF
	if b.stop.leave() && b.reusable && c.broke == nil && c.br.Buffered() == 0 && c.sentSoon() {
		c.pool.put(c)
		return
	}
	c.end()
}

// sentSoon reports whether the whole request was written. What has answered a request has most often read it, and
// then who writes it beside is done as soon as it gets to run.
func (c *conn) sentSoon() bool {
	if !c.sentAll() {
		late := time.NewTimer(writerLag)
		defer late.Stop()
		select {
		case w := <-c.writing:
			c.wrote(w)
			c.writing = nil
		case <-late.C: // it has not
			return false
		}
	}
	return !c.failed
}

// Close ends the connection unless the body was read to its end.
func (b *answerBody) Close() error {
	if b.conn == nil {
		return nil
	}
	c := b.conn
	b.conn, b.err = nil, http.ErrBodyReadAfterClose
	b.stop.leave()
	c.end() // its answer is not wanted any more
	return nil
}
