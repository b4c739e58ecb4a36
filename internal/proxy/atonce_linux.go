package proxy

import (
	"net"
	"os"
	"syscall"
)

// atOnce writes to a socket what it takes without waiting.
type atOnce struct {
	raw  syscall.RawConn
	try  func(fd uintptr) bool // made once, so that a write allocates nothing
	b    []byte
	n    int
	fail error
}

func (w *atOnce) init(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	w.raw = raw
	w.try = func(fd uintptr) bool {
		for w.n < len(w.b) {
			n, err := syscall.Write(int(fd), w.b[w.n:])
			switch w.n += max(n, 0); {
			case err == syscall.EAGAIN:
				return true
			case err != nil && err != syscall.EINTR:
				w.fail = os.NewSyscallError("write", err)
				return true
			}
		}
		return true
	}
}

// write returns how much of b was written. Less than all of it without an error means that the rest must wait.
func (w *atOnce) write(b []byte) (int, error) {
	if w.raw == nil {
		return 0, nil
	}
	w.b, w.n, w.fail = b, 0, nil
	err := w.raw.Write(w.try)
	w.b = nil
	if err == nil {
		err = w.fail
	}
	return w.n, err
}
