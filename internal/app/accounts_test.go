package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/console"
	"evenkeel/internal/exchange"
	"evenkeel/internal/mock"
	"evenkeel/internal/route"
	"evenkeel/internal/strategy"
)

// tally counts what clients saw.
type tally struct {
	mu        sync.Mutex
	byStatus  map[int]int
	cut, left int // streams that ended with an error event; requests that the client gave up
}

func (c *tally) add(f func(*tally)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

// After a mixed run, what clients, engines, metrics, ring and log have counted is the same.
func TestAccountsAgree(t *testing.T) {
	var engines []*mock.Engine
	text := "retry: {budget_ratio: 1}\nendpoints:\n"
	for i := range 3 {
		e := engine(t, mock.Config{Name: fmt.Sprint("e", i), Models: []string{"m", "n"}, InterToken: time.Millisecond, OutputTokens: 4 + i, Seed: uint64(i)})
		engines = append(engines, e)
		text += fmt.Sprintf("  e%d: {url: %q, limits: {in_flight: 4}}\n", i, e.URL())
	}
	w := start(t, parse(t, text+"models: {alias: {providers: [{name: e0, model: m}], fallback_chain: [n]}}"))
	w.serves("alias", "m", "n")
	if err := engines[1].SetFault(mock.Fault{Kind: "status", Status: 503, Rate: 0.3}); err != nil {
		t.Fatal(err)
	}
	if err := engines[2].SetFault(mock.Fault{Kind: "die", After: 3, Rate: 0.2, Path: "/v1/chat"}); err != nil {
		t.Fatal(err)
	}
	seen := &tally{byStatus: map[int]int{}}
	const clients, each = 8, 30
	var crowd sync.WaitGroup
	for c := range clients {
		crowd.Go(func() {
			for i := range each {
				w.mixed(seen, c*each+i)
			}
		})
	}
	crowd.Wait()
	w.quiet()
	const total = clients * each
	w.await("all exchanges are counted", func() bool { return w.metric("evenkeel_requests_total") >= total })
	if seen.byStatus[200] == 0 || seen.left == 0 {
		t.Fatalf("the run was not mixed: %+v", seen)
	}
	t.Logf("clients saw %v, %d cut, %d left", seen.byStatus, seen.cut, seen.left)
	w.agreeWithClients(seen)
	w.agreeWithEngines(engines)
	w.agreeWithRecords(total)
}

// mixed sends the i-th request of a run.
func (w *world) mixed(seen *tally, i int) {
	model := []string{"m", "n", "alias"}[i%3]
	switch i % 10 {
	case 0: // leaves while it is being answered
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/v1/chat/completions", strings.NewReader(body(model, streamed)))
		res, err := w.client.Do(req)
		if err != nil {
			w.t.Errorf("request %d: %v", i, err)
			return
		}
		cancel()
		res.Body.Close()
		seen.add(func(t *tally) { t.left++ })
	case 1, 2, 3, 4:
		a := w.do(http.MethodPost, w.url+"/v1/chat/completions", body(model, streamed))
		seen.add(func(t *tally) {
			t.byStatus[a.status]++
			switch {
			case a.err != nil || a.status == http.StatusOK && !strings.Contains(a.body, "[DONE]") && !strings.Contains(a.body, `"code":"evenkeel_`):
				w.t.Errorf("request %d: neither whole nor told: %v %s", i, a.err, a.body)
			case a.status == http.StatusOK && !strings.Contains(a.body, "[DONE]"):
				t.cut++
			}
		})
	case 5:
		a := w.do(http.MethodPost, w.url+"/v1/messages", fmt.Sprintf(`{"model":%q,"max_tokens":3,"messages":[{"role":"user","content":%q}]}`, model, prompt))
		seen.add(func(t *tally) { t.byStatus[a.status]++ })
	case 6:
		a := w.do(http.MethodPost, w.url+"/v1/embeddings", fmt.Sprintf(`{"model":%q,"input":%q}`, model, prompt))
		seen.add(func(t *tally) { t.byStatus[a.status]++ })
	default:
		a := w.chat(model)
		seen.add(func(t *tally) { t.byStatus[a.status]++ })
	}
}

func (w *world) agreeWithClients(seen *tally) {
	w.t.Helper()
	answered := 0
	for _, n := range seen.byStatus {
		answered += n
	}
	if got := w.metric("evenkeel_requests_total"); int(got) != answered+seen.left {
		w.t.Errorf("evenkeel_requests_total is %v, clients sent %d", got, answered+seen.left)
	}
	// Who left may have been answered whole before that was noticed.
	complete, gone := w.metric("evenkeel_requests_total", `result="complete"`), w.metric("evenkeel_requests_total", `result="client_gone"`)
	cut := w.metric("evenkeel_requests_total", `result="cut"`)
	if sum := int(complete + gone + cut); sum < seen.byStatus[200] || sum > seen.byStatus[200]+seen.left {
		w.t.Errorf("%v complete, %v gone and %v cut; clients saw %d with status 200 and left %d", complete, gone, cut, seen.byStatus[200], seen.left)
	}
	if int(cut) < seen.cut || int(cut) > seen.cut+seen.left {
		w.t.Errorf("%v requests were cut, clients saw %d", cut, seen.cut)
	}
	if inFlight, queued := w.metric("evenkeel_in_flight"), w.metric("evenkeel_queue_depth"); inFlight != 0 || queued != 0 {
		w.t.Errorf("%v in flight and %v queued at the end", inFlight, queued)
	}
}

func (w *world) agreeWithEngines(engines []*mock.Engine) {
	w.t.Helper()
	for i, e := range engines {
		w.await("the engine is idle", func() bool {
			s := e.Stats()
			return s.Started == s.Completed+s.Aborted+s.Cut
		})
		s := e.Stats()
		attempts := 0.0
		for _, model := range []string{"m", "n"} {
			attempts += w.metric("evenkeel_attempts_total", fmt.Sprintf(`deployment="e%d/%s"`, i, model))
		}
		// An attempt that was cancelled at once, or met a refused connection, may not have reached the engine.
		var unseen float64
		for _, class := range []string{"client_gone", "connect", "stale", "reset"} {
			for _, model := range []string{"m", "n"} {
				unseen += w.metric("evenkeel_attempts_total", fmt.Sprintf(`deployment="e%d/%s"`, i, model), fmt.Sprintf("class=%q", class))
			}
		}
		if n := float64(s.Started); n > attempts || n < attempts-unseen {
			w.t.Errorf("engine %d saw %v requests, %v attempts were counted (%v of them perhaps unseen)", i, n, attempts, unseen)
		}
	}
}

// agreeWithRecords compares the metrics with the ring and the log, which has one line for each exchange.
func (w *world) agreeWithRecords(exchanges int) {
	w.t.Helper()
	records := w.app.ring.Last(10 * exchanges)
	attempts := 0
	tokens := map[string]int{}
	for _, r := range records {
		attempts += len(r.Attempts)
		for _, a := range r.Attempts {
			tokens["output"] += a.Outcome.OutputTokens
			tokens["input"] += a.Outcome.InputTokens - a.Outcome.CachedTokens
		}
	}
	if n := len(w.lines("exchange")); n != exchanges || len(records) != exchanges {
		w.t.Errorf("%d lines of the log and %d records for %d exchanges", n, len(records), exchanges)
	}
	if n := w.metric("evenkeel_attempts_total"); int(n) != attempts {
		w.t.Errorf("evenkeel_attempts_total is %v, the records hold %d", n, attempts)
	}
	for kind, want := range tokens {
		if n := w.metric("evenkeel_tokens_total", fmt.Sprintf("kind=%q", kind)); int(n) != want {
			w.t.Errorf("%v tokens of kind %s are counted, the records hold %d", n, kind, want)
		}
	}
	ids := map[string]int{}
	for _, l := range w.lines("exchange") {
		ids[l["id"].(string)]++
	}
	for _, r := range records {
		if ids[r.Facts.ID] != 1 {
			w.t.Errorf("exchange %s has %d lines in the log", r.Facts.ID, ids[r.Facts.ID])
		}
	}
}

// Where engines report usage, tokens are counted exactly as they count them.
func TestTokensAreCountedAsReported(t *testing.T) {
	a := engine(t, mock.Config{Name: "a", Models: []string{"m"}, OutputTokens: 7})
	b := engine(t, mock.Config{Name: "b", Models: []string{"m"}, OutputTokens: 11})
	w := start(t, parse(t, fmt.Sprintf("strategy: round_robin\nendpoints: {a: {url: %q}, b: {url: %q}}\nmodels: {m: {providers: [{name: a}, {name: b}]}}", a.URL(), b.URL())))
	const rounds = 12
	for i := range rounds {
		long := strings.Repeat("word ", i*10)
		for _, c := range []struct{ path, body string }{
			{"/v1/chat/completions", fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, long+prompt)},
			{"/v1/chat/completions", fmt.Sprintf(`{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":%q}]}`, long+prompt)},
			{"/v1/completions", fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":%d}`, long+prompt, i+1)},
			{"/v1/messages", fmt.Sprintf(`{"model":"m","max_tokens":5,"stream":true,"messages":[{"role":"user","content":%q}]}`, long+prompt)},
			{"/v1/responses", fmt.Sprintf(`{"model":"m","stream":%v,"input":%q}`, i%2 == 0, long+prompt)},
			{"/v1/embeddings", fmt.Sprintf(`{"model":"m","input":%q}`, long+prompt)},
		} {
			if got := w.do(http.MethodPost, w.url+c.path, c.body); got.status != http.StatusOK || got.err != nil {
				t.Fatalf("%s: %d %v %s", c.path, got.status, got.err, got.body)
			}
		}
	}
	w.await("all are counted", func() bool { return w.metric("evenkeel_requests_total") == rounds*6 })
	for _, e := range []*mock.Engine{a, b} {
		label := fmt.Sprintf(`deployment="%s/m"`, e.Name())
		s := e.Stats()
		if s.Started == 0 {
			t.Errorf("%s got no request", e.Name())
		}
		if n := w.metric("evenkeel_tokens_total", label, `source="reported"`, `kind="output"`); int64(n) != s.OutputTokens {
			t.Errorf("%s: %v output tokens are counted, the engine sent %d", e.Name(), n, s.OutputTokens)
		}
		if n := w.metric("evenkeel_tokens_total", label, `source="reported"`, `kind="input"`); int64(n) != s.PromptTokens {
			t.Errorf("%s: %v input tokens are counted, the engine read %d", e.Name(), n, s.PromptTokens)
		}
		if n := w.metric("evenkeel_tokens_total", label, `source="estimated"`); n != 0 {
			t.Errorf("%s: %v tokens are estimates", e.Name(), n)
		}
	}
}

// For every strategy, what was decided live can be decided again from its record, and from what /explain says of it.
func TestDecisionsRecompute(t *testing.T) {
	for _, name := range strategy.Names() {
		t.Run(name, func(t *testing.T) {
			text := "retry: {budget_ratio: 1}\nstrategy: " + name + "\nendpoints:\n"
			var last *mock.Engine
			for i := range 4 {
				last = engine(t, mock.Config{Name: fmt.Sprint("e", i), Models: []string{"m"}, InterToken: time.Duration(i) * time.Millisecond, OutputTokens: 5})
				text += fmt.Sprintf("  e%d: {url: %q, weight: %v, limits: {in_flight: 3}}\n", i, last.URL(), []float64{1, 0.5, 2, 1}[i])
			}
			w := start(t, parse(t, text))
			w.serves("m")
			w.await("all serve", func() bool { return len(w.app.router.View(time.Now()).Deployments) == 4 })
			var crowd sync.WaitGroup
			for c := range 6 {
				crowd.Go(func() {
					for i := range 8 {
						var session []string
						if c%2 == 0 { // these are kept together
							session = []string{"X-Session-Id", fmt.Sprint(c)}
						}
						w.do(http.MethodPost, w.url+"/v1/chat/completions", body("m", fmt.Sprintf(`,"stream":%v,"max_tokens":%d`, (c+i)%2 == 0, 1+(7*c+i)%40)), session...)
						if c == 0 && i == 3 {
							last.Kill()
						}
					}
				})
			}
			crowd.Wait()
			w.quiet()
			w.await("all are recorded", func() bool { return len(w.app.ring.Last(100)) == 48 })
			w.recompute(name)
		})
	}
}

func (w *world) recompute(name string) {
	w.t.Helper()
	built, err := Strategy(config.Strategy{Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	decisions, choices := 0, map[string]bool{}
	for _, r := range w.app.ring.Last(100) {
		told := w.explained(r)
		for i := range r.Attempts {
			d := r.Attempts[i].Decision
			decisions++
			choices[d.Chosen] = true
			if got := d.Recompute(built, &r.Facts); got != d.Chosen || got != r.Attempts[i].Deployment {
				w.t.Errorf("%s: attempt %d went to %s, its record gives %s", r.Facts.ID, i, r.Attempts[i].Deployment, got)
			}
			again, facts := retold(told, told.Attempts[i].Decision)
			if got := again.Recompute(built, &facts); got != d.Chosen {
				w.t.Errorf("%s: attempt %d went to %s, what /explain says of it gives %s", r.Facts.ID, i, d.Chosen, got)
			}
		}
	}
	keeps, ok := built.(route.Steady)
	if decisions < 48 || len(choices) < 3 && !(ok && keeps.Steady()) {
		w.t.Errorf("%d decisions chose %v: not the traffic that was meant", decisions, choices)
	}
}

// explained is what /explain/ID says, as JSON.
func (w *world) explained(r *exchange.Record) *console.Explanation {
	w.t.Helper()
	var e console.Explanation
	if err := json.Unmarshal([]byte(w.get(w.admin+"/explain/"+r.Facts.ID).body), &e); err != nil {
		w.t.Fatal(err)
	}
	return &e
}

// retold makes a decision of what was told about it.
func retold(e *console.Explanation, d *console.Decision) (*route.Decision, route.Facts) {
	again := &route.Decision{
		At: e.Arrived.Add(time.Duration(d.AtSeconds * float64(time.Second))), Epoch: d.Epoch, Seed: d.Seed, Draw: d.Draw, Model: d.Model,
		Strategy: d.Strategy, Chosen: d.Chosen, Trial: d.Trial, Eligible: d.Eligible, RunTotal: d.RunTotal, Prompt: d.PromptTokens, Output: d.OutputTokens, Answer: d.AnswerTokens, Opening: d.Opening,
	}
	if o := d.Outlook; o != nil {
		again.Outlook = route.Outlook{Rate: o.Rate, Prefill: o.PrefillSeconds, Strangers: o.StrangersShare, Error: o.Error, WholeError: o.WholeError, Churn: o.Churn}
	}
	for _, c := range d.Candidates {
		var forecast route.Forecast
		if v := c.Forecast; v != nil {
			forecast = route.Forecast{Cached: v.CachedTokens, Wait: v.WaitSeconds, Prefill: v.PrefillSeconds, Common: v.CommonSeconds, Answers: v.Answers, Fill: v.CacheShare, Own: v.OwnCacheShare, Used: v.LimitShare, Token: v.TokenSeconds, Slower: v.SlowerSeconds, Dollars: v.Dollars}
		}
		healthy := route.Always
		if c.WellSeconds != nil {
			healthy = time.Duration(*c.WellSeconds * float64(time.Second))
		}
		again.Candidates = append(again.Candidates, route.Candidate{
			P95: c.P95Seconds, Penalty: c.Penalty, Share: cmp.Or(c.Share, 1), Healthy: healthy, Forecast: forecast,
			ID: c.Deployment, Weight: c.Weight, InFlight: c.InFlight, Tokens: c.Tokens, Work: c.WorkTokens, TTFT: c.TTFTSeconds,
			Samples: c.Samples, LastPick: c.LastPick, RunPicks: c.RunPicks, Cut: route.Cut(c.Cut), CutBy: c.CutBy,
		})
	}
	f := e.Facts
	return again, route.Facts{
		ID: e.ID, Seed: f.Seed, Model: f.Model, API: f.API, Tenant: f.Tenant, Arrived: e.Arrived, Stream: f.Stream,
		PromptBytes: f.PromptBytes, MaxOutput: f.MaxOutputTokens, ClientRetry: f.ClientRetry, Pin: f.Pin, ExcludeNames: f.Exclude,
	}
}
