package app

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/telemetry"
)

// otherConnections bounds those of a listener that is not for clients: nobody there needs many.
const otherConnections = 256

// limits bound the connections of a listener. They may change while it is used.
type limits struct{ max, perAddress atomic.Int64 } // 0 = none

func (l *limits) set(c config.Connections) {
	most := int64(c.Max)
	if most == 0 {
		most = connectionsWithin(openFiles())
	}
	l.max.Store(most)
	l.perAddress.Store(int64(c.PerAddress))
}

// connectionsWithin is how many client connections go with a limit of open files (0 = none): each may need another one
// upstream, and the process itself needs some.
func connectionsWithin(files int64) int64 {
	if files == 0 {
		return 0
	}
	const reserve = 256
	return max((files-reserve)/2, files/4, 1)
}

// Limits returns the bounds in effect, also where the configuration leaves them to the process: of client connections at
// the data listener (0 = none), and of the memory for request bodies, in bytes. Safe for concurrent use.
func (a *App) Limits() (connections, bodyMemory int64) {
	return a.listeners.data.limits.max.Load(), a.current.Load().Proxy.BodyMemory
}

// Warnings says what in a configuration does not go with this process.
func Warnings(c *config.Config) (all []config.Warning) {
	if w, beyond := c.ConnectionsBeyond(openFiles()); beyond {
		all = append(all, w)
	}
	if w, isDear := dear(c); isDear {
		all = append(all, w)
	}
	if w, cannot := untraceable(c); cannot {
		all = append(all, w)
	}
	return all
}

// limitedListener closes connections beyond its limits as soon as they are accepted: whoever holds many cannot keep others
// from being served, and a client that is turned away knows at once. Errors of the system, such as a lack of file
// descriptors, are passed on: the server then waits up to a second and tries again, while clients wait in the backlog.
// Its server's ConnState must be state, which learns of connections that ended.
type limitedListener struct {
	net.Listener
	limits  *limits
	metrics *telemetry.Listener
	logger  *slog.Logger
	lines   throttle
	retired atomic.Bool
	over    chan struct{} // closed by Close
	once    sync.Once

	mu   sync.Mutex
	open int64
	from map[netip.Prefix]int64 // open ones of each address
}

func newLimitedListener(l net.Listener, limits *limits, metrics *telemetry.Listener, logger *slog.Logger) *limitedListener {
	return &limitedListener{Listener: l, limits: limits, metrics: metrics, logger: logger, over: make(chan struct{}), from: map[netip.Prefix]int64{}}
}

// retire takes no more connections: another process has the socket too. Accept waits from then on.
func (l *limitedListener) retire() {
	l.retired.Store(true)
	_ = l.Listener.Close() // of this process alone; what waits there to be accepted stays for the other
}

// Close implements net.Listener.
func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.over) })
	return l.Listener.Close()
}

// connections is how many are open.
func (l *limitedListener) connections() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil && l.retired.Load() {
			<-l.over
			return nil, net.ErrClosed
		}
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.refused(telemetry.RefusedAccept, "error", err)
			}
			return nil, err
		}
		from := source(c)
		if why := l.take(from); why != "" {
			l.refused(why, "limit", l.limit(why), "from", from.Addr().String())
			refuse(c)
			continue
		}
		l.metrics.Opened()
		return c, nil
	}
}

// state is told by the server what becomes of a connection.
func (l *limitedListener) state(c net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked { // each has one of them as its last
		l.leave(source(c))
	}
}

// source is where a connection comes from: an IPv4 address, or the network of 64 bits of an IPv6 address, since one host
// has all of it to choose from.
func source(c net.Conn) netip.Prefix {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{} // not TCP: all count as one
	}
	address := at.Addr().Unmap().WithZone("")
	network, _ := address.Prefix(min(address.BitLen(), 64)) // cannot fail
	return network
}

// take counts a connection and returns why it must not be, "" if it may.
func (l *limitedListener) take(from netip.Prefix) telemetry.Refusal {
	most, each := l.limits.max.Load(), l.limits.perAddress.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case most > 0 && l.open >= most:
		return telemetry.RefusedMax
	case each > 0 && l.from[from] >= each:
		return telemetry.RefusedPerAddress
	}
	l.open++
	l.from[from]++
	return ""
}

func (l *limitedListener) leave(from netip.Prefix) {
	l.metrics.Closed()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.from[from]--; l.from[from] == 0 {
		delete(l.from, from)
	}
}

func (l *limitedListener) limit(why telemetry.Refusal) int64 {
	if why == telemetry.RefusedMax {
		return l.limits.max.Load()
	}
	return l.limits.perAddress.Load()
}

// refused tells of a connection that was not taken: at most one line a second.
func (l *limitedListener) refused(why telemetry.Refusal, fields ...any) {
	l.metrics.Refused(why)
	if held, ok := l.lines.pass(time.Now()); ok {
		l.logger.Warn("connections are refused", append(fields, "reason", string(why), "at", l.Addr().String(), "not_shown", held)...)
	}
}

// refuse closes a connection with a reset, so that the system keeps no state of it: there may be many.
func refuse(c net.Conn) {
	if t, ok := c.(interface{ SetLinger(seconds int) error }); ok {
		_ = t.SetLinger(0) // if not, it closes more politely
	}
	_ = c.Close()
}
