package proxy

import (
	"net"
	"os"
	"syscall"
)

const (
	tcpNotsentLowat = 25 // TCP_NOTSENT_LOWAT, linux/tcp.h
	// mostUnsent is what the system keeps of an answer that it cannot send yet. By itself it takes megabytes, and lets a
	// write that waits go on only when a third of them is sent: a client that reads a little all the time would look like one
	// that takes nothing.
	mostUnsent = 64 << 10
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
	_ = raw.Control(func(fd uintptr) { // where it fails, very slow readers of large answers are given up
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotsentLowat, mostUnsent)
	})
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
