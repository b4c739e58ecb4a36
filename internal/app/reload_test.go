package app

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/mock"
	"evenkeel/internal/route"
	"evenkeel/tests/certs"
)

// reload gives the App another configuration and demands that it takes it.
func (w *world) reload(text string) {
	w.t.Helper()
	if err := w.app.Reload(parse(w.t, text)); err != nil {
		w.t.Fatalf("reload: %v", err)
	}
}

// running streams: n of them, each after its first content.
func (w *world) streams(n int, model string) []*stream {
	w.t.Helper()
	all := make([]*stream, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i], errs[i] = w.tryStream(model) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return all
}

func (w *world) allWhole(streams []*stream) {
	w.t.Helper()
	for _, s := range streams {
		w.whole(s)
	}
}

// inFlight is what the router counts at an endpoint.
func (w *world) inFlight(endpoint string) int {
	n := 0
	for _, d := range w.app.router.View(time.Now()).Deployments {
		if d.Endpoint == endpoint {
			n += d.InFlight
		}
	}
	return n
}

const streamCount = 20

// TestCase82ReloadDuringStreams: neither reloads nor a stop cut what runs. With no change, a new model, an endpoint that
// leaves, a configuration that cannot be, twenty reloads in a row, and then the end.
func TestCase82ReloadDuringStreams(t *testing.T) {
	a, b := newGated(t, "m"), newGated(t, "m")
	both := fmt.Sprintf("endpoints:\n  a: {url: %q}\n  b: {url: %q}\nstrategy: least_connections\n", a.URL, b.URL)
	onlyB := fmt.Sprintf("endpoints:\n  b: {url: %q}\nstrategy: least_connections\n", b.URL)
	w := start(t, parse(t, both))
	w.serves("m")
	streams := w.streams(streamCount, "m")
	before := w.app.current.Load().Proxy.Endpoints

	w.reload(both) // no change
	if after := w.app.current.Load().Proxy.Endpoints; after["a"] != before["a"] || after["b"] != before["b"] {
		t.Error("a reload without a change made new connections to the endpoints")
	}
	if n := w.inFlight("a") + w.inFlight("b"); n != streamCount || w.inFlight("a") != streamCount/2 {
		t.Errorf("%d streams at a and %d at b are counted after the reload, want %d each", w.inFlight("a"), w.inFlight("b"), streamCount/2)
	}

	w.reload(both + "models:\n  alias: {providers: [{name: a, model: m}]}\n") // a new model
	w.serves("alias", "m")
	streams = append(streams, w.stream("alias"))

	w.reload(onlyB) // the endpoint in use is removed
	w.serves("m")
	startedAtA := a.started.Load()
	streams = append(streams, w.streams(4, "m")...)
	if n := a.started.Load() - startedAtA; n != 0 {
		t.Errorf("%d new requests went to the endpoint that was removed", n)
	}
	if answer := w.chat("alias"); answer.status != http.StatusNotFound {
		t.Errorf("the model that was removed: %d %s", answer.status, answer.body)
	}
	if n := w.metric("evenkeel_in_flight", `deployment="a/m"`); int(n) != streamCount/2+1 {
		t.Errorf("evenkeel_in_flight of the removed endpoint is %v while %d streams run there", n, streamCount/2+1)
	}

	w.refuses("endpoints: {b: {url: not-a-url}}", "http://")
	w.refuses(strings.Replace(onlyB, "least_connections", "round_robbin", 1), "round_robin")

	for range 5 {
		for _, text := range []string{both, onlyB, both + "deadlines: {response: 1h}\n", onlyB} {
			w.reload(text)
		}
	}
	if n := w.inFlight("a") + w.inFlight("b"); n != len(streams) {
		t.Errorf("%d streams are counted after many reloads, want %d", n, len(streams))
	}
	if left := a.left.Load() + b.left.Load(); left != 0 {
		t.Errorf("%d running streams were cut", left)
	}
	a.open()
	w.await("the removed endpoint has no series of load any more", func() bool {
		_, n := w.series("evenkeel_in_flight", `deployment="a/m"`)
		return n == 0
	})

	w.stop()
	w.await("it drains", func() bool { return w.get(w.url+"/readyz").status == http.StatusServiceUnavailable })
	if left := b.left.Load(); left != 0 {
		t.Errorf("%d streams were cut by the end", left)
	}
	b.open()
	w.allWhole(streams)
	w.over()
}

