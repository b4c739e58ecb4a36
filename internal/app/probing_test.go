package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/mock"
	"evenkeel/internal/route"
)

// probePrompt is found in probes only.
const probePrompt = "Is water wet?"

// withProbes is the section of quick probes.
const withProbes = "health_checks: {interval: 100ms, timeout: 3s, probe_prompt: '" + probePrompt + "'}\n"

// probes are the completions that an engine got from the balancer itself.
func probesOf(e *mock.Engine) (all []mock.Recorded) {
	for _, r := range e.Requests() {
		if strings.Contains(string(r.Body), probePrompt) {
			all = append(all, r)
		}
	}
	return all
}

// pagesOf is how often an engine's health page was asked for.
func pagesOf(e *mock.Engine) (n int) {
	for _, r := range e.Requests() {
		if r.Path == "/health" {
			n++
		}
	}
	return n
}

// TestProbesOpenAndClose: a deployment that fails is out before a request meets it, and back without one, though its
// health page says all the while that it is well.
func TestProbesOpenAndClose(t *testing.T) {
	e := engine(t, mock.Config{Models: []string{"m"}, OwnedBy: "vllm", Record: 1000})
	w := start(t, parse(t, withProbes+fmt.Sprintf("endpoints: {a: {url: %q, api_key: '${UPSTREAM_KEY}'}}\n", e.URL())))
	w.serves("m")
	w.await("it is probed", func() bool { return len(probesOf(e)) > 2 && pagesOf(e) > 2 })
	probe := probesOf(e)[0]
	if probe.Path != "/v1/chat/completions" || probe.Header.Get("Authorization") != "Bearer "+upstreamKey || probe.Header.Get("User-Agent") != "evenkeel-probe" {
		t.Errorf("got %s %s %v", probe.Method, probe.Path, probe.Header)
	}
	w.await("the metrics tell of it", func() bool {
		return w.metric("evenkeel_probes_total", `name="a/m"`, `result="ok"`) > 0 && w.metric("evenkeel_probes_total", `scope="endpoint"`, `result="ok"`) > 0 &&
			w.metric("evenkeel_probe_tokens_total", `kind="output"`) > 0 && w.metric("evenkeel_probe_time_to_first_token_seconds_count") > 0
	})

	if err := e.SetFault(mock.Fault{Kind: "status", Status: 500}); err != nil {
		t.Fatal(err)
	}
	w.await("it is out", func() bool { return w.find("a/m").Breaker.State == route.Open })
	if b := w.find("a/m").Breaker; b.Rule != route.RuleProbe || b.Reason != "server_error" {
		t.Errorf("the breaker: %+v", b)
	}
	w.logged("a probe failed", "a/m", "server_error")
	if a := w.chat("m"); a.status != http.StatusServiceUnavailable {
		t.Errorf("a request meanwhile: %d %s", a.status, a.body)
	}
	pages := pagesOf(e)
	w.await("good pages do not bring it back", func() bool { return pagesOf(e) > pages+4 })
	if b := w.find("a/m").Breaker; b.State != route.Open {
		t.Errorf("after good pages: %+v", b)
	}
	if err := e.ClearFault(); err != nil {
		t.Fatal(err)
	}
	w.await("it is back long before its time out is over", func() bool { return w.find("a/m").Breaker.State == route.SlowStart })
	w.logged("probes succeed again", "a/m")
	if totals := w.find("a/m").Totals; totals.Picks != 0 {
		t.Errorf("requests went there: %+v", totals)
	}
}

// TestHealthPageFailsWhileCompletionsAreFine: it degrades, and is never out.
func TestHealthPageFailsWhileCompletionsAreFine(t *testing.T) {
	ill := engine(t, mock.Config{Name: "ill", Models: []string{"m"}, OwnedBy: "vllm", Record: 1000})
	other := engine(t, mock.Config{Name: "other", Models: []string{"m"}, OwnedBy: "vllm"})
	w := start(t, parse(t, withProbes+fmt.Sprintf("endpoints: {ill: {url: %q}, other: {url: %q}}\n", ill.URL(), other.URL())))
	w.serves("m")
	if err := ill.SetFault(mock.Fault{Kind: "status", Status: 503, Path: "/health"}); err != nil {
		t.Fatal(err)
	}
	w.await("it is degraded", func() bool { return w.find("ill/m").Breaker.State == route.Degraded })
	if b := w.find("ill/m").Breaker; b.Reason != "health_page" {
		t.Errorf("the breaker: %+v", b)
	}
	pages := pagesOf(ill)
	w.await("more such pages", func() bool { return pagesOf(ill) > pages+10 })
	if b := w.find("ill/m").Breaker; b.State != route.Degraded || b.Openings != 0 {
		t.Errorf("after more such pages: %+v", b)
	}
	for range 5 {
		if a := w.chat("m", "x-evenkeel-pin", "ill"); a.status != http.StatusOK {
			t.Errorf("a request for it: %d %s", a.status, a.body)
		}
	}
	if err := ill.ClearFault(); err != nil {
		t.Fatal(err)
	}
	w.await("it is well", func() bool { return w.find("ill/m").Breaker.State == route.Closed })
}

