package drill

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"evenkeel/internal/mock"
)

// More load than there is room for, and less room than usual.
var overloadRows = []Row{
	{
		ID:      "R37",
		Fault:   "half of the fleet dies under load",
		Promise: "what is accepted keeps its TTFT (p99 at most 2 s here), the rest is refused; nobody is let down",
		run:     halfDies, Alone: true,
		off: off{defence: "the limits of endpoints and the bounded queue", settings: settings{"queue": settings{"max_waiting": 100000}, "deadlines": settings{"deadline": "60s"}}},
	},
	{
		ID:      "R38",
		Fault:   "the whole fleet dies and returns",
		Promise: "503 at once with Retry-After; full rate within 30 s of the return, and no second collapse",
		run:     allDie, Alone: true,
		off: off{defence: "breakers that open at once and close by themselves", change: "no_outage"},
	},
	{
		ID:      "R39",
		Fault:   "twice the load that there is capacity for (8 s; 5 min with --all)",
		Promise: "goodput at least 90 % of capacity; the excess is refused within 50 ms, with Retry-After where a place can be promised",
		run:     twice, Alone: true,
		off: off{defence: "the bounded queue", settings: settings{"queue": settings{"max_waiting": 100000}}},
	},
	{
		ID:      "R40",
		Fault:   "the same with clients that retry, then 0.8 times the capacity",
		Promise: "back to normal by itself, within 60 s (10 s here)",
		run:     metastable, Alone: true,
		off: off{defence: "the bounded queue, and watching clients", settings: settings{"queue": settings{"max_waiting": 100000}}, change: "gone"},
	},
	{
		ID:      "R59",
		Fault:   "no file descriptors are left (a limit of 256)",
		Promise: "what runs goes on, new connections wait or are refused; less than half a CPU is used; all is well when they are back",
		run:     noFiles, Alone: true,
		off: off{defence: "waiting when the system gives no connections", change: "spin"},
	},
	{
		ID:      "R60",
		Fault:   "memory runs out (GOMEMLIMIT 64 MiB) under large bodies",
		Promise: "new work is refused before that; small requests still pass; the process stays",
		run:     noMemory, Alone: true,
		off: off{defence: "the bound on request bodies", settings: settings{"body_memory": "8GiB", "max_body": "64MiB"}},
	},
	{
		ID:      "R61",
		Fault:   "one processor (GOMAXPROCS 1)",
		Promise: "it works: no error, p99 below 100 ms at 200 requests per second",
		run:     oneProcessor, Alone: true,
		off: off{defence: "costing little for each request", change: "dear"},
	},
}

// The engines of the overload rows serve serviceRate requests per second each.
const (
	serviceTime = 100 * time.Millisecond
	slotsEach   = 4
	serviceRate = float64(slotsEach) / 0.1
)

// limited starts engines that are never given more than they have slots.
func (b *Bench) limited(n int) []*mock.Engine {
	return b.fleet(n, mock.Config{BaseLatency: serviceTime, Slots: slotsEach}, settings{"limits": settings{"in_flight": slotsEach}})
}

// busy is how long a client waits before it counts an answer as none.
const busy = 20 * time.Second

func halfDies(_ context.Context, b *Bench) (Measured, error) {
	const most = 2 * time.Second
	b.set(settings{"queue": settings{"max_waiting": 40}})
	es := b.limited(6)
	x := b.serve()
	f := b.flow(x, 0.9*6*serviceRate, request{stream: true, tokens: 4, limit: busy})
	b.pass(time.Second)
	for _, e := range es[:3] {
		e.Kill()
	}
	from := time.Now()
	b.pass(6 * time.Second)
	for _, e := range es[:3] {
		b.must(e.Restart())
	}
	t := f.end().since(from)
	p99 := t.quantile(0.99, ttft)
	found := measured("%d complete with TTFT p99 %v, %d refused, %d told, %d let down", t.of(complete), p99.Round(time.Millisecond), t.of(refused), t.of(told), t.of(failed, passed))
	if t.of(failed, passed) > 0 {
		return found, brokenf("%d of %d clients were let down: %s", t.of(failed, passed), t.total(), t.wrong(complete))
	}
	least := int(0.8 * 3 * serviceRate * 6) // of what those left can do in that time
	return found, check(p99 <= most && t.of(complete) >= least, "TTFT p99 of accepted requests is %v, at most %v; %d were answered, at least %d", p99, most, t.of(complete), least)
}

