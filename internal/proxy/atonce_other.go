//go:build !linux

package proxy

import "net"

// atOnce is for systems with epoll; elsewhere there are no connections of Listener's.
type atOnce struct{}

func (*atOnce) init(*net.TCPConn)         {}
func (*atOnce) write([]byte) (int, error) { return 0, nil }
