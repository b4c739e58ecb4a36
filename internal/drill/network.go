package drill

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"os"

	"golang.org/x/net/dns/dnsmessage"

	"evenkeel/internal/mock"
)

// Names, certificates, packets, and more than one balancer.
var networkRows = []Row{
	{
		ID:      "R52",
		Fault:   "DNS answers SERVFAIL, then falls silent",
		Promise: "the last good addresses serve: no error",
		run:     dnsFails,
		off:     off{defence: "keeping addresses", change: "dns_keeps"},
	},
	{
		ID:      "R53",
		Fault:   "DNS gives another address (TTL 1 s)",
		Promise: "it is used within TTL + 1 s, the old one is drained: no stream breaks",
		run:     dnsMoves,
		off:     off{defence: "looking names up again", change: "dns_again"},
	},
	{
		ID:      "R54",
		Fault:   "a name has one address that drops packets and one that is alive",
		Promise: "at most 300 ms more for a request",
		run:     halfDead,
		off:     off{defence: "trying the next address after a short time", change: "head_start"},
	},
	{
		ID:      "R55",
		Fault:   "an engine's certificate has expired, or is for another name",
		Promise: "refused with a clear error, no byte of a request is sent, nothing in plain",
		run:     badCertificates,
		off:     off{defence: "verifying certificates", change: "insecure"},
	},
	{
		ID:      "R56",
		Fault:   "5 % of packets are lost, and up to 100 ms of jitter, as TCP shows them: late segments and handshakes",
		Promise: "it works, and nobody is taken out for it",
		run:     lossy,
		off:     off{defence: "judging by many results", settings: settings{"health_checks": settings{"ttft_threshold": "20ms", "ttft_open": "30ms"}, "deadlines": settings{"connect": "50ms"}}},
	},
	{
		ID:      "R57",
		Fault:   "half of the engines cannot be reached: every packet is dropped",
		Promise: "they are out; when the network heals they serve again within 60 s",
		run:     partition,
		off:     off{defence: "breakers", settings: settings{"health_checks": neverTrips}, change: "no_outage"},
	},
	{
		ID:      "R58",
		Fault:   "two balancers before the same fleet, at 0.7 of its capacity",
		Promise: "they do not herd: the busiest engine has at most 1.5 times the mean",
		run:     twoBalancers, Alone: true,
		off: off{defence: "ranking by load", settings: settings{"strategy": "failover"}},
	},
	{
		ID:      "R63",
		Fault:   "engines that speak HTTP/2 go away (GOAWAY) under load",
		Promise: "what they still serve finishes, the rest is sent again: no error",
		run:     goAway,
		off:     off{defence: "repeating what was not processed", change: "h2_repeat"},
	},
	{
		ID:      "R64",
		Fault:   "an engine refuses 1 of 5 HTTP/2 streams (REFUSED_STREAM)",
		Promise: "they are sent again: no error",
		run:     refusedStreams,
		off:     off{defence: "repeating what was refused", change: "h2_repeat"},
	},
	{
		ID:      "R67",
		Fault:   "a hedged request: the first engine is slow, the second one answers",
		Promise: "the loser is cancelled within 100 ms, and its tokens are recorded as waste",
		run:     hedgeLoser, Alone: true,
		off: off{defence: "hedging", settings: settings{"hedge": settings{"enabled": false}}},
	},
}

// sharedPort starts an engine on each of the addresses, all on one port.
func (b *Bench) sharedPort(c mock.Config, hosts ...string) (es []*mock.Engine, port string) {
	port = "0"
	for range 20 {
		es, port = nil, "0"
		for _, h := range hosts {
			c.Listen, c.Name = net.JoinHostPort(h, port), string(rune('a'+len(b.engines)+len(es)))
			c.Models, c.Seed = []string{model}, uint64(len(es)+1)
			e, err := mock.New(c)
			b.must(err)
			if err = e.Start(); err != nil {
				break // the port is taken there: all again with another
			}
			es = append(es, e)
			_, port, err = net.SplitHostPort(e.Addr())
			b.must(err)
		}
		if len(es) == len(hosts) {
			for _, e := range es {
				b.engines = append(b.engines, e)
				b.later(e.Kill)
			}
			return es, port
		}
		for _, e := range es {
			e.Kill()
		}
	}
	b.stopf("no port is free on all of %v; are they addresses of this machine's loopback interface?", hosts)
	return nil, ""
}

const (
	firstHost  = "127.0.0.2"
	secondHost = "127.0.0.3"
)

