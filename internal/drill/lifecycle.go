package drill

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"evenkeel/internal/mock"
)

// Reload, shutdown, and what happens to the process itself.
var lifecycleRows = []Row{
	{
		ID:      "R43",
		Fault:   "an endpoint is removed by a reload while streams run there",
		Promise: "they finish; new requests go elsewhere; none breaks",
		run:     removed,
		off:     off{defence: "letting what runs go on over a reload", change: "removed"},
	},
	{
		ID:      "R44",
		Fault:   "a reload with an invalid configuration",
		Promise: "the old one stays, log, metric and exit code of check say so, no request is dropped",
		run:     badReload,
		off:     off{defence: "keeping the last good configuration", change: "bad_reload"},
	},
	{
		ID:      "R45",
		Fault:   "100 reloads under load",
		Promise: "no request is dropped; goroutines, files and memory stay level",
		run:     manyReloads,
		off:     off{defence: "letting what runs go on over a reload", change: "removed"},
	},
	{
		ID:      "R46",
		Fault:   "SIGTERM while streams are open",
		Promise: "/readyz says no; streams finish; at drain_timeout the rest ends with an error event",
		run:     terminated,
		off:     off{defence: "the drain", settings: settings{"drain_timeout": "1ms"}},
	},
	{
		ID:      "R51",
		Fault:   "the wall clock jumps by an hour, forth and back",
		Promise: "limits, deadlines, breakers and averages do not notice",
		run:     clockJumps,
		off:     off{defence: "measuring by the monotonic clock", change: "wall_clock"},
	},
	{
		ID:      "R68",
		Fault:   "scrapers of the metrics do not read; clients ask for 1,000 unknown models",
		Promise: "traffic does not notice; the number of series is bounded by the fleet",
		run:     scrapers,
		off:     off{defence: "labels that clients cannot choose", change: "labels"},
	},
	{
		ID:      "R69",
		Fault:   "nobody reads the log: its pipe is full",
		Promise: "lines are dropped; requests take as long as before",
		run:     fullPipe,
		off:     off{defence: "writing the log beside the requests", change: "log_blocks"},
	},
	{
		ID:      "R71",
		Fault:   "a bug of ours: a panic while a request is handled",
		Promise: "500 for that request alone; the process stays; the log shows no secret",
		run:     panics,
		off:     off{defence: "containing panics", change: "panic"},
	},
}

func removed(_ context.Context, b *Bench) (Measured, error) {
	const n = 20
	es := b.fleet(2, mock.Config{InterToken: 50 * time.Millisecond, OutputTokens: 40})
	b.set(settings{"strategy": "round_robin"})
	x := b.serve()
	b.http()
	var t *tally
	var streams sync.WaitGroup
	streams.Go(func() { t = b.crowd(x, n, n, request{stream: true, tokens: 40}) }) // 2 s
	if !b.until(5*time.Second, func() bool { return b.working() == n }) {
		b.stopf("the streams did not begin")
	}
	there := es[0].Stats().Running
	delete(b.endpoints, es[0].Name())
	x.reload()
	before := calls(es[0])
	later := b.crowd(x, 50, 10, request{})
	streams.Wait()
	found := measured("%d streams ran there, %d of %d complete; %d of %d new requests went there", there, t.of(complete), n, calls(es[0])-before, later.total())
	if t.of(complete) < n || later.of(complete) < later.total() || there == 0 {
		return found, brokenf("streams: %s; later: %s", t.example(), later.example())
	}
	return found, check(calls(es[0]) == before, "%d new requests went to the endpoint that was removed", calls(es[0])-before)
}

