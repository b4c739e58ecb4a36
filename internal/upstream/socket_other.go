//go:build !(darwin || linux || openbsd)

package upstream

import "net"

// ownConns is false: a socket cannot be looked into without waiting on this system. A connection that was closed,
// or that holds bytes nobody asked for, must not be used again, so net/http's Transport carries everything, which
// watches idle connections with goroutines.
const ownConns = false

type socket struct {
	net.Conn
	pry     pry
	patient bool
	broken  bool
}

func newSocket(c net.Conn) (*socket, error) { return &socket{Conn: c}, nil }

func (s *socket) fill(in *buffer) (int, error) { return in.readFrom(s.Conn) }

func (s *socket) readNow([]byte) (int, error) { panic("BUG: a socket of this system was looked into") }

func (s *socket) ask(bool, *outgoing, *buffer) (int, error) {
	panic("BUG: a socket of this system was asked without waiting")
}
