//go:build unix

package upstream

import (
	"io"
	"net"
	"os"
	"syscall"
)

// ownConns says that connections can be kept without goroutines that watch them.
const ownConns = true

// socket is a TCP connection that can also be asked for what it gives or takes at once, without waiting. Only
// Close and what waits may be called while something else is.
type socket struct {
	net.Conn
	raw     syscall.RawConn // nil: it is not the system's
	pry     pry
	patient bool // does not report that a write failed, see Write
	broken  bool // it is patient, and writing failed

	// What the functions below work on; made once, so that asking allocates nothing.
	buf               []byte
	in                *buffer
	n                 int
	err               error
	read, late, write func(fd uintptr) bool
}

func newSocket(c net.Conn) (*socket, error) {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{Conn: c, raw: raw}
	s.read = func(fd uintptr) bool {
		s.n, s.err = again(func(b []byte) (int, error) { return syscall.Read(int(fd), b) }, s.buf)
		return true
	}
	s.late = func(fd uintptr) bool {
		s.n, s.err = again(func(b []byte) (int, error) { return syscall.Read(int(fd), b) }, s.in.room())
		s.in.filled(s.n)
		return !wouldBlock(s.err)
	}
	s.write = func(fd uintptr) bool {
		for s.n < len(s.buf) && s.err == nil {
			var n int
			n, s.err = again(func(b []byte) (int, error) { return syscall.Write(int(fd), b) }, s.buf[s.n:])
			s.n += n
		}
		return true
	}
	return s, nil
}

// again makes a system call until no signal interrupts it.
func again(call func([]byte) (int, error), b []byte) (int, error) {
	for {
		n, err := call(b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

func wouldBlock(err error) bool { return err == syscall.EAGAIN || err == syscall.EWOULDBLOCK }

// readNow reads what is there; errNothing if nothing is.
func (s *socket) readNow(b []byte) (int, error) {
	s.buf, s.n, s.err = b, 0, nil
	err := s.raw.Read(s.read)
	s.buf = nil
	switch {
	case err != nil:
		return 0, err
	case s.n > 0:
		return s.n, nil
	case s.err == nil:
		return 0, io.EOF
	case wouldBlock(s.err):
		return 0, errNothing
	}
	return 0, s.err
}

// fill waits until there is something to read, and reads it into in, which takes memory only then.
func (s *socket) fill(in *buffer) (int, error) {
	if s.raw == nil {
		return in.readFrom(s.Conn)
	}
	s.in = in
	err := s.raw.Read(s.late)
	s.in = nil
	switch {
	case err != nil:
		return 0, err
	case s.err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: os.NewSyscallError("read", s.err)}
	case s.n == 0:
		return 0, io.EOF
	}
	return s.n, nil
}

// writeNow writes what the socket has room for. Less than all of b without an error means that the rest must wait.
func (s *socket) writeNow(b []byte) (int, error) {
	s.buf, s.n, s.err = b, 0, nil
	err := s.raw.Write(s.write)
	s.buf = nil
	switch {
	case err != nil:
		return 0, err
	case s.err != nil && !wouldBlock(s.err):
		return s.n, s.err
	}
	return s.n, nil
}
