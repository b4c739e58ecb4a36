// Package chaos kills engines under a running balancer and demands that clients do not notice, over real sockets.
package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"evenkeel/internal/app"
	"evenkeel/internal/config"
	"evenkeel/internal/mock"
	"evenkeel/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const clients = 32

// verdicts on one request, by what its client saw.
type verdict int

const (
	complete verdict = iota
	toldCut          // the stream broke after content and an error event said so
	refused          // an error answer of ours, well-formed, with Retry-After
	failed           // anything else: the client was let down
)

// field is the scene: engines, the balancer before them, and clients that never stop.
type field struct {
	t       *testing.T
	engines []*mock.Engine
	url     string
	admin   string

	counts [4]atomic.Int64
	detail sync.Map // what was refused (false) or failed (true), by text
}

func TestChaos(t *testing.T) {
	f := newField(t)
	ctx, stop := context.WithCancel(context.Background())
	var crowd sync.WaitGroup
	for i := range clients {
		crowd.Go(func() { f.client(ctx, uint64(i)) })
	}
	t.Cleanup(func() { stop(); crowd.Wait() })

	f.phase("a kill every 2 s for 20 s", func() { f.killing(20 * time.Second) }, healthy)
	f.phase("one engine fails at once with 500 for 10 s", func() { f.sinkhole(10 * time.Second) }, healthy)
	f.phase("two of three down", func() { f.twoDown(5 * time.Second) }, healthy)
	f.phase("all down for 5 s and back", func() { f.allDown(5 * time.Second) }, func(s seen) string { return "" })
	f.phase("after the return", func() { pass(2 * time.Second) }, func(s seen) string {
		if s.refused > 0 || s.failed > 0 {
			return "service is not full"
		}
		return ""
	})
	stop()
	crowd.Wait()
	f.gaugesAreZero()
}

// seen counts verdicts over a phase.
type seen struct{ complete, toldCut, refused, failed int64 }

// healthy is what a phase must look like in which an engine is well all the time.
func healthy(s seen) string {
	if s.refused > 0 || s.failed > 0 {
		return "clients were let down although an engine was well"
	}
	return ""
}

func (f *field) phase(name string, run func(), judge func(seen) string) {
	f.t.Helper()
	before := f.seen()
	run()
	now := f.seen()
	s := seen{now.complete - before.complete, now.toldCut - before.toldCut, now.refused - before.refused, now.failed - before.failed}
	f.t.Logf("%-45s %6d complete, %3d cut and told, %4d refused, %d let down", name, s.complete, s.toldCut, s.refused, s.failed)
	if s.complete == 0 && s.refused == 0 {
		f.t.Errorf("%s: no traffic", name)
	}
	bad := judge(s)
	if bad != "" {
		f.t.Errorf("%s: %s: %+v", name, bad, s)
	}
	f.detail.Range(func(what, letDown any) bool {
		if letDown.(bool) || bad != "" {
			f.t.Errorf("%s: a client saw: %v", name, what)
		}
		f.detail.Delete(what)
		return true
	})
}

func (f *field) seen() seen {
	return seen{f.counts[complete].Load(), f.counts[toldCut].Load(), f.counts[refused].Load(), f.counts[failed].Load()}
}

