//go:build !unix

package upstream

import "net"

// ownConns is false: a socket cannot be looked into without waiting on this system. A connection that was closed,
// or that holds bytes nobody asked for, must not be used again, so net/http's Transport carries everything, which
// watches idle connections with goroutines.
const ownConns = false

type socket struct {
	net.Conn
	pry    pry
	broken bool
}

func newSocket(c net.Conn) (*socket, error) { return &socket{Conn: c}, nil }

func (s *socket) readNow([]byte) (int, error) { panic("BUG: a socket of this system was looked into") }

func (s *socket) writeNow([]byte) (int, error) { panic("BUG: a socket of this system was looked into") }
