package app

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/discovery"
	timing "evenkeel/internal/engine"
	"evenkeel/internal/mock"
	"evenkeel/internal/route"
)

// ranked is an engine of so many data-parallel ranks that passes for vLLM.
func ranked(t *testing.T, ranks int) *mock.Engine {
	t.Helper()
	preset, err := timing.Preset("vllm-8192")
	if err != nil {
		t.Fatal(err)
	}
	return engine(t, mock.Config{Name: "e", Models: []string{"m"}, Engine: &preset, DataParallel: ranks, OutputTokens: 4, OwnedBy: "vllm", Record: 1000})
}

// ids are the deployments of the fleet.
func (w *world) ids() (list []string) {
	for _, d := range w.app.router.View(time.Now()).Deployments {
		if d.Member && d.Model != "" {
			list = append(list, d.ID)
		}
	}
	return list
}

// TestRanksKeepConversations: conversations find as much in the caches of a server's ranks as in those of as many servers, and much less
// where the server chooses.
func TestRanksKeepConversations(t *testing.T) {
	for _, strategy := range []string{"predicted_wait", "least_connections"} {
		settings := "strategy: " + strategy
		_, apart := talked(t, settings)
		server := func(ranks string) float64 {
			w := start(t, parse(t, fmt.Sprintf("%s\nendpoints: {gpu: {url: %q, kind: vllm%s}}", settings, ranked(t, 4).URL(), ranks)))
			w.serves("m")
			return w.converse()
		}
		ranks, together := server(", data_parallel: 4"), server("")
		t.Logf("%s: cached: %.3f of all prompt tokens of four servers, %.3f of four ranks, %.3f where the server chooses", strategy, apart, ranks, together)
		if ranks < apart-0.03 || together > 0.7*ranks {
			t.Errorf("%s: cached: %.3f of all prompt tokens of four servers, %.3f of four ranks, %.3f where the server chooses", strategy, apart, ranks, together)
		}
	}
}

