//go:build !linux

package proxy

const canWatch = false

// leaves is for systems with epoll; elsewhere net/http watches.
type leaves struct{}

func (*leaves) add(*clientConn, *call, uint64) uint64 { return 0 }
func (*leaves) remove(*clientConn, uint64)            {}
func (*leaves) close()                                {}