// TestCompletionsFailWhileTheHealthPageIsFine: requests have the last word, after as many as without any probe.
func TestCompletionsFailWhileTheHealthPageIsFine(t *testing.T) {
	bad := engine(t, mock.Config{Name: "bad", Models: []string{"m"}, OwnedBy: "vllm", Record: 1000})
	good := engine(t, mock.Config{Name: "good", Models: []string{"m"}, OwnedBy: "vllm"})
	text := fmt.Sprintf("strategy: round_robin\nhealth_checks: {interval: 100ms, timeout: 3s}\nendpoints: {bad: {url: %q}, good: {url: %q}}\n", bad.URL(), good.URL())
	w := start(t, parse(t, text))
	w.serves("m")
	if err := bad.SetFault(mock.Fault{Kind: "status", Status: 500}); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		if a := w.chat("m"); a.status != http.StatusOK || answered(a) != "good" {
			t.Errorf("%d by %q: %s", a.status, answered(a), a.body)
		}
	}
	if d := w.find("bad/m"); d.Breaker.State != route.Open || d.Totals.Faults != uint64(route.DefaultHealth.TripAfter) {
		t.Errorf("after %d faults: %+v", d.Totals.Faults, d.Breaker)
	}
	pages := pagesOf(bad)
	w.await("good pages", func() bool { return pagesOf(bad) > pages+4 })
	if b := w.find("bad/m").Breaker; b.State != route.Open {
		t.Errorf("good pages made it %+v", b)
	}
	if n := len(probesOf(bad)); n != 0 {
		t.Errorf("%d completions were sent without a prompt", n)
	}
}

