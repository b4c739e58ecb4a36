package app

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"evenkeel/internal/config"
	"evenkeel/internal/http1"
	"evenkeel/internal/telemetry"
)

// listener is one of the sockets as the App serves it: how many may connect, and as whom it shows itself.
type listener struct {
	name     string
	limits   *limits
	identity *identity // nil = no TLS
	metrics  *telemetry.Listener
	logger   *slog.Logger
}

// listeners are all of them.
type listeners struct{ data, admin, metrics *listener }

func newListeners(c *config.Config, m *telemetry.Metrics, logger *slog.Logger) (listeners, error) {
	made := func(name string, most config.Connections) *listener {
		l := &listener{name: name, limits: &limits{}, metrics: m.Listener(name), logger: logger}
		l.limits.set(most)
		return l
	}
	other := config.Connections{Max: otherConnections}
	l := listeners{made("data", c.Connections), made("admin", other), made("metrics", other)}
	var err error
	if l.data.identity, err = newIdentity("tls", c.TLS, l.data.metrics, logger); err != nil {
		return listeners{}, err
	}
	l.admin.identity, err = newIdentity("admin_tls", c.AdminTLS, l.admin.metrics, logger)
	return l, err
}

// renewal loads what c names and returns what puts it to use.
func (l listeners) renewal(c *config.Config) (apply func(), err error) {
	data, err := l.data.identity.renewal(c.TLS)
	if err != nil {
		return nil, err
	}
	admin, err := l.admin.identity.renewal(c.AdminTLS)
	if err != nil {
		return nil, err
	}
	return func() {
		data()
		admin()
		l.data.limits.set(c.Connections)
	}, nil
}

// watch takes new certificates as they come, until ctx ends.
func (l listeners) watch(ctx context.Context) {
	var work sync.WaitGroup
	for _, i := range []*identity{l.data.identity, l.admin.identity} {
		if i != nil {
			work.Go(func() { i.watch(ctx) })
		}
	}
	work.Wait()
}

// web is a server: net/http's, or http1's over it.
type web interface {
	Serve(net.Listener) error
	SetKeepAlivesEnabled(bool)
	Shutdown(context.Context) error
	Close() error
}

// web returns what serves the listener. Usual requests over plain connections need not pay for net/http.
func (l *listener) web(s *http.Server) web {
	if l.identity == nil {
		return &http1.Server{Std: s}
	}
	s.TLSConfig = l.identity.server()
	return secured{s}
}

// secured is a server whose connections begin with TLS.
type secured struct{ *http.Server }

func (s secured) Serve(l net.Listener) error { return s.ServeTLS(l, "", "") }

// limit returns the socket within the listener's limits. Its connections are s's.
func (l *listener) limit(s *http.Server, socket net.Listener) *limitedListener {
	limited := newLimitedListener(socket, l.limits, l.metrics, l.logger)
	s.ConnState = limited.state
	if l.identity != nil {
		s.ErrorLog = handshakes{func(from, reason string) {
			limited.refused(telemetry.RefusedHandshake, "error", reason, "from", from)
		}, s.ErrorLog}.logger()
	}
	return limited
}
