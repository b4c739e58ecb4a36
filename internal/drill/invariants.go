package drill

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// What must hold after every row, of every balancer that still runs.

const (
	// settling is how long a balancer may take to be idle again; used connections to engines are kept for 4 s.
	settling = 8 * time.Second
	// spare is how many goroutines and files there may be more than before the row, beside those of connections that
	// are open: a probe that runs, a timer, the scrape itself.
	spare = 12
	// perConnection is how many goroutines an open connection may have, on either side.
	perConnection = 3
	// retryRatio is the share of requests that may be attempts beyond the first, and retryFloor what the store of them
	// holds at least: retry.budget_ratio and retry.budget_min.
	retryRatio = 0.1
	retryFloor = 10
)

func (b *Bench) invariants() error {
	if b.clients != nil {
		b.clients.CloseIdleConnections()
	}
	var last []*sample
	for _, x := range b.balancers {
		if x.gone() {
			continue
		}
		s, err := b.idle(x)
		if err != nil {
			return err
		}
		last = append(last, s)
		if alarm := x.alarm(); alarm != "" {
			return brokenf("invariant: the log tells of %s", alarm)
		}
	}
	if len(last) < len(b.balancers) || len(last) == 0 {
		return nil // the counters of one that has ended are gone
	}
	return b.sums(last)
}

// idle waits until a balancer has nothing left of the row.
func (b *Bench) idle(x *balancer) (*sample, error) {
	var s *sample
	var problem string
	calm := func() bool {
		var err error
		if s, err = x.metrics(); err != nil {
			problem = err.Error()
			return false
		}
		open := s.sum("evenkeel_connections", `listener="data"`) + float64(b.upstream())
		problem = ""
		for _, i := range []struct {
			what      string
			now, most float64
		}{
			{"requests in flight", s.inFlight(), 0},
			{"requests waiting", s.waiting(), 0},
			{"bytes of request bodies held", s.sum("evenkeel_request_body_bytes"), 0},
			{"goroutines", s.goroutines(), x.idle.goroutines() + spare + perConnection*open},
			{"open files", s.files(), x.idle.files() + spare + open},
		} {
			if i.now > i.most {
				problem = fmt.Sprintf("%v %s, at most %v", i.now, i.what, i.most)
				return false
			}
		}
		return true
	}
	if !b.until(settling, calm) {
		return nil, brokenf("invariant: %v after the row there are still %s", settling, problem)
	}
	return s, nil
}

// upstream counts the connections that engines have open.
func (b *Bench) upstream() (n int64) {
	for _, e := range b.engines {
		n += e.Stats().OpenConnections
	}
	for _, f := range b.fakes {
		n += f.open.Load()
	}
	for _, s := range b.h2s {
		n += s.open.Load()
	}
	return n
}

// sums holds what the balancers counted against what clients and engines saw.
func (b *Bench) sums(all []*sample) error {
	var requests, worked, aborted float64
	for _, s := range all {
		requests += s.requests()
		worked += s.worked()
		aborted += s.sum("evenkeel_requests_total", `result="aborted"`)
	}
	sent, answered := b.score.sent.Load(), b.score.answered.Load()
	if int64(requests) < answered || int64(requests) > sent {
		return brokenf("invariant: %v requests are counted, but clients sent %d and got %d answers", requests, sent, answered)
	}
	if aborted > float64(b.expectAborted) {
		return brokenf("invariant: %v requests ended without completion, error or a client that left", aborted)
	}
	if most := requests*(1+retryRatio) + max(retryFloor, float64(b.score.most.Load())); worked > most && b.over == nil {
		return brokenf("invariant: %v attempts for %v requests, at most %.0f", worked, requests, most)
	}
	var whole int64
	for _, e := range b.engines {
		s := e.Stats()
		whole += s.Completed
		for status, n := range s.Statuses {
			if status != http.StatusOK {
				whole -= n
			}
		}
	}
	for _, f := range b.fakes {
		whole += f.whole.Load()
	}
	for _, s := range b.h2s {
		whole += s.whole.Load()
	}
	if clean := b.score.clean.Load(); clean > whole {
		return brokenf("invariant: %d answers ended cleanly for clients, but engines ended only %d so", clean, whole)
	}
	return nil
}

// alarm is what a log must never hold.
func (x *balancer) alarm() string {
	text := x.out.text()
	for _, word := range []string{"DATA RACE", "fatal error:", "goroutine 1 ["} {
		if strings.Contains(text, word) {
			return word
		}
	}
	if !x.b.expectPanic && strings.Contains(text, "panic") {
		return "a panic"
	}
	return ""
}