// TestExpectedAnswer: what the answer must hold, over many events, in Anthropic's dialect too.
func TestExpectedAnswer(t *testing.T) {
	e := engine(t, mock.Config{Name: "parrot", Models: []string{"m"}, APIKey: upstreamKey, Record: 1000})
	text := "health_checks: {interval: 100ms, timeout: 3s, probe_prompt: '" + probePrompt + "', probe_expect: %q}\n" +
		fmt.Sprintf("endpoints: {a: {url: %q, kind: anthropic, api_key: '${UPSTREAM_KEY}', models: [m]}}\n", e.URL())
	w := start(t, parse(t, fmt.Sprintf(text, `^\[parrot\].+ \S+ \S+`)))
	w.await("the probes succeed", func() bool { return w.metric("evenkeel_probes_total", `name="a/m"`, `result="ok"`) > 1 })
	probe := probesOf(e)[0]
	if probe.Path != "/v1/messages" || probe.Header.Get("X-Api-Key") != upstreamKey || probe.Header.Get("Anthropic-Version") == "" {
		t.Errorf("got %s %s %v", probe.Method, probe.Path, probe.Header)
	}
	if s := w.find("a/m").Breaker.State; s != route.Closed {
		t.Errorf("as expected, it is %v", s)
	}
	w.reload(fmt.Sprintf(text, "yes, very"))
	w.await("it is degraded", func() bool { return w.find("a/m").Breaker.State == route.Degraded })
	w.logged("a probe was answered, but not as health_checks.probe_expect says", "a/m", "answer:[parrot", "expected:yes, very")
	if n := len(w.lines("a probe was answered, but not as health_checks.probe_expect says")); n != 1 {
		t.Errorf("%d lines for one change", n)
	}
	if a := w.do(http.MethodPost, w.url+"/v1/messages", body("m", `,"max_tokens":5`)); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestWhoIsSentCompletions: of an endpoint with many models, those that are named.
func TestWhoIsSentCompletions(t *testing.T) {
	many := engine(t, mock.Config{Models: []string{"m1", "m2", "m3", "m4"}, Record: 1000})
	one := engine(t, mock.Config{Models: []string{"only"}, Record: 1000})
	text := withProbes + fmt.Sprintf("endpoints: {many: {url: %q}, one: {url: %q}}\n", many.URL(), one.URL()) +
		"models: {alias: {providers: [{name: many, model: m2}]}, again: {providers: [{name: many, model: m2}]}}\n"
	w := start(t, parse(t, text))
	w.await("both were probed", func() bool { return len(probesOf(many)) > 3 && len(probesOf(one)) > 3 })
	asked := map[string]int{}
	for _, r := range append(probesOf(many), probesOf(one)...) {
		var body struct{ Model string }
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		asked[body.Model]++
	}
	if len(asked) != 2 || asked["m2"] == 0 || asked["only"] == 0 {
		t.Errorf("asked were %v", asked)
	}
}

// TestBreakerCloses: by requests alone, by probes alone and by both, whoever was out and is well again carries its share,
// and the state says so.
func TestBreakerCloses(t *testing.T) {
	const quick = "slow_start: 200ms, circuit_breaker: {trip_after: 3, reset_after: 200ms, longest_reset: 200ms}"
	const never = "slow_start: 200ms, min_requests: 100000, circuit_breaker: {trip_after: 100000, reset_after: 1h, longest_reset: 1h}"
	const probes = ", interval: 100ms, timeout: 3s, probe_prompt: '" + probePrompt + "'"
	f := func(name, passive, active string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := engine(t, mock.Config{Name: "a", Models: []string{"m"}})
			b := engine(t, mock.Config{Name: "b", Models: []string{"m"}})
			w := start(t, parse(t, fmt.Sprintf("strategy: round_robin\nhealth_checks: {%s%s}\nendpoints: {a: {url: %q}, b: {url: %q}}\n", passive, active, a.URL(), b.URL())))
			w.serves("m")
			if err := a.SetFault(mock.Fault{Kind: "status", Status: 503}); err != nil {
				t.Fatal(err)
			}
			request := func() {
				if got := w.chat("m"); got.status != http.StatusOK {
					t.Errorf("%d %s", got.status, got.body)
				}
			}
			w.await("it is out", func() bool {
				if passive == quick { // else requests would use up the budget of retries
					request()
				}
				return w.find("a/m").Breaker.Openings > 0
			})
			if err := a.ClearFault(); err != nil {
				t.Fatal(err)
			}
			w.await("it is closed", func() bool {
				request()
				return w.find("a/m").Breaker.State == route.Closed
			})
			if v := w.metric("evenkeel_breaker_state", `name="a/m"`); v != 0 {
				t.Errorf("evenkeel_breaker_state is %v", v)
			}
			share := 0
			for range 40 {
				if answered(w.chat("m")) == "a" {
					share++
				}
			}
			if share < 16 || share > 24 {
				t.Errorf("it carries %d of 40", share)
			}
		})
	}
	f("by requests", quick, "")
	f("by both", quick, probes)
	f("by both, after three", quick, probes+", healthy_threshold: 3")
	f("by probes", never, probes)
	f("by probes, after three", never, probes+", healthy_threshold: 3")
}

