//go:build darwin || linux || openbsd

package upstream

import (
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
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
	one               [1]byte
	in                *buffer
	out               *outgoing
	step              step
	n                 int
	err               error
	read, late, asked func(fd uintptr) bool
}

// step is how far ask is.
type step uint8

const (
	looking step = iota
	writing
	waiting
)

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
	s.asked = func(fd uintptr) bool {
		switch s.step {
		case looking:
			if s.read(fd); s.n > 0 {
				s.err = errSpoke
				return true
			} else if !wouldBlock(s.err) {
				s.err = errClosed
				return true
			}
			s.step, s.err = writing, nil
			fallthrough
		case writing:
			if !s.out.write(int(fd)) {
				return true
			}
			s.step = waiting
			return false
		}
		return s.late(fd)
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
	return s.filled(err)
}

// filled returns what came of a fill, which the raw connection ended with err.
func (s *socket) filled(err error) (int, error) {
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

// ask writes out as far as the socket takes it at once and then, if that was all, fills in with the first of the answer.
// With look it writes nothing if there is something to read already, errSpoke, or the other side has closed, errClosed. What
// comes after the look ends the wait, so that no system call need ask first whether the answer is there.
func (s *socket) ask(look bool, out *outgoing, in *buffer) (int, error) {
	if s.step = writing; look {
		s.step = looking
	}
	s.buf, s.out, s.in, s.n, s.err = s.one[:], out, in, 0, nil
	err := s.raw.Read(s.asked)
	s.buf, s.out, s.in = nil, nil, nil
	switch {
	case s.err == errSpoke || s.err == errClosed:
		return 0, s.err
	case s.step != waiting:
		if out.err == nil {
			out.err = err // closed before anything was written
		}
		return 0, nil
	}
	return s.filled(err)
}

// write writes what the socket takes at once, and reports whether that was all of it.
func (o *outgoing) write(fd int) bool {
	for !o.over() {
		n, err := o.writeOnce(fd)
		switch o.wrote(max(n, 0)); {
		case wouldBlock(err):
			return false
		case err != nil && err != syscall.EINTR:
			o.err = err
			return false
		}
	}
	o.release()
	return true
}

func (o *outgoing) writeOnce(fd int) (int, error) {
	if len(o.left[1])+len(o.left[2])+len(o.left[3]) == 0 {
		return syscall.Write(fd, o.left[0])
	}
	tellRaceDetector(fd)
	return unix.Writev(fd, o.left[:])
}
