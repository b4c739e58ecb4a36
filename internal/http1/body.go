package http1

import "io"

// body is a request's body of known length.
type body struct {
	conn *conn
	left int64 // to be read
}

// Read reads on, from what came with the head first. io.EOF comes with the last byte.
func (b *body) Read(p []byte) (n int, err error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	p = p[:min(int64(len(p)), b.left)]
	c := b.conn
	if c.from < c.to {
		n = copy(p, c.in[c.from:c.to])
		c.from += n
		c.dropInput()
	} else {
		n, err = c.net.Read(p)
	}
	switch b.left -= int64(n); {
	case b.left == 0:
		err = io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Buffered returns how many bytes of the body a Read would not wait for, nor ask the system for.
func (b *body) Buffered() int { return int(min(int64(b.conn.to-b.conn.from), b.left)) }

// Close does nothing: what is left of the body is the connection's matter.
func (b *body) Close() error { return nil }

// mostDiscarded is how much of a body that nobody wanted is read so that the connection can go on; net/http's value.
const mostDiscarded = 256 << 10

// discard reads what is left and reports whether the next request can follow.
func (b *body) discard() bool {
	if b.left > mostDiscarded {
		return false
	}
	for b.left > 0 {
		room := buffers.Get().(*buffer)
		_, err := b.Read(room[:])
		buffers.Put(room)
		if err != nil && err != io.EOF {
			return false
		}
	}
	return true
}