// Endpoints that are not ready are asked every half second. One that was removed is not, while the one that stays is.
func TestRemovedEndpointIsNotProbed(t *testing.T) {
	removed, stays := newGated(t, "m"), newGated(t, "m")
	removed.loading.Store(true)
	stays.loading.Store(true)
	onlyStays := fmt.Sprintf("endpoints:\n  stays: {url: %q}\n", stays.URL)
	w := start(t, parse(t, onlyStays+fmt.Sprintf("  removed: {url: %q}\n", removed.URL)))
	w.await("both are asked again and again", func() bool { return removed.probes.Load() > 1 && stays.probes.Load() > 1 })
	w.reload(onlyStays)
	since := stays.probes.Load()
	w.await("the new watch has begun", func() bool { return stays.probes.Load() > since })
	asked := removed.probes.Load()
	w.await("the endpoint that stays was asked twice more", func() bool { return stays.probes.Load() > since+2 })
	if n := removed.probes.Load() - asked; n != 0 {
		t.Errorf("the removed endpoint was asked %d times meanwhile", n)
	}
}

// refuses demands that a configuration is refused as serve would refuse it.
func (w *world) refuses(text, why string) {
	w.t.Helper()
	c, err := parseErr(text)
	if err == nil {
		err = w.app.Reload(c)
	} else {
		w.app.ReloadFailed()
	}
	if err == nil || !strings.Contains(err.Error(), why) {
		w.t.Errorf("reload of %q: error %v, want one that says %q", text, err, why)
	}
	if ok := w.metric("evenkeel_config_last_reload_successful"); ok != 0 {
		w.t.Errorf("evenkeel_config_last_reload_successful is %v after a reload that failed", ok)
	}
}

