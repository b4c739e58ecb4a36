package sim

import (
	"fmt"
	"io"
)

// Scratch is where a trace is kept that is too large for memory, such as a temporary file that is empty. It must read what was
// written, from any goroutine.
type Scratch interface {
	io.ReaderAt
	io.WriterAt
}

// store is bytes that are appended and then read. The last of them are in memory, and all if there is no Scratch.
type store struct {
	scratch Scratch
	base    int64  // where in scratch it begins
	flushed int64  // bytes that are in scratch
	tail    []byte // the others
}

// mostTail is how many bytes are in memory at most if there is a Scratch: a small trace does without it.
const mostTail = 1 << 20

func (s *store) size() int64 { return s.flushed + int64(len(s.tail)) }

func (s *store) append(p []byte) error {
	if s.scratch != nil && len(s.tail) > 0 && len(s.tail)+len(p) > mostTail {
		if _, err := s.scratch.WriteAt(s.tail, s.base+s.flushed); err != nil {
			return err
		}
		s.flushed, s.tail = s.size(), s.tail[:0]
	}
	s.tail = append(s.tail, p...)
	return nil
}

// set overwrites bytes that were appended at once.
func (s *store) set(p []byte, off int64) error {
	if off >= s.flushed {
		copy(s.tail[off-s.flushed:], p)
		return nil
	}
	_, err := s.scratch.WriteAt(p, s.base+off)
	return err
}

// ReadAt implements io.ReaderAt.
func (s *store) ReadAt(p []byte, off int64) (n int, err error) {
	if off < s.flushed {
		n = int(min(int64(len(p)), s.flushed-off))
		if n, err = s.scratch.ReadAt(p[:n], s.base+off); err != nil && err != io.EOF {
			return n, err
		}
	}
	if at := off + int64(n) - s.flushed; at >= 0 && at < int64(len(s.tail)) {
		n += copy(p[n:], s.tail[at:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// after returns an empty store that begins where this one ends, so that both have one Scratch.
func (s *store) after() *store { return &store{scratch: s.scratch, base: s.base + s.size()} }

// tooLarge words that a Scratch does not take what it is given.
func tooLarge(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("it is too large for memory, and cannot be kept elsewhere: %w", err)
}

// lost words that a Scratch does not give back what it was given.
func lost(err error) error {
	return fmt.Errorf("what was kept of the trace cannot be read back: %w", err)
}