func allDie(_ context.Context, b *Bench) (Measured, error) {
	const most = 100 * time.Millisecond
	b.set(settings{"queue": settings{"max_waiting": 40}})
	es := b.limited(4)
	x := b.serve()
	rate := 0.7 * 4 * serviceRate
	f := b.flow(x, rate, request{limit: busy})
	b.pass(time.Second)
	for _, e := range es {
		e.Kill()
	}
	b.pass(300 * time.Millisecond)
	from := time.Now()
	b.pass(2 * time.Second)
	to := time.Now()
	for _, e := range es {
		b.must(e.Restart())
	}
	returned := time.Now()
	full := b.until(30*time.Second, func() bool {
		t := f.now().between(time.Now().Add(-1500*time.Millisecond), time.Now().Add(-500*time.Millisecond))
		return time.Since(returned) > 2*time.Second && t.total() > int(rate/2) && t.of(complete) == t.total()
	})
	after := time.Since(returned)
	calm := time.Now()
	b.pass(2 * time.Second)
	t := f.end()
	dark, end := t.between(from, to), t.since(calm)
	p99 := dark.quantile(0.99, took)
	found := measured("503 within %v (p99) of %d; full rate %v after the return", p99.Round(time.Millisecond), dark.total(), after.Round(100*time.Millisecond))
	noTime := dark.where(func(a *answer) bool {
		return a.ending != refused || a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == ""
	})
	if noTime > dark.total()/50 || p99 > most { // those that met a dead engine first got its 502
		return found, brokenf("while all were dead, %d of %d did not get 503 with Retry-After, p99 %v: %s", noTime, dark.total(), p99, dark.wrong(refused))
	}
	return found, check(full && end.of(complete) == end.total(), "full rate: %v after %v; then %s", full, after, end.example())
}

// twiceFor loads the engines twice for a time and judges what came of it.
func (b *Bench) twiceFor(x *balancer, n int, d time.Duration, r request) (*tally, Measured, error) {
	const quick = 50 * time.Millisecond
	capacity := float64(n) * serviceRate
	began := time.Now()
	t := b.flowFor(x, 2*capacity, d, r)
	goodput := float64(t.of(complete)) / time.Since(began).Seconds() / capacity
	excess := &tally{}
	for _, a := range t.answers {
		if a.ending != complete {
			excess.answers = append(excess.answers, a)
		}
	}
	p95 := excess.quantile(0.95, took)
	found := measured("goodput %.0f %% of capacity; %d of %d refused within %v (p95)", 100*goodput, excess.total(), t.total(), p95.Round(time.Millisecond))
	timed := excess.where(func(a *answer) bool { return a.header.Get("Retry-After") != "" })
	wrong := excess.where(func(a *answer) bool {
		after := a.header.Get("Retry-After")
		s, err := strconv.Atoi(after)
		return a.ending != refused || after != "" && (err != nil || s < 1)
	})
	switch {
	case excess.total() < t.total()/4:
		return t, found, brokenf("%d of %d requests were refused, at twice the capacity: the rest waits", excess.total(), t.total())
	case wrong > 0 || timed == 0:
		return t, found, brokenf("%d of %d were not refused well, %d were told when to come back: %s", wrong, excess.total(), timed, excess.wrong(refused))
	}
	return t, found, check(goodput >= 0.9 && p95 <= quick, "goodput %.0f %%, at least 90 %%; refused within %v (p95), at most %v", 100*goodput, p95, quick)
}

func twice(_ context.Context, b *Bench) (Measured, error) {
	b.set(settings{"queue": settings{"max_waiting": 20}})
	b.limited(4)
	x := b.serve()
	_, found, err := b.twiceFor(x, 4, time.Duration(b.times(8, 300))*time.Second, request{limit: busy})
	return found, err
}

func metastable(_ context.Context, b *Bench) (Measured, error) {
	limit := time.Duration(b.times(10, 60)) * time.Second
	b.set(settings{"queue": settings{"max_waiting": 20}})
	es := b.limited(4)
	x := b.serve()
	b.http()
	// Impatient clients: they give up after a second and ask again, up to five times, a little later each time.
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	var crowd sync.WaitGroup
	impatient := func(rate float64, until <-chan time.Time) {
		tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
		defer tick.Stop()
		for {
			select {
			case <-until:
				return
			case <-tick.C:
			}
			crowd.Go(func() {
				for try := range 5 {
					if a := b.ask(x, request{limit: time.Second, ctx: ctx}); a.ending == complete {
						return
					}
					select {
					case <-ctx.Done():
						return
					case <-time.After(time.Duration(try+1) * 200 * time.Millisecond):
					}
				}
			})
		}
	}
	capacity := float64(len(es)) * serviceRate
	impatient(2*capacity, time.After(time.Duration(b.times(5, 300))*time.Second))
	calm := time.Now()
	f := b.flow(x, 0.8*capacity, request{limit: time.Second})
	normal := b.until(limit, func() bool {
		t := f.now().between(time.Now().Add(-3*time.Second), time.Now().Add(-time.Second))
		return time.Since(calm) > 3*time.Second && t.total() > 0 && float64(t.of(complete)) >= 0.99*float64(t.total())
	})
	after := time.Since(calm)
	t := f.end()
	stop()
	crowd.Wait()
	return measured("normal again within %v", after.Round(100*time.Millisecond)), check(normal, "%v after the load fell to 0.8 of capacity, requests still fail: %s", after, t.example())
}