func badReload(_ context.Context, b *Bench) (Measured, error) {
	b.fleet(2, mock.Config{})
	x := b.serve()
	f := b.flow(x, 100, request{})
	b.pass(200 * time.Millisecond)
	bad := b.write("bad.yaml", settings{"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "endpoints": settings{"a": settings{"url": "not a url", "wieght": 3}}})
	code := exitCode(exec.CommandContext(b.ctx, b.program, "check", bad))
	b.must(os.Rename(bad, x.config))
	x.signal(syscall.SIGHUP)
	told := b.until(5*time.Second, func() bool {
		return !x.gone() && strings.Contains(x.out.text(), "the last good one stays") && x.sample().sum("evenkeel_config_last_reload_successful") == 0
	})
	b.pass(200 * time.Millisecond)
	t := f.end()
	down := t.total() - t.of(complete)
	found := measured("%d errors of %d; told: %v; check exits with %d", down, t.total(), told, code)
	if down > 0 || x.gone() {
		return found, brokenf("%d of %d requests were dropped: %s", down, t.total(), t.example())
	}
	return found, check(told && code != 0, "log and metric tell of it: %v; check exits with %d, want not 0", told, code)
}

// exitCode runs a command, without its output.
func exitCode(cmd *exec.Cmd) int {
	_ = cmd.Run() // the code says it
	return cmd.ProcessState.ExitCode()
}

func manyReloads(_ context.Context, b *Bench) (Measured, error) {
	b.fleet(3, mock.Config{InterToken: 20 * time.Millisecond})
	x := b.serve()
	f := b.flow(x, 100, request{stream: true})
	b.pass(500 * time.Millisecond)
	before, memory := x.sample(), x.resident()
	for i := range 100 {
		b.set(settings{"deadlines": settings{"connect": fmt.Sprintf("%dms", 2000+i)}})
		x.reload()
	}
	t := f.end()
	b.until(3*settling, func() bool { return x.sample().files() < before.files()+50 }) // those of older generations are kept for some seconds
	after, grown := x.sample(), x.resident()-memory
	down := t.total() - t.of(complete)
	found := measured("%d errors of %d; goroutines %+.0f, files %+.0f, memory %+.1f MiB", down, t.total(),
		after.goroutines()-before.goroutines(), after.files()-before.files(), grown/mib)
	if down > 0 {
		return found, brokenf("%d of %d requests were dropped: %s", down, t.total(), t.example())
	}
	return found, check(after.goroutines() < before.goroutines()+50 && after.files() < before.files()+50 && grown < 48*mib, "it grew: %s", found)
}

func terminated(_ context.Context, b *Bench) (Measured, error) {
	const n = 10
	es := b.fleet(1, mock.Config{InterToken: 100 * time.Millisecond, OutputTokens: 1000})
	b.set(settings{"drain_timeout": "2s"})
	x := b.serve()
	b.http()
	var short, long *tally
	var streams sync.WaitGroup
	streams.Go(func() { short = b.crowd(x, n, n, request{stream: true, tokens: 10}) }) // 1 s
	streams.Go(func() { long = b.crowd(x, n, n, request{stream: true, tokens: 600}) }) // a minute
	if !b.until(5*time.Second, func() bool { return es[0].Stats().Running == 2*n }) {
		b.stopf("the streams did not begin")
	}
	b.pass(150 * time.Millisecond) // so that all have content
	x.signal(syscall.SIGTERM)
	refuses := b.until(time.Second, func() bool {
		status, _, err := x.get(x.url + "/readyz")
		return err == nil && status == http.StatusServiceUnavailable
	})
	began := time.Now()
	streams.Wait()
	code := x.exit(10 * time.Second)
	took := time.Since(began)
	found := measured("%d of %d short streams complete, %d of %d long ones told, exit code %d after %v", short.of(complete), n, long.of(told), n, code, took.Round(10*time.Millisecond))
	if !refuses {
		return found, brokenf("/readyz did not say no")
	}
	return found, check(short.of(complete) == n && long.of(told) == n && code == 0 && took < 6*time.Second, "short: %s; long: %s; exit code %d after %v", short.example(), long.wrong(told), code, took)
}

func scrapers(_ context.Context, b *Bench) (Measured, error) {
	const unknown, most = 1000, 300
	b.fleet(2, mock.Config{})
	x := b.serve()
	calm := b.crowd(x, 500, 4, request{})
	before := len(x.sample().series)
	for range 20 { // each asks and never reads
		nc := b.dial(strings.TrimPrefix(x.admin, "http://"))
		for range 50 {
			fmt.Fprintf(nc, "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
		}
		b.later(func() { nc.Close() })
		defer nc.Close()
	}
	for i := range unknown {
		b.ask(x, request{model: fmt.Sprintf("unknown-%d", i)})
	}
	t := b.crowd(x, 500, 4, request{})
	grown := len(x.sample().series) - before
	p99, usual := t.quantile(0.99, took), calm.quantile(0.99, took)
	found := measured("%d series more, %d errors of %d, p99 %v (before: %v)", grown, t.total()-t.of(complete), t.total(), p99.Round(100*time.Microsecond), usual.Round(100*time.Microsecond))
	if t.of(complete) < t.total() {
		return found, brokenf("requests were not answered: %s", t.example())
	}
	return found, check(grown < most && p99 < usual+100*time.Millisecond, "want less than %d series more, and no slower requests: %s", most, found)
}

func fullPipe(_ context.Context, b *Bench) (Measured, error) {
	b.fleet(2, mock.Config{})
	b.set(settings{"log": settings{"level": "debug"}})
	heard := b.serve()
	n := b.times(2000, 20000)
	usual := b.crowd(heard, n, 8, request{})
	mute := b.serveAs(launch{config: b.configuration("mute.yaml"), mute: true})
	b.crowd(mute, n, 8, request{limit: 2 * time.Second}) // fills the pipe
	t := b.crowd(mute, n, 8, request{limit: 2 * time.Second})
	p99, before := t.quantile(0.99, took), usual.quantile(0.99, took)
	found := measured("%d errors of %d, p99 %v (read: %v)", t.total()-t.of(complete), t.total(), p99.Round(100*time.Microsecond), before.Round(100*time.Microsecond))
	if t.of(complete) < t.total() {
		return found, brokenf("requests were not answered: %s", t.example())
	}
	return found, check(p99 < 2*before+20*time.Millisecond, "p99 %v where the log is not read, %v where it is", p99, before)
}

// clockJumps shifts the clock of the balancer alone. Its log shows whether it did.
func clockJumps(_ context.Context, b *Bench) (Measured, error) {
	const pause = 2 * time.Second
	b.set(settings{"strategy": "round_robin", "deadlines": settings{"first_token": "2s", "between_tokens": "1s"}})
	es := b.fleet(2, mock.Config{InterToken: 100 * time.Millisecond, OutputTokens: 40})
	x := b.serve()
	f := b.flow(x, 40, request{})
	long := b.flow(x, 2, request{stream: true, tokens: 40}) // of 4 s each
	b.pass(300 * time.Millisecond)
	early := 0
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		b.fault(es[0], mock.Fault{Kind: "status", Status: 429, RetryAfter: "2", Count: 1})
		limited := es[0].Stats().Statuses[http.StatusTooManyRequests]
		if !b.until(5*time.Second, func() bool { return es[0].Stats().Statuses[http.StatusTooManyRequests] > limited }) {
			b.stopf("the limited engine was not asked")
		}
		met := time.Now()
		undo, err := x.shiftClock(jump)
		b.must(err)
		before := calls(es[0])
		hour := time.Now().Add(jump).UTC().Format("2006-01-02T15:04")
		b.pass(time.Until(met.Add(pause - 200*time.Millisecond)))
		if !strings.Contains(x.out.text(), "time="+hour) {
			b.stopf("the balancer's clock did not jump to %s", hour)
		}
		early += int(calls(es[0]) - before)
		if !b.until(2*time.Second, func() bool { return calls(es[0]) > before }) {
			return "", brokenf("after a jump by %v, an endpoint that was to be left alone for %v got nothing after %v", jump, pause, time.Since(met).Round(100*time.Millisecond))
		}
		b.must(undo())
	}
	t, streams := f.end(), long.end()
	found := measured("%d requests too early, %d errors of %d, %d of %d streams complete", early, t.total()-t.of(complete), t.total(), streams.of(complete), streams.total())
	return found, check(early <= 2 && t.of(complete) == t.total() && streams.of(complete) == streams.total(), "%s; %s; %s", found, t.example(), streams.example())
}

// panics plants a bug where a request has nothing yet, and where it holds an endpoint.
func panics(_ context.Context, b *Bench) (Measured, error) {
	const secret, prompt = "drill-secret-key-93e1", "drill-secret-prompt-11c7"
	b.expectPanic, b.expectAborted = true, 2
	e := b.engine(mock.Config{APIKey: secret})
	b.serveBy("a", e.URL(), settings{"api_key": secret})
	x := b.serve()
	status := []int{}
	for _, function := range []string{"evenkeel/internal/route.(*Router).Pick", "evenkeel/internal/upstream.(*Endpoint).Do"} {
		mend, err := x.plant(function)
		b.must(err)
		a := b.crowd(x, 1, 1, request{prompt: prompt}).answers[0]
		b.must(mend())
		status = append(status, a.status)
		if a.status != http.StatusInternalServerError || a.code != "evenkeel_internal" {
			return measured("status %d", a.status), brokenf("with a bug in %s the client got status %d %s (%s)", function, a.status, a.code, a.why)
		}
	}
	t := b.crowd(x, 50, 4, request{})
	leaked := 0
	told := b.until(2*time.Second, func() bool { return strings.Count(x.out.text(), "handler panicked") == 2 })
	for _, word := range []string{secret, prompt} {
		leaked += strings.Count(x.out.text(), word)
	}
	found := measured("status %d and %d, then %d errors of %d; %d secrets in the log", status[0], status[1], t.total()-t.of(complete), t.total(), leaked)
	return found, check(t.of(complete) == t.total() && leaked == 0 && told, "%s: %s", found, t.example())
}
