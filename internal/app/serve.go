package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"evenkeel/internal/config"
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

// bound is a socket, and the setting that says where it listens.
type bound struct {
	setting, address string
	socket           *net.Listener
}

// all lists those that c asks for.
func (l *Listeners) all(c *config.Config) []bound {
	return slices.DeleteFunc([]bound{{"listen", c.Listen, &l.Data}, {"admin", c.Admin, &l.Admin}, {"metrics", c.Metrics, &l.Metrics}},
		func(b bound) bool { return b.address == "" })
}

// Listen opens what the configuration names, but for what the process before has left. On error nothing stays open.
func (a *App) Listen() (Listeners, error) {
	defer a.heir.drop()
	c := a.Config()
	var l Listeners
	for _, b := range l.all(c) {
		made, err := a.heir.take(b.setting, b.address)
		if err == nil && made == nil {
			made, err = net.Listen("tcp", b.address)
		}
		if err != nil {
			for _, opened := range l.all(c) {
				if *opened.socket != nil {
					_ = (*opened.socket).Close() // going away anyway
				}
			}
			return Listeners{}, fmt.Errorf("cannot serve at %s: %w; choose another address with --%s, or %s: in the configuration", b.address, err, b.setting, b.setting)
		}
		*b.socket = made
	}
	return l, nil
}

// Run serves until ctx ends, then drains: /readyz fails, running requests get drain_timeout to finish, and
// what runs after that is told so. After HandOver it serves the connections that it has, to their end. It returns when
// everything it started has ended.
func (a *App) Run(ctx context.Context, l Listeners) error {
	background, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	a.mu.Lock()
	a.sockets = l
	a.mu.Unlock()
	probing, stopProbing := context.WithCancel(background)
	work.Go(func() { a.watch(background) })
	work.Go(func() { a.tick(background) })
	work.Go(func() { a.checker.Run(probing) })
	work.Go(func() { a.listeners.watch(background) })
	work.Go(func() { a.memory.run(background) })
	work.Go(func() { a.trace.Run(background) })
	a.metrics.Reloaded(true, time.Now())
	defer a.proxy.Close()

	data, admin, metrics := a.servers()
	f := front{app: a, failed: make(chan error, 3)}
	f.serve(&work, admin, l.Admin, a.listeners.admin)
	f.serve(&work, metrics, l.Metrics, a.listeners.metrics)
	select { // the first request should not meet an empty fleet; but an endpoint that hangs must not hold us up
	case <-a.first:
	case <-time.After(firstLook):
	case <-ctx.Done():
	}
	if a.heir != nil {
		a.awaitReady(ctx) // the process before serves until then
	}
	f.serve(&work, data, l.Data, a.listeners.data)
	a.heir.Tell(ctx.Err())
	tellSystemd("READY=1")

	var err error
	select {
	case <-ctx.Done():
		a.drain(f.data())
	case <-a.handed:
		stopProbing()
		err = f.retire(ctx)
	case err = <-f.failed:
	}
	stopProbing()
	for _, s := range f.all {
		_ = s.Close() // nothing runs on them any more that could be saved
	}
	a.idleWithin(cutPatience, nil) // what was cut so tells its end
	a.closeEndpoints()
	return err
}

// servers makes those of the three listeners.
func (a *App) servers() (data, admin, metrics *http.Server) {
	c := a.Config()
	data = a.server(a.proxy)
	data.Protocols.SetUnencryptedHTTP2(c.H2C)
	data.ConnContext = proxy.ConnContext
	admin = a.server(console.Handler(console.Options{
		Ring: a.ring, Metrics: a.metrics.Handler(), View: func() route.View { return a.router.View(time.Now()) },
		Order: a.order, Unlisted: a.isUnlisted, Silent: a.silent, Version: a.version, Ready: a.Ready, Hosts: append(adminHosts(c.Admin), a.listeners.admin.identity.names()...),
	}))
	return data, admin, a.server(a.metrics.Handler())
}

// front is the listeners as they are served.
type front struct {
	app    *App
	all    []served // that of data last
	failed chan error
}

type served struct {
	web
	socket *limitedListener
}

// serve serves a listener until its server is closed; nil is none.
func (f *front) serve(work *sync.WaitGroup, s *http.Server, l net.Listener, as *listener) {
	if l == nil {
		return
	}
	f.app.logger.Info("listening", "for", as.name, "addr", l.Addr().String(), "tls", as.identity != nil)
	one := served{as.web(s), as.limit(s, proxy.Listener(l))} // who takes nothing of an answer for long is given up
	f.all = append(f.all, one)
	work.Go(func() {
		if err := one.Serve(one.socket); !errors.Is(err, http.ErrServerClosed) {
			f.failed <- fmt.Errorf("%s listener: %w", as.name, err)
		}
	})
}

// data is the listener for clients.
func (f *front) data() served { return f.all[len(f.all)-1] }

// retire serves clients that are connected until none is left, or ctx ends and with it the patience with them. No
// connection is closed that a request could be on its way on: each ends with its next answer, or when it was idle for long.
func (f *front) retire(ctx context.Context) error {
	for _, s := range f.all {
		s.socket.retire()
	}
	look := time.NewTicker(handOverLook)
	defer look.Stop()
	for f.data().socket.connections() > 0 || f.app.proxy.Running() > 0 {
		select {
		case <-ctx.Done():
			f.app.drain(f.data())
			return nil
		case err := <-f.failed:
			return err
		case <-look.C:
		}
	}
	return nil
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
		Handler: a.lastAnswers(h), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		Protocols: protocols, HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: receiveConnection, MaxReceiveBufferPerStream: receiveStream,
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: takeTimeout,
		},
		ErrorLog: slog.NewLogLogger(a.logger.Handler(), slog.LevelDebug),
	}
}

// lastAnswers makes each answer the last on its connection once another process has taken over.
func (a *App) lastAnswers(h http.Handler) http.Handler {
	last := []string{"close"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.isHandedOver() {
			w.Header()["Connection"] = last
		}
		h.ServeHTTP(w, r)
	})
}

// drain lets running requests finish. The listener stays open meanwhile, so that /readyz can say no and late
// requests are not refused.
func (a *App) drain(data web) {
	limit := a.Config().DrainTimeout
	tellSystemd("STOPPING=1")
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