func TestReloadMetric(t *testing.T) {
	e := engine(t, mock.Config{Models: []string{"m"}})
	text := fmt.Sprintf("endpoints: {a: {url: %q}}", e.URL())
	w := start(t, parse(t, text))
	w.serves("m")
	const name = "evenkeel_config_last_reload_successful"
	if v, n := w.series(name); n != 1 || v != 1 {
		t.Errorf("after the start %s is %v (%d series), want 1", name, v, n)
	}
	first := w.metric("evenkeel_config_last_reload_success_timestamp_seconds")
	w.refuses("{", "not")
	if at := w.metric("evenkeel_config_last_reload_success_timestamp_seconds"); at != first {
		t.Error("a reload that failed moved the time of the last good one")
	}
	w.reload(text)
	if v := w.metric(name); v != 1 {
		t.Errorf("after a good reload %s is %v", name, v)
	}
	if a := w.chat("m"); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// find returns what the router knows about a deployment.
func (w *world) find(id string) route.DeploymentView {
	for _, d := range w.app.router.View(time.Now()).Deployments {
		if d.ID == id {
			return d
		}
	}
	return route.DeploymentView{}
}

// TestCase82ReloadKeepsWhatWasLearned: times to the first token, breakers and what is left of a quota.
func TestCase82ReloadKeepsWhatWasLearned(t *testing.T) {
	good := engine(t, mock.Config{Name: "good", Models: []string{"m"}})
	bad := engine(t, mock.Config{Name: "bad", Models: []string{"m", "own"}})
	metered := engine(t, mock.Config{Name: "metered", Models: []string{"few"}})
	text := fmt.Sprintf("strategy: round_robin\nendpoints:\n  good: {url: %q}\n  bad: {url: %q}\n  metered: {url: %q, limits: {rpm: 4}}\n", good.URL(), bad.URL(), metered.URL())
	w := start(t, parse(t, text))
	w.serves("few", "m", "own")
	few := func() int { return w.chat("few", "X-Evenkeel-Timeout", "100ms").status } // the next place is free in 15 s
	for range 3 {
		if status := few(); status != http.StatusOK {
			t.Fatalf("within the quota: %d", status)
		}
	}
	for range 4 {
		w.whole(w.stream("m"))
	}
	if err := bad.SetFault(mock.Fault{Kind: "status", Status: 500}); err != nil {
		t.Fatal(err)
	}
	w.await("the failing deployment is out", func() bool {
		w.chat("own")
		return w.find("bad/own").Breaker.State == route.Open
	})
	goodBefore, badBefore := w.find("good/m"), w.find("bad/own")
	if goodBefore.TTFT == 0 {
		t.Fatal("no time to first token was learned")
	}
	for _, change := range []string{"", "models: {alias: {providers: [{name: good, model: m}]}}\n", "deadlines: {response: 10s}\n", "retry: {max_attempts: 2}\n"} {
		w.reload(text + change)
		goodAfter, badAfter := w.find("good/m"), w.find("bad/own")
		if goodAfter.TTFT != goodBefore.TTFT || goodAfter.Totals != goodBefore.Totals {
			t.Errorf("after %q: %+v was learned, before %+v", change, goodAfter, goodBefore)
		}
		if badAfter.Breaker.Since != badBefore.Breaker.Since || badAfter.Breaker.Since.IsZero() {
			t.Errorf("after %q: the breaker is %+v, before %+v", change, badAfter.Breaker, badBefore.Breaker)
		}
	}
	if status := few(); status != http.StatusOK {
		t.Errorf("the last request of the quota: %d", status)
	}
	if status := few(); status == http.StatusOK {
		t.Error("reloads gave a quota back that was used")
	}
}

// What is known about an endpoint that is down stays known over a reload, also one that starts its watch anew.
func TestReloadWhileAnEndpointIsDown(t *testing.T) {
	up := engine(t, mock.Config{Name: "up", Models: []string{"m"}})
	down := engine(t, mock.Config{Name: "down", Models: []string{"own"}})
	text := fmt.Sprintf("endpoints:\n  up: {url: %q}\n  down: {url: %q}\n", up.URL(), down.URL())
	w := start(t, parse(t, text))
	w.serves("m", "own")
	down.Kill()
	other := engine(t, mock.Config{Name: "other", Models: []string{"more"}})
	w.reload(strings.Replace(text, "down: {", "down: {kind: openai-compatible, ", 1) + fmt.Sprintf("  other: {url: %q}\n", other.URL()))
	w.serves("m", "more", "own")
	w.logged("endpoint stopped answering; requests go elsewhere until it is back", "down")
	if a := w.chat("own"); a.status != http.StatusServiceUnavailable && a.status != http.StatusBadGateway {
		t.Errorf("the model of the endpoint that is down: %d %s, want 502 or 503", a.status, a.body)
	}
	w.serves("m", "more", "own")
	if err := down.Restart(); err != nil {
		t.Fatal(err)
	}
	w.await("it is back", func() bool { return w.chat("own").status == http.StatusOK })
	w.logged("endpoint is out", "down", "unreachable")
	w.logged("endpoint is back", "down")
}

func TestReloadOfSettingsThatNeedARestart(t *testing.T) {
	e := engine(t, mock.Config{Models: []string{"m"}})
	text := fmt.Sprintf("endpoints: {a: {url: %q}}\n", e.URL())
	w := start(t, parse(t, text))
	w.serves("m")
	cert, key := certs.NewAuthority(t, "ours").Local(t).Write(t, t.TempDir(), "server")
	w.reload("listen: 127.0.0.1:1\nmetrics: 127.0.0.1:2\nlog: {level: error}\nexplain: {ring_mib: 1}\nh2c: true\ntrace: {path: t.jsonl}\n" +
		fmt.Sprintf("admin_tls: {cert: %s, key: %s}\n", cert, key) + text)
	const warning = "a changed setting takes effect only after a restart"
	for _, setting := range []string{"listen", "metrics", "admin_tls", "h2c", "log", "explain.ring_mib", "trace"} {
		w.logged(warning, setting)
	}
	if n := len(w.lines(warning)); n != 7 {
		t.Errorf("%d settings are warned about, want 7", n)
	}
	if c := w.app.Config(); c.Trace.Path != "" || c.H2C || c.Log.Level == "error" {
		t.Errorf("they hold before the restart: %+v", c)
	}
	if a := w.chat("m"); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A file that moves the listener to loopback needs no keys; but what listens still is reachable by others.
func TestReloadDoesNotOpenARunningListener(t *testing.T) {
	e := engine(t, mock.Config{Models: []string{"m"}})
	const hash = "0000000000000000000000000000000000000000000000000000000000000001"
	text := fmt.Sprintf("endpoints: {a: {url: %q}}\n", e.URL())
	c := parse(t, "listen: 0.0.0.0:0\nvirtual_keys: [{name: k, sha256: "+hash+"}]\n"+text)
	w := start(t, c)
	if a := w.chat("m"); a.status != http.StatusUnauthorized {
		t.Fatalf("without a key: %d", a.status)
	}
	w.refuses("listen: 127.0.0.1:0\n"+text, "needs a restart, since listen can change only then")
	if a := w.chat("m"); a.status != http.StatusUnauthorized {
		t.Errorf("after the reload, without a key: %d", a.status)
	}
}

// Where only client certificates keep strangers out, no reload stops asking for them.
func TestReloadDoesNotDropClientCertificates(t *testing.T) {
	ca := certs.NewAuthority(t, "ours")
	dir := t.TempDir()
	cert, key := ca.Local(t).Write(t, dir, "server")
	clients := certs.WriteFile(t, dir, "clients.pem", ca.PEM)
	e := engine(t, mock.Config{Models: []string{"m"}})
	text := fmt.Sprintf("endpoints: {a: {url: %q}}\n", e.URL())
	pair := fmt.Sprintf("cert: %s, key: %s", cert, key)
	w := startTLS(t, parse(t, fmt.Sprintf("listen: 0.0.0.0:0\ntls: {%s, client_ca: %s}\n", pair, clients)+text),
		&tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{ca.Local(t).TLS(t)}, InsecureSkipVerify: true}) // it is asked as [::]
	w.refuses(fmt.Sprintf("tls: {%s}\nlisten: 127.0.0.1:0\n", pair)+text, "needs a restart, since listen can change only then")
	w.reload("listen: 0.0.0.0:0\nauth: none\n" + text) // without tls: that needs a restart
	w.logged("a changed setting takes effect only after a restart", "tls")
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	if res, err := stranger.Get(w.url + "/livez"); err == nil {
		res.Body.Close()
		t.Errorf("a stranger was answered: %d", res.StatusCode)
	}
}

// handles counts the file descriptors of this process, −1 where the system does not show them.
func handles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(entries)
}