// TestRanks: each is a deployment, requests say which one whatever their client says, one page tells of them all, and the number changes
// with the configuration.
func TestRanks(t *testing.T) {
	e := ranked(t, 4)
	config := func(ranks int) string {
		return fmt.Sprintf("strategy: round_robin\nendpoints: {gpu: {url: %q, kind: vllm, data_parallel: %d}}", e.URL(), ranks)
	}
	w := start(t, parse(t, config(4)))
	w.serves("m")
	if ids, want := w.ids(), []string{"gpu#0/m", "gpu#1/m", "gpu#2/m", "gpu#3/m"}; !slices.Equal(ids, want) {
		t.Fatalf("deployments %v, want %v", ids, want)
	}
	for i := range 8 {
		pin := []string{"X-Data-Parallel-Rank", "2"}
		if i >= 4 {
			pin = append(pin, "X-Evenkeel-Pin", "gpu#1")
		}
		if got := w.do(http.MethodPost, w.url+"/v1/chat/completions", body("m", ""), pin...); got.status != http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	var sent []string
	for _, r := range e.Requests() {
		switch {
		case r.Method == http.MethodPost:
			sent = append(sent, strings.Join(r.Header.Values("X-Data-Parallel-Rank"), ","))
		case r.Header.Get("X-Data-Parallel-Rank") != "":
			t.Errorf("%s %s names a rank", r.Method, r.Path)
		}
	}
	if slices.Sort(sent[:4]); !slices.Equal(sent, []string{"0", "1", "2", "3", "1", "1", "1", "1"}) {
		t.Errorf("ranks %v", sent)
	}
	w.await("each rank was heard of", func() bool {
		for _, d := range w.app.router.View(time.Now()).Deployments {
			if strings.Contains(d.ID, "#") && d.Signal.CacheTokens != 432_000 {
				return false
			}
		}
		return true
	})
	if err := w.app.Reload(parse(t, config(2))); err != nil {
		t.Fatal(err)
	}
	if ids, want := w.ids(), []string{"gpu#0/m", "gpu#1/m"}; !slices.Equal(ids, want) {
		t.Errorf("deployments %v, want %v", ids, want)
	}
	if log := w.log.text(); !strings.Contains(log, "more data-parallel ranks than are configured") {
		t.Errorf("no warning:\n%s", log)
	}
	if err := w.app.Reload(parse(t, config(1))); err != nil {
		t.Fatal(err)
	}
	if ids, want := w.ids(), []string{"gpu/m"}; !slices.Equal(ids, want) || !strings.Contains(w.log.text(), "with data_parallel set to their number") {
		t.Errorf("deployments %v, want %v", ids, want)
	}
}

// TestFewerRanksThanConfigured: nothing is sent to those that are not there, and the log says so; where the engine tells nothing, what it
// refuses is taken for what it is.
func TestFewerRanksThanConfigured(t *testing.T) {
	e := ranked(t, 2)
	w := start(t, parse(t, fmt.Sprintf("endpoints: {gpu: {url: %q, kind: vllm, data_parallel: 4}}", e.URL())))
	w.serves("m")
	w.await("the two that there are remain, and the log says so", func() bool {
		return slices.Equal(w.ids(), []string{"gpu#0/m", "gpu#1/m"}) && strings.Contains(w.log.text(), "fewer data-parallel ranks than are configured")
	})
	if err := e.SetFault(mock.Fault{Kind: "status", Status: http.StatusNotFound, Path: "/metrics"}); err != nil {
		t.Fatal(err)
	}
	w = start(t, parse(t, fmt.Sprintf("strategy: round_robin\nendpoints: {gpu: {url: %q, kind: vllm, data_parallel: 4, models: [m]}}", e.URL())))
	for range 8 {
		if got := w.do(http.MethodPost, w.url+"/v1/chat/completions", body("m", "")); got.status != http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	for _, d := range w.app.router.View(time.Now()).Deployments {
		if open := d.Breaker.State.Out(); open != (d.ID == "gpu#2/m" || d.ID == "gpu#3/m") {
			t.Errorf("%s: %v, %s", d.ID, d.Breaker.State, d.Breaker.Reason)
		}
	}
}

// TestRankOfAClient: where the server chooses, a client may choose in its stead; what is refused then is its own fault.
func TestRankOfAClient(t *testing.T) {
	e := ranked(t, 2)
	w := start(t, parse(t, fmt.Sprintf("endpoints: {gpu: {url: %q, kind: vllm}}", e.URL())))
	w.serves("m")
	for rank, want := range map[string]int{"1": http.StatusOK, "2": http.StatusBadRequest} {
		if got := w.chat("m", "X-Data-Parallel-Rank", rank); got.status != want {
			t.Errorf("rank %s: %d %s, want %d", rank, got.status, got.body, want)
		}
	}
	if d := w.app.router.View(time.Now()).Deployments[0]; d.Breaker.State.Out() || d.Totals.Faults != 0 {
		t.Errorf("%s: %+v", d.ID, d.Breaker)
	}
}

// TestRanksOfACore: what a simulation knows of them is what serve would.
func TestRanksOfACore(t *testing.T) {
	core, err := NewCore(parse(t, `
endpoints: {gpu: {url: "http://gpu:8000", kind: vllm, data_parallel: 2, weight: 3, limits: {in_flight: 8}, api_key: "${UPSTREAM_KEY}"}}
models: {chat: {providers: [{name: gpu, model: m, price: {input: 2}, limits: {in_flight: 5}}]}}`), Found{KVTokens: func(string) int { return 1000 }})
	if err != nil {
		t.Fatal(err)
	}
	pool := core.Pools[slices.IndexFunc(core.Pools, func(p route.PoolSpec) bool { return p.Model == "chat" })]
	for i, d := range pool.Deployments {
		rank := fmt.Sprint(i)
		if d.ID != "gpu#"+rank+"/m" || d.Rank != rank || d.Endpoint != "gpu" || d.Weight != 3 || d.Limits.InFlight != 5 || d.Limits.Tokens != 1000 || d.Cache != 1000 ||
			len(d.Scopes) != 2 || d.Scopes[0].Limits.InFlight != 8 || core.Prices[d.ID].Input != 2 {
			t.Errorf("%+v, price %+v", d, core.Prices[d.ID])
		}
	}
	if len(pool.Deployments) != 2 {
		t.Errorf("%d deployments", len(pool.Deployments))
	}
}

// TestAdaptersAreOfAModel only where the engine says so, and a model is no adapter of itself.
func TestAdaptersAreOfAModel(t *testing.T) {
	f := func(kind, model, parent, rank, want string) {
		t.Helper()
		e := config.Endpoint{Name: "gpu", Kind: kind}
		b := &builder{reports: map[string]discovery.Report{"gpu": {Models: []discovery.ModelInfo{{ID: "base"}, {ID: model, Parent: parent}}}}}
		if got := b.base(&e, rank, model); got != want {
			t.Errorf("%s, %s of %s, rank %q: %q, want %q", kind, model, parent, rank, got, want)
		}
	}
	f("vllm", "sql", "base", "", "gpu/base")
	f("vllm", "sql", "base", "1", "gpu#1/base")
	f("sglang", "sql", "base", "", "gpu/base")
	f("vllm", "sql", "sql", "", "")
	f("vllm", "other", "", "", "")
	f("openai", "ft", "base", "", "")
}