func dnsFails(_ context.Context, b *Bench) (Measured, error) {
	first, second := netip.MustParseAddr(firstHost), netip.MustParseAddr(secondHost)
	es, port := b.sharedPort(mock.Config{}, firstHost, secondHost)
	d := b.dns(first, second)
	b.set(settings{"dns_server": d.addr()})
	b.serveBy("pool", "dns+http://engines.drill:"+port)
	x := b.serve()
	if !b.until(5*time.Second, func() bool { return len(x.stands()) == 2 }) {
		b.stopf("the addresses did not become endpoints: %v", x.stands())
	}
	f := b.flow(x, 100, request{})
	d.say(dnsmessage.RCodeServerFailure, false)
	b.pass(2500 * time.Millisecond)
	d.say(dnsmessage.RCodeSuccess, true)
	b.pass(time.Duration(b.times(2, 30)) * time.Second)
	before := calls(es...)
	b.pass(500 * time.Millisecond)
	t := f.end()
	down := t.total() - t.of(complete)
	found := measured("%d errors of %d, %d endpoints kept", down, t.total(), len(x.stands()))
	return found, check(down == 0 && calls(es...) > before && len(x.stands()) == 2, "%s: %s", found, t.example())
}

func dnsMoves(_ context.Context, b *Bench) (Measured, error) {
	const most = (dnsTTL + 1) * time.Second
	first, second := netip.MustParseAddr(firstHost), netip.MustParseAddr(secondHost)
	es, port := b.sharedPort(mock.Config{InterToken: 100 * time.Millisecond, OutputTokens: 40}, firstHost, secondHost)
	d := b.dns(first)
	b.set(settings{"dns_server": d.addr()})
	b.serveBy("pool", "dns+http://engines.drill:"+port)
	x := b.serve()
	b.until(5*time.Second, func() bool { return len(x.stands()) == 1 })
	long := b.flow(x, 5, request{stream: true, tokens: 40}) // of 4 s each
	b.pass(500 * time.Millisecond)
	moved := time.Now()
	d.say(dnsmessage.RCodeSuccess, false, second)
	b.until(5*time.Second, func() bool { return calls(es[1]) > 0 })
	after := time.Since(moved)
	b.pass(200 * time.Millisecond)
	before := calls(es[0])
	b.pass(time.Second)
	late := calls(es[0]) - before
	t := long.end()
	found := measured("used after %v; %d requests to the old address later; %d of %d streams complete", after.Round(10*time.Millisecond), late, t.of(complete), t.total())
	return found, check(after <= most && late == 0 && t.of(complete) == t.total(), "%s: %s", found, t.example())
}

// halfDead needs a name that the system's own resolver finds, so the balancer gets an /etc/hosts of its own.
func halfDead(_ context.Context, b *Bench) (Measured, error) {
	const most = 300 * time.Millisecond
	alive, port := b.sharedPort(mock.Config{}, secondHost)
	dead, err := net.Listen("tcp", net.JoinHostPort(firstHost, port))
	b.must(err)
	k := &link{l: dead, conns: map[net.Conn]struct{}{}, moved: make(chan struct{})}
	b.later(func() { dead.Close(); k.unfill() })
	b.must(k.vanish())
	hosts := filepath.Join(b.folder(), "hosts")
	b.must(os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+firstHost+" engine.drill\n"+secondHost+" engine.drill\n"), 0o644))
	b.serveBy("a", "http://engine.drill:"+port, settings{"max_connections": 1})
	x := b.serveAs(launch{config: b.configuration("evenkeel.yaml"), hosts: hosts})
	var waits []time.Duration
	for range 3 {
		b.fault(alive[0], mock.Fault{Kind: "close", Count: 0, Path: "/none"}) // nothing; the kept connection goes below
		alive[0].Kill()
		b.must(alive[0].Restart())
		if !b.until(5*time.Second, func() bool { return x.stands()["a"].state != "open" }) {
			b.stopf("the endpoint stays out: %v", x.stands())
		}
		a := b.crowd(x, 1, 1, request{limit: 5 * time.Second}).answers[0]
		if a.ending != complete {
			return "", brokenf("a request was not answered: %s %s", endings[a.ending], a.why)
		}
		waits = append(waits, a.took)
	}
	worst := quantile(waits, 1)
	return measured("at most %v for a request over a new connection", worst.Round(time.Millisecond)), check(worst <= most, "%v for a request, at most %v", worst, most)
}

