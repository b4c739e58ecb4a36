package app

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	timing "evenkeel/internal/engine"
	"evenkeel/internal/mock"
)

// adapted is a world in front of three engines with room for two adapters each, through which requests for six went, three at a time and none
// beginning like another; and the share of them for which an adapter was loaded.
func adapted(t *testing.T, settings string) (w *world, loads float64) {
	const requests, adapters = 180, 6
	preset, err := timing.Preset("vllm-8192")
	if err != nil {
		t.Fatal(err)
	}
	preset.MaxAdapters, preset.AdapterLoad = 2, 100*time.Millisecond
	var names []string
	for i := range adapters {
		names = append(names, fmt.Sprint("adapter-", i))
	}
	text := settings + "\nhealth_checks: {signal_interval: 1s}\nendpoints:\n"
	var engines []*mock.Engine
	for i := range 3 {
		e := engine(t, mock.Config{Name: fmt.Sprint("e", i), Models: []string{"base"}, Adapters: names, Engine: &preset, OutputTokens: 3, OwnedBy: "vllm"})
		engines = append(engines, e)
		text += fmt.Sprintf("  e%d: {url: %q, kind: vllm}\n", i, e.URL())
	}
	w = start(t, parse(t, text))
	w.await("all that the engines have is known", func() bool {
		known := 0
		for _, d := range w.app.router.View(time.Now()).Deployments {
			if d.Signal.Adapters != nil {
				known++
			}
		}
		return known == 3*(adapters+1)
	})
	var all sync.WaitGroup
	for worker := range 3 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			for i := range requests / 3 {
				got := w.do(http.MethodPost, w.url+"/v1/chat/completions", fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":"%d of %d says hello"}]}`,
					names[random.IntN(adapters)], i, worker))
				if got.status != http.StatusOK || got.err != nil {
					t.Errorf("%d %v %s", got.status, got.err, got.body)
				}
			}
		})
	}
	all.Wait()
	w.quiet()
	for _, e := range engines {
		loads += float64(e.Stats().AdapterLoads) / requests
	}
	return w, loads
}

// TestAdaptersStayAtHome: requests go where their adapter is in memory, over sockets, and what loading one takes is learned.
func TestAdaptersStayAtHome(t *testing.T) {
	w, home := adapted(t, "strategy: predicted_wait")
	_, away := adapted(t, "strategy: least_connections\naffinity: {mode: none}")
	t.Logf("adapters were loaded for %.3f of the requests, under least_connections for %.3f", home, away)
	if home > 0.2 || home > away/2 {
		t.Errorf("adapters were loaded for %.3f of the requests, under least_connections for %.3f", home, away)
	}
	least, most := 10.0, 0.0
	for _, r := range w.app.ring.Last(100) {
		for _, c := range w.explained(r).Attempts[0].Decision.Candidates {
			if c.Forecast != nil && c.Forecast.LoadSeconds > 0 {
				least, most = min(least, c.Forecast.LoadSeconds), max(most, c.Forecast.LoadSeconds)
			}
		}
	}
	t.Logf("loading was expected to take %.3f to %.3f s", least, most)
	if least > 0.2 || least < 0.05 {
		t.Errorf("loading was expected to take %.3f to %.3f s", least, most)
	}
}