func TestCase83ManyReloadsLeaveNothingBehind(t *testing.T) {
	var engines []*mock.Engine
	text := "explain: {ring_mib: 0}\nendpoints:\n"
	for i := range 3 {
		e := engine(t, mock.Config{Name: fmt.Sprint("e", i), Models: []string{"m"}})
		engines = append(engines, e)
		text += fmt.Sprintf("  e%d: {url: %q}\n", i, e.URL())
	}
	w := start(t, parse(t, text))
	w.serves("m")
	others := []string{
		text,
		text + "models: {alias: {providers: [{name: e0, model: m}, {name: e2, model: m}]}}\n",
		strings.Replace(text, "e1: {", "e1: {weight: 2, ", 1),
		text + "strategy: p2c_ewma\ndeadlines: {connect: 1s}\n",                                           // new connections
		fmt.Sprintf("endpoints:\n  e0: {url: %q}\n  e2: {url: %q}\n", engines[0].URL(), engines[2].URL()), // one leaves
	}
	stop := w.traffic(4, time.Microsecond)
	measure := func() (goroutines, fds, memory int) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), handles(), int(m.HeapAlloc) - w.log.size()
	}
	reloads := func(n int) {
		for i := range n {
			w.reload(others[i%len(others)])
			count := w.app.router.View(time.Now()).Epoch
			w.chat("m")
			if now := w.app.router.View(time.Now()).Epoch; now < count {
				t.Fatalf("the epoch went back from %d to %d", count, now)
			}
		}
	}
	reloads(20) // what is opened once is open
	goroutines, fds, memory := measure()
	reloads(100)
	// Connections of endpoints that were replaced close once their last request has ended.
	var lastGoroutines, lastFDs, lastMemory int
	w.await("goroutines, file descriptors and memory are as before", func() bool {
		lastGoroutines, lastFDs, lastMemory = measure()
		return lastGoroutines <= goroutines+10 && lastFDs <= fds+10 && lastMemory <= memory+memory/10+512<<10
	})
	t.Logf("goroutines %d, then %d; file descriptors %d, then %d; memory %d KiB, then %d", goroutines, lastGoroutines, fds, lastFDs, memory>>10, lastMemory>>10)
	stop()
}

