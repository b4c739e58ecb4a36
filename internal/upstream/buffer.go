package upstream

import (
	"io"
	"sync"
)

// bufferSize lets a burst of many small chunks, of about 250 bytes each, come with one system call.
const bufferSize = 16 << 10

// buffers are what every buffer's memory comes from.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// buffer is what has come from a connection and was not read yet. It has memory only while it holds something, so
// that a connection that waits, between two requests or two tokens, has none.
type buffer struct {
	mem     *[bufferSize]byte
	at, end int // of mem: what it holds
}

func (b *buffer) empty() bool { return b.at == b.end }

// bytes is what b holds, until the next skip.
func (b *buffer) bytes() []byte {
	if b.mem == nil {
		return nil
	}
	return b.mem[b.at:b.end]
}

// skip drops the first n bytes.
func (b *buffer) skip(n int) {
	if b.at += n; b.at == b.end {
		b.filled(0)
	}
}

// room is memory to read into; b must be empty. A call of filled must follow before anything waits.
func (b *buffer) room() []byte {
	if b.mem == nil {
		b.mem = buffers.Get().(*[bufferSize]byte)
	}
	return b.mem[:]
}

// filled says how many bytes of room hold something now. Where none do, the memory is given back.
func (b *buffer) filled(n int) {
	b.at, b.end = 0, n
	if n == 0 && b.mem != nil {
		buffers.Put(b.mem)
		b.mem = nil
	}
}

// readFrom fills b by one Read, which it waits for with memory in its hands.
func (b *buffer) readFrom(r io.Reader) (int, error) {
	n, err := r.Read(b.room())
	b.filled(n)
	return n, err
}
