package telemetry

import (
	"fmt"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is what Metrics look at; tests change it.
type world struct {
	view   route.View
	models []string
	now    time.Time
}

func newMetrics(t testing.TB, w *world) *Metrics {
	t.Helper()
	m, err := New(Options{
		View:    func() route.View { return w.view },
		Known:   func(model string) bool { return slices.Contains(w.models, model) },
		Version: "v0.1.0",
		Now:     func() time.Time { return w.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func scrape(t testing.TB, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// series returns the lines of a scrape that begin with a prefix, sorted.
func series(t testing.TB, m *Metrics, prefix string) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(scrape(t, m)) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	slices.Sort(lines)
	return lines
}

func wantSeries(t *testing.T, m *Metrics, prefix string, want ...string) {
	t.Helper()
	if got := series(t, m, prefix); !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %s\nwant %s", prefix, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// failedOver is a request whose first attempt could not connect and whose second streamed an answer.
func failedOver() *exchange.Record {
	return &exchange.Record{
		Facts: route.Facts{ID: "a", Model: "large", API: "chat", Stream: true}, Model: "large", Result: exchange.Complete, Status: 200,
		Attempts: []exchange.Attempt{
			{Model: "large", Deployment: "gpu-1/large", Outcome: route.Outcome{Verdict: route.DeploymentFault, Class: "connect", TTFT: time.Second}},
			{Model: "large", Deployment: "gpu-2/large", Outcome: route.Outcome{
				Verdict: route.Success, Status: 200, TTFT: 300 * time.Millisecond, ITL: 20 * time.Millisecond,
				InputTokens: 1000, CachedTokens: 600, OutputTokens: 50, Reported: true,
			}},
		},
	}
}

func TestObserve(t *testing.T) {
	m := newMetrics(t, &world{models: []string{"large", "small"}})
	m.Observe(failedOver(), 200*time.Microsecond)
	fellBack := &exchange.Record{
		Facts: route.Facts{Model: "large", API: "messages"}, Model: "small", Depth: 1, Result: exchange.UpstreamError, Status: 529,
		Attempts: []exchange.Attempt{{Model: "small", Deployment: "api/small", Outcome: route.Outcome{
			Verdict: route.DeploymentFault, Class: "overloaded", Status: 529, InputTokens: 70,
		}}},
	}
	m.Observe(fellBack, 0)
	m.Observe(fellBack, -1)

	wantSeries(t, m, "evenkeel_requests_total",
		`evenkeel_requests_total{api="chat",model="large",result="complete",status="200"} 1`,
		`evenkeel_requests_total{api="messages",model="large",result="upstream_error",status="529"} 2`)
	wantSeries(t, m, "evenkeel_attempts_total",
		`evenkeel_attempts_total{class="connect",deployment="gpu-1/large",model="large",result="deployment_fault"} 1`,
		`evenkeel_attempts_total{class="none",deployment="gpu-2/large",model="large",result="success"} 1`,
		`evenkeel_attempts_total{class="overloaded",deployment="api/small",model="small",result="deployment_fault"} 2`)
	wantSeries(t, m, "evenkeel_tokens_total",
		`evenkeel_tokens_total{deployment="api/small",kind="input",model="small",source="estimated"} 140`,
		`evenkeel_tokens_total{deployment="gpu-2/large",kind="cached_input",model="large",source="reported"} 600`,
		`evenkeel_tokens_total{deployment="gpu-2/large",kind="input",model="large",source="reported"} 400`,
		`evenkeel_tokens_total{deployment="gpu-2/large",kind="output",model="large",source="reported"} 50`)
	wantSeries(t, m, "evenkeel_time_to_first_token_seconds_sum",
		`evenkeel_time_to_first_token_seconds_sum{deployment="gpu-2/large",model="large"} 0.3`)
	wantSeries(t, m, "evenkeel_time_per_output_token_seconds_sum",
		`evenkeel_time_per_output_token_seconds_sum{deployment="gpu-2/large",model="large"} 0.02`)
	wantSeries(t, m, `evenkeel_fallback_depth_bucket{model="large",le="0"}`, `evenkeel_fallback_depth_bucket{model="large",le="0"} 1`)
	wantSeries(t, m, `evenkeel_fallback_depth_bucket{model="large",le="1"}`, `evenkeel_fallback_depth_bucket{model="large",le="1"} 3`)
	wantSeries(t, m, "evenkeel_overhead_seconds_count", "evenkeel_overhead_seconds_count 1")
	wantSeries(t, m, "evenkeel_overhead_seconds_sum", "evenkeel_overhead_seconds_sum 0.0002")
	wantSeries(t, m, "evenkeel_build_info", fmt.Sprintf("evenkeel_build_info{go_version=%q,version=\"v0.1.0\"} 1", goVersion(t, m)))
	for _, prefix := range []string{"go_goroutines", "process_cpu_seconds_total"} {
		if len(series(t, m, prefix)) != 1 {
			t.Errorf("no %s", prefix)
		}
	}
}

func goVersion(t *testing.T, m *Metrics) string {
	line := strings.Join(series(t, m, "go_info"), "")
	_, rest, _ := strings.Cut(line, `version="`)
	version, _, ok := strings.Cut(rest, `"`)
	if !ok {
		t.Fatalf("go_info is %q", line)
	}
	return version
}

// Whatever clients and engines send, the number of series is bounded and no text breaks a scrape.
func TestLabelsAreBounded(t *testing.T) {
	w := &world{models: []string{"large"}}
	m := newMetrics(t, w)
	for i := range 1000 {
		m.Observe(&exchange.Record{Facts: route.Facts{Model: fmt.Sprintf("guess-%d\xff", i), API: "chat"}, Result: exchange.Refused, Status: 404}, 0)
		m.Observe(&exchange.Record{Facts: route.Facts{Model: "large", API: "chat"}, Result: exchange.UpstreamError, Status: 600 + i}, 0)
	}
	m.Observe(&exchange.Record{Facts: route.Facts{Model: "large", API: "chat"}, Result: exchange.ClientGone}, 0)
	wantSeries(t, m, "evenkeel_requests_total",
		`evenkeel_requests_total{api="chat",model="large",result="client_gone",status="none"} 1`,
		`evenkeel_requests_total{api="chat",model="large",result="upstream_error",status="other"} 1000`,
		`evenkeel_requests_total{api="chat",model="other",result="refused",status="404"} 1000`)
	wantSeries(t, m, "evenkeel_fallback_depth_count",
		`evenkeel_fallback_depth_count{model="large"} 1001`, `evenkeel_fallback_depth_count{model="other"} 1000`)

	odd := failedOver()
	odd.Facts.Model, odd.Attempts[0].Model, odd.Attempts[0].Deployment = "odd\xff", "odd\xff", "gpu-1/odd\xff"
	m.Observe(odd, 0)
	w.view = route.View{
		Deployments: []route.DeploymentView{{ID: "gpu-1/odd\xff"}, {ID: "gpu-1/odd\xfe"}},
		Waiting:     map[string]int{"odd\xff": 1},
	}
	wantSeries(t, m, `evenkeel_in_flight{deployment="gpu-1`, "evenkeel_in_flight{deployment=\"gpu-1/odd\uFFFD\"} 0")
	// A model that was dispatched under its own name was known then, though it left the fleet meanwhile.
	wantSeries(t, m, `evenkeel_requests_total{api="chat",model="odd`,
		"evenkeel_requests_total{api=\"chat\",model=\"odd\uFFFD\",result=\"complete\",status=\"200\"} 1")
}

func TestStateIsReadAtScrapeTime(t *testing.T) {
	w := &world{models: []string{"large", "small"}}
	m := newMetrics(t, w)
	w.view = route.View{
		Deployments: []route.DeploymentView{
			{ID: "gpu-1/large", URL: "http://a", InFlight: 3},
			{ID: "gpu-2/large", URL: "http://old", InFlight: 2, Breaker: route.BreakerView{State: route.Open, Openings: 2}, Drifts: 1,
				Foresight: route.Foresight{Error: 0.25, Answers: 4, Regret: 500 * time.Millisecond, Choices: 3}},
			{ID: "gpu-2/large", URL: "http://new", InFlight: 4, Member: true, Breaker: route.BreakerView{State: route.HalfOpen, Openings: 3}, Drifts: 1,
				Foresight: route.Foresight{Error: 0.5, Answers: 1}},
		},
		Scopes:  []route.ScopeView{{Kind: route.EndpointScope, Name: "gpu-1"}, {Kind: route.CredentialScope, Name: "key", Breaker: route.BreakerView{State: route.HalfOpen}}},
		Waiting: map[string]int{"large": 7},
	}
	m.Observe(&exchange.Record{Facts: route.Facts{Model: "small"}}, 0)
	m.Observe(&exchange.Record{Facts: route.Facts{Model: "unheard-of"}}, 0)
	wantSeries(t, m, "evenkeel_in_flight{", `evenkeel_in_flight{deployment="gpu-1/large"} 3`, `evenkeel_in_flight{deployment="gpu-2/large"} 6`)
	wantSeries(t, m, "evenkeel_queue_depth{", `evenkeel_queue_depth{model="large"} 7`, `evenkeel_queue_depth{model="small"} 0`)
	wantSeries(t, m, "evenkeel_breaker_state{",
		`evenkeel_breaker_state{name="gpu-1",scope="endpoint"} 0`,
		`evenkeel_breaker_state{name="gpu-1/large",scope="deployment"} 0`,
		`evenkeel_breaker_state{name="gpu-2/large",scope="deployment"} 5`,
		`evenkeel_breaker_state{name="key",scope="credential"} 3`)
	wantSeries(t, m, "evenkeel_breaker_openings_total{name=\"gpu-2", `evenkeel_breaker_openings_total{name="gpu-2/large",scope="deployment"} 5`)
	wantSeries(t, m, "evenkeel_served_model_changes_total{",
		`evenkeel_served_model_changes_total{deployment="gpu-1/large"} 0`,
		`evenkeel_served_model_changes_total{deployment="gpu-2/large"} 2`)
	wantSeries(t, m, "evenkeel_forecast_error{", `evenkeel_forecast_error{deployment="gpu-2/large"} 0.5`)
	wantSeries(t, m, "evenkeel_regret_seconds{", `evenkeel_regret_seconds{deployment="gpu-2/large"} 0.5`)

	w.view = route.View{Deployments: w.view.Deployments[:1]}
	wantSeries(t, m, "evenkeel_in_flight{", `evenkeel_in_flight{deployment="gpu-1/large"} 3`)
	wantSeries(t, m, "evenkeel_breaker_state{", `evenkeel_breaker_state{name="gpu-1/large",scope="deployment"} 0`)
	wantSeries(t, m, "evenkeel_queue_depth{", `evenkeel_queue_depth{model="small"} 0`)
}

// Replicas with names of their own come and go; what left an hour ago must not be in memory for ever.
func TestSeriesOfTheDepartedAreForgotten(t *testing.T) {
	here := route.View{Deployments: []route.DeploymentView{{ID: "gpu-1/large"}, {ID: "gpu-2/large"}}}
	w := &world{models: []string{"large"}, now: start, view: here}
	m := newMetrics(t, w)
	m.Observe(failedOver(), 0)
	total := len(series(t, m, "evenkeel_"))

	w.view.Deployments = here.Deployments[:1]
	for _, after := range []time.Duration{0, forgetAfter - time.Second} {
		w.now = start.Add(after)
		if got := series(t, m, `evenkeel_attempts_total`); len(got) != 2 {
			t.Errorf("after %v: %q", after, got)
		}
	}
	w.view = here // it comes back: the hour starts again
	w.now = start.Add(forgetAfter + time.Second)
	if got := len(series(t, m, "evenkeel_")); got != total {
		t.Errorf("back in the fleet: %d series, want %d", got, total)
	}
	w.view.Deployments = here.Deployments[:1]
	scrape(t, m)
	w.now = w.now.Add(forgetAfter)
	scrape(t, m)
	for _, prefix := range []string{"attempts_total", "tokens_total", "time_to_first_token_seconds", "time_per_output_token_seconds"} {
		for _, line := range series(t, m, "evenkeel_"+prefix) {
			if strings.Contains(line, "gpu-2") {
				t.Errorf("still there: %s", line)
			}
		}
	}
	if len(*m.ttft.known.Load())+len(*m.itl.known.Load())+len(*m.tokens.known.Load()) != 0 || len(m.absence.since) != 0 {
		t.Errorf("memory is kept: %v %v %v %v", *m.ttft.known.Load(), *m.itl.known.Load(), *m.tokens.known.Load(), m.absence.since)
	}
	m.Observe(failedOver(), 0) // and it can return
	wantSeries(t, m, `evenkeel_attempts_total{class="none"`,
		`evenkeel_attempts_total{class="none",deployment="gpu-2/large",model="large",result="success"} 1`)

	w.models = nil
	scrape(t, m)
	w.now = w.now.Add(forgetAfter)
	scrape(t, m)
	wantSeries(t, m, "evenkeel_requests_total")
	wantSeries(t, m, "evenkeel_fallback_depth")
}

func TestReloaded(t *testing.T) {
	m := newMetrics(t, &world{})
	f := func(ok, at string) {
		t.Helper()
		wantSeries(t, m, "evenkeel_config_last_reload_successful ", "evenkeel_config_last_reload_successful "+ok)
		wantSeries(t, m, "evenkeel_config_last_reload_success_timestamp_seconds ", "evenkeel_config_last_reload_success_timestamp_seconds "+at)
	}
	f("0", "0")
	m.Reloaded(true, time.UnixMilli(1234500))
	f("1", "1234.5")
	m.Reloaded(false, time.UnixMilli(9000000))
	f("0", "1234.5")
}

func TestOnlyMetricsAreAnswered(t *testing.T) {
	h := newMetrics(t, &world{}).Handler()
	f := func(method, target string, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
		if has := strings.Contains(w.Body.String(), "evenkeel_build_info"); w.Code != want || has != (want == 200) {
			t.Errorf("%s %s: %d, metrics %v, want %d", method, target, w.Code, has, want)
		}
	}
	f("GET", "/metrics", 200)
	f("GET", "/metrics?name=x", 200)
	f("HEAD", "/metrics", 200)
	for _, target := range []string{"/", "/metrics/", "/explain/last", "/debug/pprof/heap", "/livez", "/v1/models"} {
		f("GET", target, 404)
	}
	f("POST", "/metrics", 404)
}

func TestNewNeedsItsSources(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("New accepted options without View and Known")
	}
}

func TestNamesFollowConventions(t *testing.T) {
	w := &world{models: []string{"large"}, view: route.View{
		Deployments: []route.DeploymentView{{ID: "gpu-1/large"}}, Waiting: map[string]int{"large": 1},
	}}
	m := newMetrics(t, w)
	m.Observe(failedOver(), time.Millisecond)
	problems, err := promlint.New(strings.NewReader(scrape(t, m))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestScrapesTakeTurns: hundreds of scrapes at once took the processors from requests for seconds.
func TestScrapesTakeTurns(t *testing.T) {
	var running, overlaps atomic.Int32
	m, err := New(Options{Known: func(string) bool { return true }, View: func() route.View {
		if running.Add(1) > 1 {
			overlaps.Add(1)
		}
		for range 10 {
			runtime.Gosched()
		}
		running.Add(-1)
		return route.View{}
	}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				m.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
			}
		})
	}
	wg.Wait()
	if n := overlaps.Load(); n > 0 {
		t.Errorf("%d of 160 scrapes began while another was being gathered", n)
	}
}

func TestConcurrentUse(t *testing.T) {
	w := &world{models: []string{"large"}, now: start}
	m := newMetrics(t, w)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 200 {
				rec := failedOver()
				rec.Attempts[0].Deployment = fmt.Sprintf("gpu-%d/large", i%20)
				m.Observe(rec, time.Millisecond)
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			scrape(t, m)
		}
	})
	wg.Wait()
	wantSeries(t, m, "evenkeel_requests_total", `evenkeel_requests_total{api="chat",model="large",result="complete",status="200"} 800`)
}

func TestObserveDoesNotAllocate(t *testing.T) {
	m := newMetrics(t, &world{models: []string{"large"}})
	rec := failedOver()
	m.Observe(rec, time.Millisecond)
	if got := testing.AllocsPerRun(1000, func() { m.Observe(rec, time.Millisecond) }); got > 0 {
		t.Errorf("Observe allocates %v times", got)
	}
}

func BenchmarkObserve(b *testing.B) {
	m := newMetrics(b, &world{models: []string{"large"}})
	rec := failedOver()
	rec.Attempts = rec.Attempts[1:]
	b.ReportAllocs()
	for b.Loop() {
		m.Observe(rec, time.Millisecond)
	}
}

// A single endpoint also serves requests that name no model.
func TestRequestsWithoutAModel(t *testing.T) {
	m := newMetrics(t, &world{view: route.View{Waiting: map[string]int{"": 2}}})
	m.Observe(&exchange.Record{
		Facts: route.Facts{API: "other"}, Result: exchange.Complete, Status: 200,
		Attempts: []exchange.Attempt{{Deployment: "e/", Outcome: route.Outcome{Verdict: route.Success, Status: 200, InputTokens: 3}}},
	}, 0)
	for _, line := range series(t, m, "evenkeel_") {
		if strings.Contains(line, `model=""`) {
			t.Errorf("exposed: %s", line)
		}
	}
	wantSeries(t, m, "evenkeel_requests_total", `evenkeel_requests_total{api="other",model="other",result="complete",status="200"} 1`)
	wantSeries(t, m, "evenkeel_tokens_total", `evenkeel_tokens_total{deployment="e/",kind="input",model="other",source="estimated"} 3`)
	wantSeries(t, m, "evenkeel_queue_depth", `evenkeel_queue_depth{model="other"} 2`)
}