func newField(t *testing.T) *field {
	t.Helper()
	f := &field{t: t}
	var urls []string
	for i := range 3 {
		e, err := mock.New(mock.Config{Name: fmt.Sprintf("engine-%d", i+1), InterToken: 5 * time.Millisecond, BaseLatency: 10 * time.Millisecond, OutputTokens: 10, Seed: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		f.engines = append(f.engines, e)
		urls = append(urls, e.URL())
	}
	c, err := config.FromURLs(urls, secret.String{})
	if err != nil {
		t.Fatal(err)
	}
	c.Listen, c.Admin = "127.0.0.1:0", "127.0.0.1:0"
	a, err := app.New(c, app.Options{Logger: slog.New(slog.DiscardHandler), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	listeners, err := a.Listen()
	if err != nil {
		t.Fatal(err)
	}
	f.url, f.admin = "http://"+listeners.Data.Addr().String(), "http://"+listeners.Admin.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, listeners) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	f.await(func() bool {
		res, err := http.Get(f.url + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return f
}

// await polls a condition of the world outside.
func (f *field) await(ok func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			f.t.Fatal("the condition did not come true within 10 s")
		}
		pass(10 * time.Millisecond)
	}
}

// pass lets time pass: the engines and the balancer run in real time here.
func pass(d time.Duration) { <-time.After(d) }

// client sends requests one after another, half of them streamed.
func (f *field) client(ctx context.Context, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil {
		streamed := random.IntN(2) == 0
		v, what := f.ask(ctx, transport, streamed, 1+random.IntN(20))
		if ctx.Err() != nil {
			return
		}
		f.counts[v].Add(1)
		switch v {
		case failed:
			f.detail.Store(what, true)
		case refused:
			f.detail.Store(what, false)
			pass(20 * time.Millisecond) // even an impatient client breathes
		}
	}
}

// explained is what the balancer says of a request.
func (f *field) explained(id string) string {
	res, err := http.Get(f.admin + "/explain/" + id + "?format=text")
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body) // what came of it may say enough
	return string(text)
}

// ask sends one request and judges what came.
func (f *field) ask(ctx context.Context, transport http.RoundTripper, streamed bool, tokens int) (verdict, string) {
	body := fmt.Sprintf(`{"model":"mock-model","stream":%v,"max_tokens":%d,"messages":[{"role":"user","content":"hello"}]}`, streamed, tokens)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return failed, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := transport.RoundTrip(req)
	if err != nil {
		return failed, "no response: " + err.Error()
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	text := string(answer)
	switch {
	case err != nil:
		return failed, fmt.Sprintf("broken body after %d bytes: %v", len(text), err)
	case res.StatusCode != http.StatusOK:
		if strings.Contains(text, `"code":"evenkeel_`) && (res.StatusCode == 502 || res.StatusCode == 503) {
			return refused, text
		}
		return failed, fmt.Sprintf("status %d: %.200s\n%s", res.StatusCode, text, f.explained(res.Header.Get("X-Evenkeel-Id")))
	case streamed && strings.HasSuffix(text, "data: [DONE]\n\n"):
		return complete, ""
	case streamed && strings.Contains(text, `"delta":{"content"`) && strings.Contains(text, `"code":"evenkeel_upstream_`) && !strings.Contains(text, "[DONE]"):
		return toldCut, ""
	case !streamed && strings.Contains(text, `"finish_reason"`):
		return complete, ""
	}
	return failed, "neither complete nor told: " + text[max(0, len(text)-300):]
}

func (f *field) killing(d time.Duration) {
	random := rand.New(rand.NewPCG(42, 42))
	for range int(d / (2 * time.Second)) {
		e := f.engines[random.IntN(len(f.engines))]
		e.Kill()
		pass(time.Second)
		f.must(e.Restart())
		pass(time.Second)
	}
}

// sinkhole makes one engine fail faster than any other can answer: it looks idle.
func (f *field) sinkhole(d time.Duration) {
	bad := f.engines[0]
	f.must(bad.SetFault(mock.Fault{Kind: "status", Status: 500}))
	pass(500 * time.Millisecond) // its first failures
	total := func() (n int64) {
		for _, e := range f.engines {
			n += e.Stats().Started
		}
		return n
	}
	before, badBefore := total(), bad.Stats().Started
	pass(d - 500*time.Millisecond)
	all, hit := total()-before, bad.Stats().Started-badBefore
	f.t.Logf("the failing engine drew %d of %d requests (%.2f %%)", hit, all, 100*float64(hit)/float64(all))
	if float64(hit) > 0.01*float64(all) {
		f.t.Errorf("the failing engine drew %d of %d requests after its first failures, want at most 1 %%", hit, all)
	}
	f.must(bad.ClearFault())
}

func (f *field) twoDown(d time.Duration) {
	f.engines[0].Kill()
	f.engines[1].Kill()
	pass(d)
	f.must(f.engines[0].Restart())
	f.must(f.engines[1].Restart())
	f.allServe()
}

func (f *field) allDown(d time.Duration) {
	for _, e := range f.engines {
		e.Kill()
	}
	pass(200 * time.Millisecond) // what ran is over
	requests, attempts := f.seen(), f.attempts()
	pass(d)
	now := f.seen()
	asked := now.complete + now.toldCut + now.refused + now.failed - requests.complete - requests.toldCut - requests.refused - requests.failed
	made := f.attempts() - attempts
	f.t.Logf("while all were down: %d requests, %d attempts", asked, made)
	if float64(made) > 1.1*float64(asked) {
		f.t.Errorf("%d attempts for %d requests while all are down, want at most 1.1 ×", made, asked)
	}
	if now.failed > requests.failed {
		f.t.Error("a request was neither answered nor refused while all were down")
	}
	for _, e := range f.engines {
		f.must(e.Restart())
	}
	f.allServe()
}

// allServe demands that every engine serves again within 3 s.
func (f *field) allServe() {
	f.t.Helper()
	began := time.Now()
	completed := make([]int64, len(f.engines))
	for i, e := range f.engines {
		completed[i] = e.Stats().Completed
	}
	for {
		serving := 0
		for i, e := range f.engines {
			if e.Stats().Completed > completed[i] {
				serving++
			}
		}
		took := time.Since(began)
		if serving == len(f.engines) {
			f.t.Logf("all engines serve again after %v", took.Round(10*time.Millisecond))
			if took > 3*time.Second {
				f.t.Errorf("all engines serve again after %v, want at most 3 s", took)
			}
			return
		}
		if took > 30*time.Second {
			f.t.Fatalf("only %d engines serve 30 s after the return", serving)
		}
		pass(10 * time.Millisecond)
	}
}

func (f *field) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

var sample = regexp.MustCompile(`^(\w+)(?:\{[^}]*\})? (\S+)$`)

// metric sums the series of a metric that the admin listener shows.
func (f *field) metric(name string) float64 {
	f.t.Helper()
	res, err := http.Get(f.admin + "/metrics")
	if err != nil {
		f.t.Fatal(err)
	}
	defer res.Body.Close()
	var sum float64
	found := false
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		m := sample.FindStringSubmatch(lines.Text())
		if m == nil || m[1] != name {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(m[2], &v); err != nil {
			f.t.Fatalf("%s: %v", lines.Text(), err)
		}
		sum += v
		found = true
	}
	if !found {
		f.t.Fatalf("there is no metric %s", name)
	}
	return sum
}

func (f *field) attempts() int64 { return int64(f.metric("evenkeel_attempts_total")) }

func (f *field) gaugesAreZero() {
	f.await(func() bool { return f.metric("evenkeel_in_flight") == 0 })
	if n := f.metric("evenkeel_queue_depth"); n != 0 {
		f.t.Errorf("%v requests still wait", n)
	}
	for _, e := range f.engines {
		if s := e.Stats(); s.Running != 0 || s.Waiting != 0 {
			f.t.Errorf("%s still runs %d and queues %d", e.Name(), s.Running, s.Waiting)
		}
	}
}
