package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"evenkeel/internal/console"
	"evenkeel/internal/proxy"
	"evenkeel/internal/route"
)

const (
	headerTimeout = 10 * time.Second  // for a request's head
	idleTimeout   = 120 * time.Second // for a connection without a request
	maxHeader     = 64 << 10          // bytes
	// HTTP/2: requests that one connection may have running; what a client may send before it is read, so that one
	// request's body does not hold up those beside it; and how soon a client that vanished, or takes nothing, is found out.
	maxStreams        = 100
	receiveStream     = 1 << 20
	receiveConnection = 4 << 20
	pingAfter         = 30 * time.Second
	pingTimeout       = 15 * time.Second
	takeTimeout       = 60 * time.Second // as for each answer

	firstLook   = 3 * time.Second // how long listening waits for endpoints to be asked once
	cutPatience = 5 * time.Second // for cut streams to get their error event
	drainLook   = 20 * time.Millisecond
)

// Listeners are the sockets to serve on. Metrics may be nil.
type Listeners struct {
	Data, Admin, Metrics net.Listener
}

// Listen opens what the configuration names. On error nothing stays open.
func (a *App) Listen() (Listeners, error) {
	c := a.current.Load().Config
	var l Listeners
	for _, s := range []struct {
		setting, address string
		into             *net.Listener
	}{{"listen", c.Listen, &l.Data}, {"admin", c.Admin, &l.Admin}, {"metrics", c.Metrics, &l.Metrics}} {
		if s.address == "" {
			continue
		}
		made, err := net.Listen("tcp", s.address)
		if err != nil {
			l.close()
			return Listeners{}, fmt.Errorf("cannot serve at %s: %w; choose another address with --%s, or %s: in the configuration", s.address, err, s.setting, s.setting)
		}
		*s.into = made
	}
	return l, nil
}

func (l Listeners) close() {
	for _, x := range []net.Listener{l.Data, l.Admin, l.Metrics} {
		if x != nil {
			_ = x.Close() // going away anyway
		}
	}
}

// Run serves until ctx ends, then drains: /readyz fails, running requests get drain_timeout to finish, and
// what runs after that is told so. It returns when everything it started has ended.
func (a *App) Run(ctx context.Context, l Listeners) error {
	background, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { a.watch(background) })
	work.Go(func() { a.tick(background) })
	work.Go(func() { a.checker.Run(background) })
	defer work.Wait()
	defer stop()
	a.metrics.Reloaded(true, time.Now())

	work.Go(func() { a.listeners.watch(background) })

	c := a.current.Load().Config
	data := a.server(a.proxy)
	data.Protocols.SetUnencryptedHTTP2(c.H2C)
	data.ConnContext = proxy.ConnContext
	defer a.proxy.Close()
	admin := a.server(console.Handler(console.Options{
		Ring: a.ring, Metrics: a.metrics.Handler(), View: func() route.View { return a.router.View(time.Now()) },
		Order: a.order, Unlisted: a.isUnlisted, Version: a.version, Ready: a.Ready, Hosts: append(adminHosts(c.Admin), a.listeners.admin.identity.names()...),
	}))
	metrics := a.server(a.metrics.Handler())
	failed := make(chan error, 3)
	var servers []web
	serve := func(s *http.Server, l net.Listener, as *listener) web {
		if l == nil {
			return nil
		}
		a.logger.Info("listening", "for", as.name, "addr", l.Addr().String(), "tls", as.identity != nil)
		w, socket := as.web(s), as.limit(s, l)
		servers = append(servers, w)
		work.Go(func() {
			if err := w.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s listener: %w", as.name, err)
			}
		})
		return w
	}
	serve(admin, l.Admin, a.listeners.admin)
	serve(metrics, l.Metrics, a.listeners.metrics)
	select { // the first request should not meet an empty fleet; but an endpoint that hangs must not hold us up
	case <-a.first:
	case <-time.After(firstLook):
	case <-ctx.Done():
	}
	front := serve(data, proxy.Listener(l.Data), a.listeners.data)

	var err error
	select {
	case <-ctx.Done():
		a.drain(front)
	case err = <-failed:
	}
	for _, s := range servers {
		_ = s.Close() // nothing runs on them any more that could be saved
	}
	a.idleWithin(cutPatience, nil) // what was cut so tells its end
	a.closeEndpoints()
	return err
}

// adminHosts is the name that the admin listener was configured by, beside which only addresses are answered.
func adminHosts(address string) []string {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return nil
	}
	return []string{host}
}

func (a *App) server(h http.Handler) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true) // over TLS
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		Protocols: protocols, HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: receiveConnection, MaxReceiveBufferPerStream: receiveStream,
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: takeTimeout,
		},
		ErrorLog: slog.NewLogLogger(a.logger.Handler(), slog.LevelDebug),
	}
}

// drain lets running requests finish. The listener stays open meanwhile, so that /readyz can say no and late
// requests are not refused.
func (a *App) drain(data web) {
	limit := a.current.Load().Config.DrainTimeout
	a.proxy.Drain()
	data.SetKeepAlivesEnabled(false)
	if n := a.proxy.Running(); n > 0 {
		a.logger.Info("draining", "running", n, "timeout_seconds", seconds(limit))
	}
	if !a.idleWithin(limit, a.hurry) {
		a.logger.Warn("the drain is over; cutting what still runs", "running", a.proxy.Running())
		a.proxy.Cut()
		a.idleWithin(cutPatience, nil)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if data.Shutdown(ctx) != nil && a.proxy.Running() > 0 { // it lets answers reach the sockets; Close follows
		a.proxy.Cut() // what came in the last moment
		a.idleWithin(cutPatience, nil)
	}
}

// Cut ends a drain that runs, or the next one at once: what still runs is told so. Calling it again does nothing.
func (a *App) Cut() { a.hurryOnce.Do(func() { close(a.hurry) }) }

// idleWithin waits until nothing runs and reports whether that came about before limit and before hurry was closed.
func (a *App) idleWithin(limit time.Duration, hurry <-chan struct{}) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	look := time.NewTicker(drainLook)
	defer look.Stop()
	for a.proxy.Running() > 0 {
		select {
		case <-deadline.C:
			return false
		case <-hurry:
			return false
		case <-look.C:
		}
	}
	return true
}

func (a *App) closeEndpoints() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests.close(connected{})
	a.probes.close(connected{})
}