func noFiles(_ context.Context, b *Bench) (Measured, error) {
	const files = 256
	b.set(settings{"connections": settings{"max": 10000}})
	es := b.fleet(1, mock.Config{InterToken: 100 * time.Millisecond, OutputTokens: 60})
	x := b.serveAs(launch{config: b.configuration("evenkeel.yaml"), files: files})
	b.http()
	var t *tally
	var streams sync.WaitGroup
	streams.Go(func() { t = b.crowd(x, 10, 10, request{stream: true, tokens: 60}) }) // 6 s
	if !b.until(5*time.Second, func() bool { return es[0].Stats().Running == 10 }) {
		b.stopf("the streams did not begin")
	}
	cpu := x.sample().cpu()
	began := time.Now()
	var idle []interface{ Close() error }
	for range files + 100 {
		idle = append(idle, b.dial(x.host))
	}
	b.pass(2 * time.Second)
	used := b.cpuOf(x, cpu, began)
	for _, nc := range idle {
		nc.Close()
	}
	streams.Wait()
	b.clients.CloseIdleConnections()
	again := b.until(5*time.Second, func() bool { return b.ask(x, request{limit: 2 * time.Second}).ending == complete })
	found := measured("%d of %d streams complete, %.0f %% of a CPU, served again: %v", t.of(complete), t.total(), 100*used, again)
	return found, check(t.of(complete) == t.total() && used < 0.5 && again, "%s: %s", found, t.example())
}

// cpuOf is the share of a CPU that the balancer used since then. It may have no file left for a scrape: then /proc says it.
func (b *Bench) cpuOf(x *balancer, before float64, began time.Time) float64 {
	took := time.Since(began).Seconds()
	if used, err := processCPU(x.cmd.Process.Pid); err == nil {
		return (used - before) / took
	}
	return (x.sample().cpu() - before) / took
}

func noMemory(_ context.Context, b *Bench) (Measured, error) {
	const limit, clients, size = 64, 30, 8 * mib
	b.fleet(2, mock.Config{BaseLatency: 500 * time.Millisecond})
	x := b.serveAs(launch{config: b.configuration("evenkeel.yaml"), env: []string{"GOMEMLIMIT=" + strconv.Itoa(limit) + "MiB", "GOGC=100"}})
	b.http()
	large := request{limit: busy}
	large.body = []byte(`{"model":"` + model + `","max_tokens":4,"messages":[{"role":"user","content":"` + string(make8(size)) + `"}]}`)
	small := b.flow(x, 10, request{limit: busy})
	var t *tally
	grown := b.grows(x, func() { t = b.crowd(x, 2*clients, clients, large) })
	s := small.end()
	found := measured("memory +%.0f MiB for %d bodies of %d MiB at once: %d complete, %d refused; small ones: %d errors of %d",
		grown/mib, clients, size/mib, t.of(complete), t.of(refused), s.total()-s.of(complete), s.total())
	if x.gone() {
		return found, brokenf("the process ended")
	}
	if s.of(failed) > 0 || t.of(failed) > 0 || float64(s.of(complete)) < 0.9*float64(s.total()) {
		return found, brokenf("%s; large: %s; small: %s", found, t.wrong(complete), s.wrong(complete))
	}
	return found, check(grown < 2*limit*mib && t.of(refused) > 0, "memory grew by %.0f MiB, with a limit of %d; %d requests were refused", grown/mib, limit, t.of(refused))
}

// make8 is n bytes of text.
func make8(n int) []byte {
	text := make([]byte, n)
	for i := range text {
		text[i] = "a word  "[i%8]
	}
	return text
}

func oneProcessor(_ context.Context, b *Bench) (Measured, error) {
	const most = 100 * time.Millisecond
	b.fleet(2, mock.Config{BaseLatency: 5 * time.Millisecond})
	x := b.serveAs(launch{config: b.configuration("evenkeel.yaml"), env: []string{"GOMAXPROCS=1"}})
	t := b.flowFor(x, 200, 3*time.Second, request{stream: true})
	p99 := t.quantile(0.99, took)
	found := measured("%d errors of %d, p99 %v", t.total()-t.of(complete), t.total(), p99.Round(time.Millisecond))
	return found, check(t.of(complete) == t.total() && p99 < most, "%s: %s", found, t.example())
}
