package app

import (
	"log/slog"
	"sync"
	"time"

	"evenkeel/internal/exchange"
)

const (
	repeatsShare  = 0.05             // of requests that need more than one attempt, from which on it is not normal
	repeatsFor    = 10 * time.Minute // how long it must be so
	repeatsMinute = time.Minute      // the grain
)

// repeats warns when many requests need more than one attempt for long: nothing fails yet, but nothing is as it should
// be. Hedges do not count, since they are for when nothing failed. Safe for concurrent use.
type repeats struct {
	logger *slog.Logger

	mu     sync.Mutex
	minute time.Time // the start of the present one
	now    share     // in the present minute
	bad    share     // in all minutes since since
	since  time.Time // since when every minute was bad, zero = the last one was not
	told   time.Time // of the last warning about this
}

type share struct{ requests, repeated int }

func (t share) bad() bool { return float64(t.repeated) > repeatsShare*float64(t.requests) }

// add takes a finished request.
func (r *repeats) add(rec *exchange.Record) {
	if len(rec.Attempts) == 0 {
		return
	}
	tries := 0
	for i := range rec.Attempts {
		if !rec.Attempts[i].Hedge {
			tries++
		}
	}
	if tell := r.count(rec.Ended, tries > 1); tell != nil {
		tell()
	}
}

// count returns what there is to be told, nil if nothing is.
func (r *repeats) count(now time.Time, repeated bool) (tell func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.minute.IsZero() {
		r.minute = now
	}
	if now.Sub(r.minute) >= repeatsMinute {
		tell = r.close(now)
	}
	r.now.requests++
	if repeated {
		r.now.repeated++
	}
	return tell
}

// close ends the present minute. One without a request says nothing. Callers hold mu.
func (r *repeats) close(now time.Time) (tell func()) {
	last, began := r.now, r.minute
	r.now, r.minute = share{}, now
	if !last.bad() {
		told := !r.told.IsZero()
		r.since, r.told, r.bad = time.Time{}, time.Time{}, share{}
		if told {
			return func() { r.logger.Info("few requests need more than one attempt again") }
		}
		return nil
	}
	switch {
	case now.Sub(began) > repeatsFor: // nobody came for so long
		r.since, r.bad = now, share{}
	case r.since.IsZero():
		r.since = began
	}
	r.bad.requests += last.requests
	r.bad.repeated += last.repeated
	if now.Sub(r.since) < repeatsFor || !r.told.IsZero() && now.Sub(r.told) < repeatsFor {
		return nil
	}
	sum, lasts := r.bad, now.Sub(r.since)
	r.told, r.bad = now, share{}
	return func() {
		r.logger.Warn("many requests need more than one attempt: look at evenkeel_attempts_total by deployment and class",
			"repeated", sum.repeated, "requests", sum.requests, "for_seconds", seconds(lasts))
	}
}