func badCertificates(_ context.Context, b *Bench) (Measured, error) {
	asked := 0
	var said []string
	for _, bad := range []struct {
		what, name string
		until      time.Time
	}{
		{"expired", "127.0.0.1", time.Now().Add(-24 * time.Hour)},
		{"for another name", "other.drill", time.Now().Add(time.Hour)},
	} {
		s := b.scene()
		pair, ca := s.certificate(bad.name, bad.until)
		f := s.fakeTLS("a", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, func(c *fakeConn, _ int) { c.json(200, chatAnswer) })
		s.serveBy("a", "https://"+f.addr, settings{"tls": settings{"ca": ca}})
		x := s.serve()
		a := s.crowd(x, 1, 1, request{limit: 5 * time.Second}).answers[0]
		said = append(said, fmt.Sprintf("%s: status %d %s", bad.what, a.status, a.code))
		asked += int(f.asked.Load())
		if a.ending != refused || a.status < 502 || a.status > 503 {
			return measured("%s", strings.Join(said, "; ")), brokenf("certificate %s: %s (status %d %s)", bad.what, endings[a.ending], a.status, a.why)
		}
		if !strings.Contains(x.out.text(), "certificate") {
			return "", brokenf("certificate %s: the log does not speak of it", bad.what)
		}
		if err := s.invariants(); err != nil {
			return "", err
		}
	}
	found := measured("%s; %d requests sent", strings.Join(said, "; "), asked)
	return found, check(asked == 0, "%d requests were sent to an engine with a bad certificate", asked)
}

func lossy(_ context.Context, b *Bench) (Measured, error) {
	for range 4 {
		e := b.engine(mock.Config{BaseLatency: 20 * time.Millisecond, InterToken: 5 * time.Millisecond})
		k := b.link(e.Addr())
		k.change(linkFault{loss: 0.05, jitter: 100 * time.Millisecond})
		b.serveBy(e.Name(), k.url())
	}
	x := b.serve()
	f := b.flow(x, 60, request{stream: true})
	ejected := map[string]bool{}
	for range b.times(80, 600) {
		b.pass(100 * time.Millisecond)
		for name, s := range x.stands() {
			if s.state == "open" {
				ejected[name+" "+s.reason] = true
			}
		}
	}
	t := f.end()
	found := measured("%d errors of %d, %d ejections", t.total()-t.of(complete), t.total(), len(ejected))
	return found, check(t.of(complete) == t.total() && len(ejected) == 0, "%s: %v; %s", found, ejected, t.example())
}

func partition(_ context.Context, b *Bench) (Measured, error) {
	limit := 60 * time.Second
	b.set(settings{"strategy": "round_robin", "deadlines": settings{"connect": "300ms", "first_token": "1s", "between_tokens": "1s", "response": "1s"}})
	var links []*link
	for i := range 4 {
		e := b.engine(mock.Config{BaseLatency: 10 * time.Millisecond})
		url := e.URL()
		if i < 2 {
			k := b.link(e.Addr())
			links, url = append(links, k), k.url()
		}
		b.serveBy(e.Name(), url)
	}
	x := b.serve()
	f := b.flow(x, 80, request{limit: 10 * time.Second})
	b.pass(time.Second)
	split := time.Now()
	for _, k := range links {
		b.must(k.vanish())
	}
	states := func(ok func(string) bool) func() bool {
		return func() bool { s := x.stands(); return ok(s["a"].state) && ok(s["b"].state) }
	}
	out := b.until(10*time.Second, states(func(s string) bool { return s == "open" || s == "half_open" }))
	after := time.Since(split)
	b.pass(time.Second)
	calm := time.Now()
	b.pass(time.Second)
	during := f.now().between(calm, time.Now().Add(-500*time.Millisecond))
	for _, k := range links {
		b.must(k.appear())
	}
	healed := time.Now()
	served := calls(b.engines[0]) + calls(b.engines[1])
	back := b.until(limit, func() bool {
		s := x.stands()
		return calls(b.engines[0])+calls(b.engines[1]) > served+10 && s["a"].state != "open" && s["b"].state != "open"
	})
	heals := time.Since(healed)
	t := f.end()
	down := t.total() - t.of(complete)
	found := measured("out after %v, back %v after it healed; %d errors of %d", after.Round(10*time.Millisecond), heals.Round(10*time.Millisecond), down, t.total())
	if down > 0 || !out || during.of(complete) < during.total() {
		return found, brokenf("%s; out: %v: %s", found, out, t.example())
	}
	return found, check(back, "the engines do not serve again %v after the network healed", heals)
}

