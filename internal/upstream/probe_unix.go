//go:build unix

package upstream

import "syscall"

// canProbe says that connections can be kept without goroutines that watch them.
const canProbe = true

// prober asks, without waiting, whether the server has closed an idle connection: a request that would meet a
// closed one must not be sent, since some requests cannot be sent twice.
type prober struct {
	raw  syscall.RawConn
	look func(fd uintptr) bool
	err  *error
}

func newProber(c syscall.Conn) prober {
	raw, err := c.SyscallConn()
	if err != nil {
		return prober{}
	}
	var found error
	return prober{raw: raw, err: &found, look: func(fd uintptr) bool {
		var b [1]byte
		n, err := syscall.Read(int(fd), b[:])
		switch {
		case err != nil:
			found = err
		case n >= 0: // the end, or bytes that nobody asked for
			found = syscall.EPIPE
		}
		return true
	}}
}

// alive reports whether a request may be sent. An idle connection has nothing to read.
func (p prober) alive() bool {
	if p.raw == nil || p.raw.Read(p.look) != nil {
		return false
	}
	return *p.err == syscall.EAGAIN || *p.err == syscall.EWOULDBLOCK
}
