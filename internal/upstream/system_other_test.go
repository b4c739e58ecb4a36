//go:build !unix

package upstream

import (
	"net"
	"syscall"
	"testing"
)

func full(t *testing.T) string {
	t.Skip("no way to fill a listener's queue")
	return ""
}

func readable(net.Conn) bool { return true }

func descriptors() (int, bool) { return 0, false }

func smallBuffers(_, _ string, _ syscall.RawConn) error { return nil }

func fullAt(t *testing.T, _ string, _ int) string { return full(t) }