// TestCase83GhostChecks: reloads that add and remove endpoints, with some traffic all the while, leave no probes, no metrics
// that go on and no goroutines behind. Times are those of the report divided by ten.
func TestCase83GhostChecks(t *testing.T) {
	stays := engine(t, mock.Config{Models: []string{"m"}, OwnedBy: "vllm", Record: 1000})
	var comeAndGo []*mock.Engine
	few := withProbes + fmt.Sprintf("endpoints:\n  stays: {url: %q, kind: vllm}\n", stays.URL())
	many := few
	for i := range 10 {
		e := engine(t, mock.Config{Models: []string{fmt.Sprint("m", i)}, Record: 2000})
		comeAndGo = append(comeAndGo, e)
		many += fmt.Sprintf("  comes%d: {url: %q, kind: vllm}\n", i, e.URL())
	}
	w := start(t, parse(t, few))
	w.serves("m")
	w.await("it is probed", func() bool { return len(probesOf(stays)) > 1 })
	stop := w.traffic(1, 20*time.Millisecond)
	w.await("connections are open", func() bool { return w.metric("evenkeel_requests_total") > 5 })
	before := runtime.NumGoroutine()
	probes := func() []int {
		all := make([]int, len(comeAndGo))
		for i, e := range comeAndGo {
			all[i] = len(e.Requests()) // of any kind: traffic asks for another model
		}
		return all
	}
	series := func() (all []string) {
		for line := range strings.Lines(w.get(w.admin + "/metrics").body) {
			if strings.Contains(line, `="comes`) {
				all = append(all, line)
			}
		}
		return all
	}
	intervals := func(n int) { // by the probes of the one that stays
		since := pagesOf(stays)
		w.await(fmt.Sprint(n, " intervals"), func() bool { return pagesOf(stays) > since+n })
	}
	for range 2 {
		since := probes()
		w.reload(many)
		w.await("who was added is probed", func() bool {
			for i, n := range probes() {
				if n < since[i]+3 {
					return false
				}
			}
			_, n := w.series("evenkeel_probes_total", `name="comes`, `scope="deployment"`)
			return n >= len(comeAndGo)
		})
		for range 6 {
			w.reload(few)
			w.reload(many)
		}
		w.reload(few)
		intervals(2) // what was under way has ended then
		asked, told := probes(), series()
		intervals(3)
		if now := probes(); !slices.Equal(now, asked) {
			t.Errorf("probes of those who were removed go on: %v, then %v", asked, now)
		}
		if now := series(); !slices.Equal(now, told) {
			t.Errorf("metrics of those who were removed go on: %q, then %q", told, now)
		}
		for _, s := range told { // what was counted stays for an hour
			if !strings.HasPrefix(s, "evenkeel_probe") && !strings.HasPrefix(s, "evenkeel_signal_reads_total") {
				t.Errorf("metrics still speak of who was removed: %s", s)
			}
		}
	}
	w.await("no goroutines are left over", func() bool { return runtime.NumGoroutine() <= before+before/10+2 })
	stop()
}

// TestProbesOff: the default asks nobody anything that costs, or whether it is well; without signals it asks nothing at all.
func TestProbesOff(t *testing.T) {
	e := engine(t, mock.Config{Models: []string{"m"}, OwnedBy: "vllm", Record: 1000})
	w := start(t, parse(t, fmt.Sprintf("endpoints: {a: {url: %q}}\n", e.URL())))
	w.serves("m")
	p := probing(w.app.current.Load(), nil, nil)
	if p.Interval != 0 || p.Signals != time.Second || len(p.Endpoints) != 1 || pagesOf(e) != 0 {
		t.Errorf("planned: %+v; %d pages", p, pagesOf(e))
	}
	w = start(t, parse(t, fmt.Sprintf("health_checks: {signal_interval: 0s}\nendpoints: {a: {url: %q}}\n", e.URL())))
	w.serves("m")
	if p := probing(w.app.current.Load(), nil, nil); p.Signals != 0 || len(p.Endpoints) != 0 {
		t.Errorf("planned without signals: %+v", p)
	}
}

// TestSignals: what an engine says of itself is known to the router, to /admin/deployments and to the metrics, with its credential asked for.
func TestSignals(t *testing.T) {
	e := engine(t, mock.Config{Models: []string{"m"}, OwnedBy: "vllm", Record: 1000, KVTokens: 70_000})
	w := start(t, parse(t, "health_checks: {signal_interval: 100ms}\n"+fmt.Sprintf("endpoints: {a: {url: %q, api_key: '${UPSTREAM_KEY}'}}\n", e.URL())))
	w.serves("m")
	w.await("it says how large its cache is", func() bool { return w.find("a/m").Signal.CacheTokens > 60_000 })
	if s := w.find("a/m").Signal; s.Running != 0 || s.Waiting != 0 || s.KVUse != 0 {
		t.Errorf("an idle engine: %+v", s)
	}
	for _, r := range e.Requests() {
		if r.Path == "/metrics" && (r.Header.Get("User-Agent") == "evenkeel-probe" && r.Header.Get("Authorization") != "Bearer "+upstreamKey) {
			t.Errorf("asked with %v", r.Header)
		}
	}
	w.await("the metrics tell of it", func() bool {
		_, running := w.series("evenkeel_engine_requests", `deployment="a/m"`, `state="running"`)
		_, ages := w.series("evenkeel_signal_age_seconds", `deployment="a/m"`)
		return running == 1 && ages == 1 && w.metric("evenkeel_signal_reads_total", `endpoint="a"`, `result="ok"`) > 1
	})
	if err := e.SetFault(mock.Fault{Kind: "status", Status: 500}); err != nil {
		t.Fatal(err)
	}
	w.await("it answers requests with errors, and still says what it has", func() bool { return w.chat("m").status == http.StatusInternalServerError })
	if state := w.find("a/m").Signal; state.At.IsZero() {
		t.Errorf("%+v", state)
	}
}
