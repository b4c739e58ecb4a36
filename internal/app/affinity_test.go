package app

import (
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/mock"
	"evenkeel/internal/route"
)

// TestAffinityKeepsConversations under strategies that do not look at caches, over sockets, by how their prompts begin.
func TestAffinityKeepsConversations(t *testing.T) {
	w, kept := talked(t, "strategy: least_connections")
	last := w.explained(w.app.ring.Last(1)[0]).Attempts[0].Decision
	if last.Home == nil || last.Home.By != "prefix" || last.Home.Deployment != last.Chosen || last.Eligible != 1 {
		t.Errorf("the last decision knew %+v, and chose %s of %d", last.Home, last.Chosen, last.Eligible)
	}
	_, torn := talked(t, "strategy: least_connections\naffinity: {mode: none}")
	_, exact := talked(t, "strategy: round_robin\naffinity: {mode: prefix}")
	t.Logf("cached: %.3f of all prompt tokens, without affinity %.3f, under round_robin with it %.3f", kept, torn, exact)
	if kept < 0.6 || exact < 0.6 || torn > 0.6*kept {
		t.Errorf("cached: %.3f of all prompt tokens, without affinity %.3f, under round_robin with it %.3f", kept, torn, exact)
	}
}

// TestAffinityOfAModel: what is on by itself, what must be written, and what a model says for itself.
func TestAffinityOfAModel(t *testing.T) {
	f := func(settings string, want route.Affinity, byAddress bool) {
		t.Helper()
		c := parse(t, settings+"\nendpoints: {a: {url: 'http://127.0.0.1:1', models: [m]}}")
		core, err := NewCore(c, Found{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range core.Pools {
			if p.Model == "m" && p.Affinity != want {
				t.Errorf("%s: %+v, want %+v", settings, p.Affinity, want)
			}
		}
		g, err := build(c, c, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Proxy.AddressSession("m"); got != byAddress || g.Proxy.AddressSession("other") {
			t.Errorf("%s: sessions by address: %v", settings, got)
		}
	}
	none, session, prefix := route.Affinity{SlowdownLimit: 2.5}, route.Affinity{Mode: route.SessionAffinity, SlowdownLimit: 2.5}, route.Affinity{Mode: route.PrefixAffinity, SlowdownLimit: 2.5}
	f("", prefix, false)
	f("strategy: p2c_ewma", prefix, false)
	f("strategy: round_robin", none, false)
	f("strategy: weighted", none, false)
	f("strategy: weighted\naffinity: {mode: session, client_address: true}", session, true)
	f("affinity: {mode: none}", none, false)
	f("affinity: {mode: none}\nmodels: {m: {affinity: {mode: session}}}", session, false)
	f("affinity: {mode: session, slowdown_limit: 3, client_address: true}\nmodels: {m: {strategy: round_robin, affinity: {slowdown_limit: 4}}}", route.Affinity{SlowdownLimit: 4}, false)
	if d := config.Default().Affinity.SlowdownLimit; d != route.DefaultSlowdownLimit {
		t.Errorf("the default limit is %v in the configuration, %v where nobody says", d, route.DefaultSlowdownLimit)
	}
}

// TestSlowHomesAreLeft: sessions leave an engine that becomes ten times slower within seconds, and stay where they went when it is well again.
func TestSlowHomesAreLeft(t *testing.T) {
	const sessions = 12
	var engines []*mock.Engine
	text := "strategy: least_connections\naffinity: {mode: session}\nendpoints:\n"
	for i := range 4 {
		e := engine(t, mock.Config{Name: fmt.Sprint("e", i), Models: []string{"m"}, BaseLatency: 40 * time.Millisecond, OutputTokens: 2})
		engines = append(engines, e)
		text += fmt.Sprintf("  e%d: {url: %q}\n", i, e.URL())
	}
	w := start(t, parse(t, text))
	w.serves("m")
	w.await("all serve", func() bool { return len(w.app.router.View(time.Now()).Deployments) == 4 })
	round := func() (at [sessions]string) {
		var all sync.WaitGroup
		for s := range sessions {
			all.Go(func() {
				got := w.do(http.MethodPost, w.url+"/v1/chat/completions", body("m", streamed), "X-Session-Id", fmt.Sprint("session ", s))
				if got.status != http.StatusOK || got.err != nil {
					t.Errorf("%d %v %s", got.status, got.err, got.body)
				}
				at[s] = answered(got)
			})
		}
		all.Wait()
		return at
	}
	homes := round()
	for range 10 {
		if again := round(); again != homes {
			t.Fatalf("sessions were at %v, then at %v", homes, again)
		}
	}
	slow := engines[0]
	for _, e := range engines {
		if e.Name() == homes[0] {
			slow = e
		}
	}
	there := func(at [sessions]string) (n int) {
		for _, e := range at {
			if e == slow.Name() {
				n++
			}
		}
		return n
	}
	if err := slow.SetFault(mock.Fault{Kind: "slow"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w.await("all sessions have left", func() bool { return there(round()) == 0 })
	took := time.Since(began)
	if err := slow.ClearFault(); err != nil {
		t.Fatal(err)
	}
	back := 0
	for range 20 {
		back += there(round())
	}
	t.Logf("%d of %d sessions left within %v; %d of %d requests went there once it was well", there(homes), sessions, took, back, 20*sessions)
	if took > 10*time.Second || back > 20*sessions/20 {
		t.Errorf("%d of %d sessions left within %v; %d of %d requests went there once it was well", there(homes), sessions, took, back, 20*sessions)
	}
}

// TestAnswersAreContinuedWhereTheyCameFrom: a request that names the answer before goes to the engine that gave it, streamed or not, whatever the
// strategy, and whatever else names its session.
func TestAnswersAreContinuedWhereTheyCameFrom(t *testing.T) {
	for _, strategy := range []string{"least_connections", "predicted_wait", "round_robin"} {
		t.Run(strategy, func(t *testing.T) { continued(t, strategy) })
	}
}

func continued(t *testing.T, strategy string) {
	text := "strategy: " + strategy + "\nendpoints:\n"
	for i := range 8 {
		text += fmt.Sprintf("  e%d: {url: %q}\n", i, engine(t, mock.Config{Name: fmt.Sprint("e", i), Models: []string{"m"}, OutputTokens: 3}).URL())
	}
	w := start(t, parse(t, text))
	w.serves("m")
	w.await("all serve", func() bool { return len(w.app.router.View(time.Now()).Deployments) == 8 })
	id := regexp.MustCompile(`"id": ?"(resp[^"]*)"`)
	home, previous := "", ""
	for turn := range 8 {
		got := w.do(http.MethodPost, w.url+"/v1/responses", fmt.Sprintf(`{"model":"m","stream":%v,"prompt_cache_key":"all","input":"turn %d"%s}`, turn%2 == 0, turn, previous))
		found := id.FindStringSubmatch(got.body)
		if got.status != http.StatusOK || got.err != nil || found == nil {
			t.Fatalf("%d %v %s", got.status, got.err, got.body)
		}
		if at := answered(got); turn > 0 && at != home {
			t.Fatalf("turn %d went to %s, the one before to %s", turn, at, home)
		}
		home, previous = answered(got), fmt.Sprintf(`,"previous_response_id":%q`, found[1])
		w.quiet()
	}
}