// traffic has clients ask for the model m, each again a pause after its last answer, until stop, which demands that all
// was well.
func (w *world) traffic(clients int, pause time.Duration) (stop func()) {
	over := make(chan struct{})
	var work sync.WaitGroup
	var failed sync.Map
	for range clients {
		work.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(pause):
				}
				if a := w.chat("m"); a.status != http.StatusOK || a.err != nil {
					failed.Store(fmt.Sprintf("%d %v %s", a.status, a.err, a.body), true)
				}
			}
		})
	}
	return func() {
		w.t.Helper()
		close(over)
		work.Wait()
		failed.Range(func(what, _ any) bool {
			w.t.Errorf("a request failed during the reloads: %v", what)
			return true
		})
	}
}

// A configuration that names an alias with limits of its own must not keep the endpoint's models from being found.
func TestAliasWithLimitsBesideDiscovery(t *testing.T) {
	e := engine(t, mock.Config{Name: "e", Models: []string{"m", "other"}})
	w := start(t, parse(t, fmt.Sprintf(`
endpoints: {e: {url: %q}}
models: {alias: {providers: [{name: e, model: m, limits: {in_flight: 3}}]}}
`, e.URL())))
	w.serves("alias", "m", "other")
	for _, model := range []string{"alias", "m", "other"} {
		if a := w.chat(model); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", model, a.status, a.body)
		}
	}
	if n := w.find("e/m").Limits.InFlight; n != 3 {
		t.Errorf("the limit of e/m is %d, want 3 whatever name it is asked for by", n)
	}
}

// Who waits in the queue is let in at once when a reload gives more room, and answered at once when it takes the model away.
func TestReloadReachesTheQueue(t *testing.T) {
	e := newGated(t, "m")
	text := func(limit int, model string) string {
		return fmt.Sprintf("endpoints: {e: {url: %q, limits: {in_flight: %d}}}\nmodels: {%s: {providers: [{name: e, model: m}]}}", e.URL, limit, model)
	}
	w := start(t, parse(t, text(1, "alias")))
	w.serves("alias", "m")
	answers := make(chan answer, 4)
	ask := func(running, waiting int) {
		t.Helper()
		go func() { answers <- w.chat("alias") }()
		w.await(fmt.Sprintf("%d run and %d wait", running, waiting), func() bool {
			return int(e.running.Load()) == running && int(w.metric("evenkeel_queue_depth")) == waiting
		})
	}
	ask(1, 0)
	ask(1, 1)
	w.reload(text(2, "alias"))
	w.await("the one that waited runs", func() bool { return e.running.Load() == 2 })
	ask(2, 1)
	w.reload(text(2, "other"))
	if a := <-answers; a.status != http.StatusNotFound || !strings.Contains(a.body, "model_not_found") {
		t.Errorf("the one that waited for the model that is gone: %d %s", a.status, a.body)
	}
	e.open()
	for range 2 {
		if a := <-answers; a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

// The same name at another address starts fresh; what runs at the old one goes on and is counted there.
func TestReloadMovesAnEndpoint(t *testing.T) {
	old, moved := newGated(t, "m"), newGated(t, "m")
	text := func(url string) string { return fmt.Sprintf("endpoints: {e: {url: %q, limits: {in_flight: 2}}}", url) }
	w := start(t, parse(t, text(old.URL)))
	w.serves("m")
	before := w.streams(2, "m")
	w.reload(text(moved.URL))
	w.await("the new address is known", func() bool { return moved.probes.Load() > 0 && len(w.models()) == 1 })
	after := w.streams(2, "m") // the limit of the old address does not bind
	if old.started.Load() != 2 || moved.started.Load() != 2 {
		t.Errorf("%d requests at the old address and %d at the new one, want 2 and 2", old.started.Load(), moved.started.Load())
	}
	if n := w.metric("evenkeel_in_flight", `deployment="e/m"`); n != 4 {
		t.Errorf("evenkeel_in_flight is %v, want the 4 of both addresses", n)
	}
	old.open()
	moved.open()
	w.allWhole(append(before, after...))
}
