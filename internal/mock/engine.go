package mock

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// closePatience is how long Close lets running answers go on.
	closePatience = 5 * time.Second
	// relistenPatience is how long a port that was ours is asked for again while something else holds it.
	relistenPatience = time.Second
)

// Engine is one simulated engine. All methods are safe for concurrent use.
type Engine struct {
	cfg    Config
	models map[string][]byte // name to its JSON string
	slots  slots
	count  counters
	fault  atomic.Pointer[scriptedFault] // nil = none
	record recorder

	ttft, gaps                        histogram // of API calls that the engine took
	e2e, promptLengths, outputLengths histogram // of those that it answered to the end

	mu      sync.Mutex
	addr    string   // set by the first Start, then kept
	session *session // nil while stopped
}

// session is the time from a Start to the Kill or Close that ends it.
type session struct {
	drivers []*driver          // one for each rank; none without Config.Engine
	turn    atomic.Uint64      // of ranks that are equally busy
	ln      net.Listener       // nil while a fault refuses; guarded by Engine.mu
	conns   map[*conn]struct{} // guarded by Engine.mu
	running sync.WaitGroup     // the accept loop and every connection

	keep    atomic.Bool // connections may be kept for a next request
	closing atomic.Bool // Close was called: answers that would never end, end
	dead    atomic.Bool // every connection was or will be reset
}

// New checks the configuration. The engine does nothing until Start.
func New(cfg Config) (*Engine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, models: map[string][]byte{}, ttft: latencies(ttftBounds), gaps: latencies(gapBounds), e2e: latencies(e2eBounds),
		promptLengths: newHistogram(tokenBounds, 1), outputLengths: newHistogram(tokenBounds, 1),
	}
	e.slots.limit, e.slots.queueLimit = cfg.Slots, cfg.QueueLimit
	e.record.keep = cfg.Record
	for _, m := range slices.Concat(cfg.Models, cfg.Adapters) {
		e.models[m] = quote(m)
	}
	return e, nil
}

// Start listens and serves until Kill or Close. After the first time it listens on the same port again.
func (e *Engine) Start() error {
	s, err := e.begin()
	if err != nil {
		return err
	}
	if err := e.adjust(); err != nil {
		e.mu.Lock()
		ours := e.session == s
		if ours {
			e.session = nil
		}
		e.mu.Unlock()
		if ours {
			s.end()
		}
		return err
	}
	return nil
}

// begin starts a session that does not listen yet.
func (e *Engine) begin() (*session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.session != nil {
		return nil, fmt.Errorf("mock: engine %s is running already at %s", e.cfg.Name, e.addr)
	}
	s := &session{conns: map[*conn]struct{}{}}
	if e.cfg.Engine != nil {
		for range e.cfg.DataParallel {
			d, err := newDriver(*e.cfg.Engine, e.cfg.QueueLimit)
			if err != nil {
				return nil, fmt.Errorf("mock: engine %s: %w", e.cfg.Name, err)
			}
			s.drivers = append(s.drivers, d)
		}
	}
	e.session = s
	return s, nil
}

// end waits for everything of a detached session.
func (s *session) end() {
	s.running.Wait()
	for _, d := range s.drivers {
		d.stop()
	}
}

// Restart is Start by the name that goes with Kill.
func (e *Engine) Restart() error { return e.Start() }

// Addr is host:port, empty before the first Start. It stays the same while the engine is stopped.
func (e *Engine) Addr() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.addr
}

// URL is the base URL without a path.
func (e *Engine) URL() string {
	if e.cfg.TLS != nil {
		return "https://" + e.Addr()
	}
	return "http://" + e.Addr()
}

// Name is the configured name.
func (e *Engine) Name() string { return e.cfg.Name }

// adjust makes the listener what it should be: open while the engine runs, unless a fault refuses connections; and a timing model as
// slow as a fault says.
func (e *Engine) adjust() error {
	for until := time.Now().Add(relistenPatience); ; time.Sleep(10 * time.Millisecond) {
		err := e.tryAdjust()
		if err == nil || e.Addr() == "" || time.Now().After(until) {
			return err
		}
	}
}

func (e *Engine) tryAdjust() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.session
	if s == nil {
		return nil
	}
	f := e.fault.Load()
	for _, d := range s.drivers {
		d.slow(f.factor())
	}
	want := f == nil || f.Kind != "refuse"
	switch {
	case want && s.ln == nil:
		addr := e.addr
		if addr == "" {
			addr = e.cfg.Listen
		}
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("mock: engine %s cannot listen on %s: %w", e.cfg.Name, addr, err)
		}
		e.addr, s.ln = ln.Addr().String(), ln
		if e.cfg.TLS != nil {
			s.ln = tls.NewListener(ln, e.cfg.TLS)
		}
		s.keep.Store(true)
		s.running.Add(1)
		go e.accept(s, s.ln)
	case !want && s.ln != nil:
		s.stopListening()
	}
	return nil
}

// stopListening closes the listener and the idle connections; the others end with their answer. Engine.mu is held.
func (s *session) stopListening() {
	if s.ln != nil {
		s.ln.Close()
		s.ln = nil
	}
	s.keep.Store(false)
	for c := range s.conns {
		c.poke()
	}
}

// accept runs until its listener is closed.
func (e *Engine) accept(s *session, ln net.Listener) {
	defer s.running.Done()
	for {
		nc, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(5 * time.Millisecond) // out of file descriptors: wait for some to come back
			continue
		}
		c := newConn(e, s, nc)
		e.mu.Lock()
		dead := s.dead.Load()
		if !dead {
			s.conns[c] = struct{}{}
		}
		e.mu.Unlock()
		if dead {
			c.reset()
			continue
		}
		e.count.connections.Add(1)
		e.count.open.Add(1)
		s.running.Add(1)
		go func() {
			defer s.running.Done()
			c.serve()
			e.mu.Lock()
			delete(s.conns, c)
			e.mu.Unlock()
			e.count.open.Add(-1)
		}()
	}
}

// detach ends the session for everybody but its own connections.
func (e *Engine) detach(closing bool) *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.session
	e.session = nil
	if s != nil {
		s.closing.Store(closing)
		s.stopListening()
	}
	return s
}

// resetAll resets every connection of a detached session.
func (e *Engine) resetAll(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.dead.Store(true)
	for c := range s.conns {
		c.reset()
	}
}

// Kill stops the engine as a crash does: the listener is closed and every connection is reset. It returns when
// nothing of the engine runs any more.
func (e *Engine) Kill() {
	if s := e.detach(false); s != nil {
		e.resetAll(s)
		s.end()
	}
}

// Close stops the engine gracefully: no new connections, idle ones are closed, running answers go on to their end,
// but no longer than 5 s; what would never end by itself (hang, stall) is cut at once.
func (e *Engine) Close() {
	s := e.detach(true)
	if s == nil {
		return
	}
	late := time.AfterFunc(closePatience, func() { e.resetAll(s) })
	s.end()
	late.Stop()
}
