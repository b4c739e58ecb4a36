package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	settledEvents = 4                    // a stream is under way with this many: the role and three tokens
	openAtOnce    = 16                   // streams
	openEvery     = 4 * time.Millisecond // how often as many are opened
	warmRequests  = 200                  // before a proxy counts as idle
	otherFiles    = 512                  // that a proxy keeps for other things than streams: evenkeel reserves 256, and some are in use
)

// fileLimit is how many files one process may open.
func fileLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		panic("BUG: bench: " + err.Error()) // it fails for unknown resources only
	}
	return limit.Max
}

// holdable is how many of the streams that a cell wants the limit of files lets through a proxy, which needs two for each.
func holdable(want int) int {
	most := (fileLimit() - otherFiles) / 2
	if uint64(want) > most {
		return int(most)
	}
	return want
}

// hold measures a proxy's memory for each open stream above what it has idle. The proxy is a fresh one: what earlier
// loads left in it would hide a part.
func (b *bed) hold(ctx context.Context, c cell, t target) (s sample, err error) {
	var p *process
	switch t {
	case nginx:
		p, err = b.startNginx(ctx, []model{held}, "nginx-held", fileLimit())
	case evenkeel:
		var e *balancer
		e, err = b.startEvenkeel(ctx, []model{held}, "evenkeel-held")
		if err == nil {
			p = e.process
		}
	}
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.end(p)) }()
	to := b.places[held.name][t]
	if err := warm(ctx, to); err != nil {
		return s, err
	}
	idle, err := p.usage()
	if err != nil {
		return s, err
	}
	n := holdable(c.held)
	s.units = int64(n)
	s.held, err = open(ctx, c, to, n, func() (int64, error) {
		u, err := p.usage()
		s.rss = u.rss
		return u.rss - idle.rss, err
	})
	return s, err
}

// warm makes some short requests, so that a proxy has what it needs for any.
func warm(ctx context.Context, to way) error {
	conn := newConn(to.addresses[0], to.tls, cell{model: held.name, tokens: 1}.request())
	defer conn.close()
	for range warmRequests {
		if err := conn.ask(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// open opens n streams, measures once all of them are under way, and breaks them off. It is an error if one ends
// before.
func open(ctx context.Context, c cell, to way, n int, measure func() (int64, error)) (total int64, err error) {
	ctx, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer func() { end(); all.Wait() }()
	var settled atomic.Int64
	ready, broken := make(chan struct{}), make(chan error, n)
	request := c.request()
	for i := range n {
		conn := newConn(to.addresses[i%len(to.addresses)], to.tls, request)
		all.Go(func() { // ends with ctx
			defer conn.close()
			err := conn.ask(ctx, func(event int, _ time.Time) {
				if event == settledEvents-1 && settled.Add(1) == int64(n) {
					close(ready)
				}
			})
			if err == nil {
				err = errors.New("a clean end")
			}
			broken <- fmt.Errorf("one of %d streams was not held open: %w", n, err)
		})
		if i%openAtOnce == openAtOnce-1 {
			if err := sleep(ctx, openEvery); err != nil {
				return 0, err
			}
		}
	}
	select {
	case <-ready:
		return measure()
	case err := <-broken:
		return 0, err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
