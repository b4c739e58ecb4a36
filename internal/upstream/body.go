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
	left     int64  // counted: bytes to come
	chunks   chunks // chunked
	reusable bool   // nothing that the answer says speaks against another request on its connection
	err      error  // what a Read returns once conn is nil
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
		_ = b.Close()
		b.err = err
	}
	return n, err
}

// next reads some of the body. io.EOF is the body's end.
func (b *answerBody) next(p []byte) (int, error) {
	switch b.kind {
	case counted:
		n, err := b.conn.read(p[:min(int64(len(p)), b.left)])
		switch b.left -= int64(n); {
		case b.left == 0:
			err = io.EOF
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		}
		return n, err
	case chunked:
		return b.decoded(p)
	}
	return b.conn.read(p)
}

// decoded reads data of as many chunks as came, and waits only if none did.
func (b *answerBody) decoded(p []byte) (int, error) {
	for c := b.conn; ; {
		if c.in.empty() {
			if err := c.fill(); err == io.EOF {
				return 0, io.ErrUnexpectedEOF
			} else if err != nil {
				return 0, err
			}
		}
		n, read, err := b.chunks.decode(p, c.in.bytes())
		if c.in.skip(read); n > 0 || err != nil {
			return n, err
		}
	}
}

// ended gives the connection back if nothing speaks against using it again: the whole request was read, and
// nothing came after the answer.
func (b *answerBody) ended() {
	c := b.conn
	b.conn, b.err = nil, io.EOF
	if b.stop.leave() && b.reusable && c.broke == nil && c.in.empty() && c.sentSoon() {
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
