package discovery

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Options say how Watch asks. Zero values take the default.
type Options struct {
	// Way returns what sends the GETs to a target; it should bound its dials well below a second or two, so that a host
	// that returns is seen soon. Default http.DefaultTransport for all.
	Way func(Target) http.RoundTripper
	// Interval is the time from one refresh to the next while all is well. Default 30 s.
	Interval time.Duration
	// RetryInterval is the time between probes of an endpoint that is down, still loading, or out. Default 500 ms.
	RetryInterval time.Duration
	// Timeout bounds one GET with its body. Default 5 s.
	Timeout time.Duration
	// Out reports whether requests are held back from a target at present. It is asked every RetryInterval, by several
	// goroutines at a time, and must be quick. Nil: never.
	Out func(Target) bool
}

func (o Options) withDefaults() Options {
	if o.Interval <= 0 {
		o.Interval = 30 * time.Second
	}
	if o.RetryInterval <= 0 {
		o.RetryInterval = 500 * time.Millisecond
	}
	if o.Timeout <= 0 {
		o.Timeout = getTimeout
	}
	if o.Way == nil {
		o.Way = func(Target) http.RoundTripper { return http.DefaultTransport }
	}
	if o.Out == nil {
		o.Out = func(Target) bool { return false }
	}
	return o
}

// Watch asks all targets until ctx ends and returns when its goroutines, one for each target, have ended. Every probe ends
// in a call of out: also the first of an endpoint that is down. What comes back is reported at once with what was known of
// it, and again when it has said what it is now. For one target the calls come one after the other, for several at the
// same time; out must be quick.
func Watch(ctx context.Context, targets []Target, o Options, out func(Report)) {
	o = o.withDefaults()
	var wg sync.WaitGroup
	for _, t := range targets {
		wg.Go(func() { watch(ctx, t, o, out) })
	}
	wg.Wait()
}

// watch asks one target. It ends when ctx does.
func watch(ctx context.Context, t Target, o Options, out func(Report)) {
	p := newProber(t, o.Way(t), o.Timeout)
	tick := time.NewTicker(o.RetryInterval)
	defer tick.Stop()
	var due time.Time // of the next refresh
	for ctx.Err() == nil {
		now := time.Now()
		if held := o.Out(t); held || !now.Before(due) {
			p.round(ctx, held, out)
			due = now
			if p.ready() {
				due = now.Add(o.Interval)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