func twoBalancers(_ context.Context, b *Bench) (Measured, error) {
	const n, most = 8, 1.5
	es := b.fleet(n, mock.Config{BaseLatency: 100 * time.Millisecond, Slots: 4})
	x, y := b.serve(), b.serveAs(launch{config: b.configuration("second.yaml")})
	rate := 0.7 * n * 4 / 0.1
	f, g := b.flow(x, rate/2, request{limit: 5 * time.Second}), b.flow(y, rate/2, request{limit: 5 * time.Second})
	b.pass(time.Second)
	load := make([]float64, n)
	looks := 0
	for range 200 { // load is what runs and waits there, over time
		for i, e := range es {
			s := e.Stats()
			load[i] += float64(s.Running + s.Waiting)
		}
		looks++
		b.pass(20 * time.Millisecond)
	}
	t := f.end()
	t.answers = append(t.answers, g.end().answers...)
	sum, worst := 0.0, 0.0
	for _, l := range load {
		sum += l
		worst = max(worst, l)
	}
	ratio := worst / (sum / n)
	found := measured("busiest engine %.2f times the mean, TTFT p99 %v, %d errors of %d", ratio, t.quantile(0.99, ttft).Round(time.Millisecond), t.total()-t.of(complete), t.total())
	if t.of(complete) < t.total() {
		return found, brokenf("not all were answered: %s", t.example())
	}
	return found, check(ratio <= most, "the busiest engine had %.2f times the mean load, at most %.1f", ratio, most)
}

func goAway(_ context.Context, b *Bench) (Measured, error) {
	s := b.h2("a", &h2Server{goAway: 20, delay: 5 * time.Millisecond})
	x := b.serve()
	t := b.crowd(x, b.times(1000, 20000), 8, request{})
	down := t.total() - t.of(complete)
	found := measured("%d errors of %d, %d connections went away with %d requests unserved", down, t.total(), s.goneAway.Load(), s.forgotten.Load())
	if s.goneAway.Load() < 5 && down == 0 {
		b.stopf("only %d connections went away: nothing was tried", s.goneAway.Load())
	}
	return found, check(down == 0, "%d of %d requests were not answered: %v", down, t.total(), t.whys())
}

func refusedStreams(_ context.Context, b *Bench) (Measured, error) {
	s := b.h2("a", &h2Server{refuse: 5})
	x := b.serve()
	t := b.crowd(x, b.times(1000, 20000), 8, request{})
	down := t.total() - t.of(complete)
	found := measured("%d errors of %d, %d streams refused", down, t.total(), s.refused.Load())
	if s.refused.Load() < 50 && down == 0 {
		b.stopf("only %d streams were refused: nothing was tried", s.refused.Load())
	}
	return found, check(down == 0, "%d of %d requests were not answered: %v", down, t.total(), t.whys())
}

func hedgeLoser(_ context.Context, b *Bench) (Measured, error) {
	b.set(settings{"strategy": "round_robin", "hedge": settings{"enabled": true}})
	es := b.fleet(2, mock.Config{BaseLatency: 100 * time.Millisecond})
	x := b.serve()
	b.crowd(x, 300, 16, request{stream: true}) // what is usual, and what they earn
	before := x.sample()
	b.fault(es[0], mock.Fault{Kind: "hang"})
	var told time.Duration
	r := request{stream: true, limit: 5 * time.Second, first: func() {
		began := time.Now()
		b.until(2*time.Second, func() bool { return es[0].Stats().Running == 0 })
		told = max(told, time.Since(began))
	}}
	t := b.crowd(x, 4, 1, r)
	if t.of(complete) < t.total() {
		return "", brokenf("nobody else answered: %s", t.example())
	}
	s := x.sample()
	more := func(name, label string) float64 { return s.sum(name, label) - before.sum(name, label) }
	won, lost := more("evenkeel_hedges_total", `result="won"`), more("evenkeel_attempts_total", `class="hedge_lost"`)
	wasted := 0
	for _, a := range t.answers {
		for _, one := range x.explain(a.header.Get("x-evenkeel-id")).Attempts {
			if one.Waste && one.Outcome.InputTokens > 0 {
				wasted++
			}
		}
	}
	found := measured("%.0f hedges won, losers cancelled within %v, %d recorded as waste, TTFT at most %v", won, told.Round(time.Millisecond), wasted, t.quantile(1, ttft).Round(time.Millisecond))
	return found, check(told <= noticed && won > 0 && lost == won && wasted == int(won), "%s; %.0f attempts lost", found, lost)
}
