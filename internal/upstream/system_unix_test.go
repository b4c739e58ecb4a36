//go:build unix

package upstream

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// full returns the address of a listener that accepts nothing and whose queue is full: connecting to it hangs.
func full(t *testing.T) string {
	t.Helper()
	return fill(t, [4]byte{127, 0, 0, 1}, 0)
}

// fullAt is full at a port of another address of the loopback, and returns the address without the port.
func fullAt(t *testing.T, ip string, port int) string {
	t.Helper()
	fill(t, netip.MustParseAddr(ip).As4(), port)
	return ip
}

func fill(t *testing.T, ip [4]byte, port int) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: ip, Port: port}); err != nil {
		t.Skip("this system has no other loopback address: ", err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort(netip.AddrFrom4(ip).String(), strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
	for range 100 {
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Skip("this system queues connections without bound")
	return ""
}

// readable reports whether bytes, the end or an error wait on c, and leaves them there.
func readable(c net.Conn) bool {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return true
	}
	var found error
	err = raw.Read(func(fd uintptr) bool {
		_, _, found = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return true
	})
	return err != nil || found != syscall.EAGAIN
}

// descriptors counts the open files of this process, or returns false where the system does not list them.
func descriptors() (int, bool) {
	entries, err := os.ReadDir("/proc/self/fd")
	return len(entries), err == nil
}

// smallBuffers makes a socket, and those that a listener accepts, hold next to nothing.
func smallBuffers(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 2<<10)
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2<<10)
	})
}
