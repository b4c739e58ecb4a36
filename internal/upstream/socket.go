package upstream

import (
	"errors"
	"net"
)

// pry is how a socket behaves towards TLS, which is layered on it.
type pry uint8

const (
	waits pry = iota // as any other connection
	looks            // reads only what is there at once
	shut             // reads nothing: what TLS can still give, it has already
)

// nothing says that a socket has nothing to read. TLS takes it for a passing condition.
type nothing struct{}

func (nothing) Error() string   { return "nothing to read" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }

var errNothing net.Error = nothing{}

var (
	// errClosed says that the other side has closed an idle connection.
	errClosed = errors.New("an idle connection was closed")
	// errSpoke says that something came on an idle connection.
	errSpoke = errors.New("something came that nobody asked for")
)

func (s *socket) Read(b []byte) (int, error) {
	switch s.pry {
	case looks:
		return s.readNow(b)
	case shut:
		return 0, errNothing
	}
	return s.Conn.Read(b)
}

// Write of a patient socket does not report that it failed: an endpoint that refuses a large body early answers
// and closes while net/http still writes, and its answer would be lost. What happened shows when it is read.
func (s *socket) Write(b []byte) (int, error) {
	if s.broken {
		return len(b), nil
	}
	n, err := s.Conn.Write(b)
	if !s.patient || err == nil || errors.Is(err, net.ErrClosed) {
		return n, err
	}
	s.broken = true
	return len(b), nil
}

// interrupt ends the connection; whoever reads or writes it sees that.
func (s *socket) interrupt() { _ = s.Conn.Close() }
