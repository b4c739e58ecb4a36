//go:build unix

package app

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// leave returns a second descriptor of a listening socket, for another process. It is made by hand, since one of
// TCPListener.File turns blocking on its way to a new process, and the first with it: then nothing ends an Accept that waits.
func leave(l net.Listener) (*os.File, error) {
	c, ok := l.(syscall.Conn)
	if !ok {
		return nil, errors.New("it is not a socket")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var dupErr error
	if err := raw.Control(func(own uintptr) { fd, dupErr = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if dupErr != nil {
		return nil, os.NewSyscallError("fcntl", dupErr)
	}
	return os.NewFile(uintptr(fd), "socket"), nil
}
