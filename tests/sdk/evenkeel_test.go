package sdk

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/mock"
	"evenkeel/tests/harness"
)

func TestEvenkeel(t *testing.T) {
	engines := startMocks(t, 2, "")
	lb := harness.Evenkeel(t, "--strategy=least_connections", engines[0].URL(), engines[1].URL()) // of engines that do nothing it takes any, and not the one that was faster
	b := &bench{engines, lb, startAll(t, lb.URL, "")}
	t.Run("answers", b.answers)
	t.Run("unusual answers", b.unusualAnswers)
	t.Run("statuses", b.statuses)
	t.Run("unseen failures", b.unseenFailures)
	t.Run("broken streams", b.brokenStreams)
	t.Run("timeouts", b.timeouts)
	t.Run("leaving", b.leaving)
}

// bench is two mock engines behind the balancer, and all clients.
type bench struct {
	engines []*mock.Engine
	lb      *harness.Balancer
	runners runners
}

func (b *bench) answers(t *testing.T) {
	b.runners.each(t, OpenAI, openAIAnswers...)
	b.runners.each(t, Anthropic, anthropicAnswers...)
	b.runners.each(t, Clients(), "error_unknown_model", "error_missing_model")
	for _, e := range b.engines {
		if stats := e.Stats(); stats.Completed == 0 || stats.Aborted+stats.Cut > 0 {
			t.Errorf("engine %s: %+v, want complete answers only", e.Name(), stats)
		}
	}
	b.nothingInFlight(t)
}

// unusualAnswers are right, only written as few engines write them.
func (b *bench) unusualAnswers(t *testing.T) {
	for _, fault := range []mock.Fault{
		{Kind: "crlf", Variant: "crlf"},
		{Kind: "crlf", Variant: "mixed"},
		{Kind: "split", Variant: "lf"},
		{Kind: "split", Variant: "crlf"},
		{Kind: "comments", Delay: mock.Duration(20 * time.Millisecond)},
		{Kind: "big_event"},
		{Kind: "gzip"},
	} {
		unusual := func(t *testing.T, run func()) {
			setFault(t, fault, b.engines...)
			run()
		}
		name := strings.TrimSpace(fault.Kind + " " + fault.Variant)
		b.each(t, OpenAI, "chat_stream", name, unusual)
		b.each(t, OpenAI, "responses_stream", name, unusual)
		b.each(t, Anthropic, "messages_stream_helper", name, unusual)
	}
}

// statuses that the clients must be told about.
func (b *bench) statuses(t *testing.T) {
	b.each(t, Clients(), "retry_after", "429", func(t *testing.T, run func()) {
		setFault(t, mock.Fault{Kind: "status", Status: 429, RetryAfter: "1", Count: 1}, b.engines...)
		run()
	})
	b.each(t, Clients(), "error_bad_request", "400", func(t *testing.T, run func()) {
		setFault(t, mock.Fault{Kind: "status", Status: 400}, b.engines...)
		run()
	})
	b.each(t, Clients(), "error_unavailable", "down", func(t *testing.T, run func()) {
		for _, e := range b.engines {
			e.Kill()
		}
		run()
		for _, e := range b.engines {
			if err := e.Restart(); err != nil {
				t.Error(err)
			}
		}
	})
}

// While one engine breaks before it has said anything, no client notices.
func (b *bench) unseenFailures(t *testing.T) {
	for _, fault := range []mock.Fault{
		{Kind: "status", Status: 500},
		{Kind: "status", Status: 503, Body: "no healthy upstream"},
		{Kind: "close"},
		{Kind: "reset"},
		{Kind: "die", After: 1}, // after the start event
		{Kind: "stream_error", Status: 503},
	} {
		first := b.engines[0]
		untilHit := func(t *testing.T, run func()) {
			setFault(t, fault, first)
			hits := first.Stats().Faults
			for range 50 { // which engine gets a request is drawn by lot
				if run(); t.Failed() || first.Stats().Faults > hits {
					return
				}
			}
			t.Error("50 requests, and none met the engine that fails")
		}
		name := strings.TrimSpace(fmt.Sprint(fault.Kind, " ", http.StatusText(fault.Status)))
		b.each(t, OpenAI, "chat_stream", name, untilHit)
		b.each(t, Anthropic, "messages_stream", name, untilHit)
		if fault.Kind != "stream_error" { // answers that are not streamed have no such thing
			b.each(t, OpenAI, "chat", name, untilHit)
			b.each(t, Anthropic, "messages", name, untilHit)
		}
	}
}

// An answer that breaks after its first words cannot move any more. Whatever
// breaks it, each client must raise an error.
func (b *bench) brokenStreams(t *testing.T) {
	for _, fault := range []mock.Fault{
		{Kind: "die", After: 5},
		{Kind: "reset", After: 5},
		{Kind: "truncate", After: 5},
		{Kind: "stream_error", After: 5, Status: 503},
	} {
		broken := func(t *testing.T, run func()) {
			setFault(t, fault, b.engines...)
			run()
		}
		b.each(t, Clients(), "stream_broken", fault.Kind, broken)
		b.each(t, OpenAI, "responses_stream_broken", fault.Kind, broken)
	}
}

// A limit of the client's own ends the call in time and the engine's work.
func (b *bench) timeouts(t *testing.T) {
	b.each(t, Clients(), "timeout", "hang", func(t *testing.T, run func()) {
		setFault(t, mock.Fault{Kind: "hang"}, b.engines...)
		run()
		b.enginesIdle(t)
	})
	// The JavaScript clients have no limit between chunks.
	b.each(t, OpenAI[:1], "timeout_stream", "stall", func(t *testing.T, run func()) {
		setFault(t, mock.Fault{Kind: "stall", After: 5}, b.engines...)
		run()
		b.enginesIdle(t)
	})
}

// A client that leaves ends the engine's work.
func (b *bench) leaving(t *testing.T) {
	leave := func(t *testing.T, run func()) {
		aborted := func() int64 { return b.engines[0].Stats().Aborted + b.engines[1].Stats().Aborted }
		before := aborted()
		run()
		b.enginesIdle(t)
		if n := aborted() - before; n != 1 {
			t.Errorf("%d requests were broken off at the engines, want 1", n)
		}
	}
	b.each(t, Clients(), "cancel", "stream", leave)
	b.each(t, OpenAI[1:], "cancel_whole", "whole answer", leave)
}

// each calls body in a subtest for each client; run runs the scenario. Then
// the engines are mended, and nothing may be left in flight.
func (b *bench) each(t *testing.T, clients []Client, scenario, name string, body func(t *testing.T, run func())) {
	t.Helper()
	for _, client := range clients {
		t.Run(scenario+"/"+name+"/"+client.Name, func(t *testing.T) {
			defer b.nothingInFlight(t)
			defer b.mend(t)
			body(t, func() { b.runners[client].Run(t, scenario) })
		})
	}
}

// mend takes the faults away and sends requests until both engines answer
// again and the retry budget has grown by more than one test takes from it (a
// tenth for each request), so that the failures of one test do not count in
// the next.
func (b *bench) mend(t *testing.T) {
	t.Helper()
	before := make([]int64, len(b.engines))
	for i, e := range b.engines {
		e.ClearFault()
		b.forget(t, e)
		before[i] = e.Stats().Completed
	}
	const body = `{"model":"` + modelName + `","max_tokens":1,"messages":[{"role":"user","content":"hello"}]}`
	defer http.DefaultClient.CloseIdleConnections()
	sent := 0
	harness.Eventually(t, 15*time.Second, "both engines answer again", func() bool {
		sent++
		resp, err := http.Post(b.lb.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return sent >= 25 && b.engines[0].Stats().Completed > before[0] && b.engines[1].Stats().Completed > before[1]
	})
}

// forget orders the balancer to forget that an engine has failed, as an operator would.
func (b *bench) forget(t *testing.T, e *mock.Engine) {
	t.Helper()
	name := strings.TrimPrefix(e.URL(), "http://")
	for _, about := range []string{"endpoint=" + name, "deployment=" + name + "/" + modelName} {
		resp, err := http.Post(b.lb.AdminURL+"/admin/deployments?order=reset&"+about, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("order reset of %s: %s", about, resp.Status)
		}
	}
}

// enginesIdle waits until the engines have noticed that nobody waits any more.
func (b *bench) enginesIdle(t *testing.T) {
	t.Helper()
	harness.Eventually(t, 2*time.Second, "the engines are idle", func() bool {
		return b.engines[0].Stats().Running+b.engines[1].Stats().Running == 0
	})
}

func (b *bench) nothingInFlight(t *testing.T) {
	t.Helper()
	harness.Eventually(t, 2*time.Second, "nothing in flight", func() bool { return b.lb.InFlight(t) == 0 })
}

// Clients have their keys, engines another one, and neither leaks.
func TestKeys(t *testing.T) {
	const clientKey, engineKey = "sk-client", "sk-engine"
	engine := startMocks(t, 1, engineKey)[0]
	hash := sha256.Sum256([]byte(clientKey))
	config := writeConfig(t, fmt.Sprintf("endpoints:\n  a: {url: %q, api_key: \"${ENGINE_KEY}\"}\nvirtual_keys:\n  - {name: tests, sha256: %s}\n",
		engine.URL(), hex.EncodeToString(hash[:])))
	t.Setenv("ENGINE_KEY", engineKey)
	lb := harness.Evenkeel(t, "--config", config)
	clients := startAll(t, lb.URL, clientKey)
	clients.each(t, OpenAI, "chat", "error_wrong_key")
	clients.each(t, Anthropic, "messages", "error_wrong_key")
	if log := lb.Log(); strings.Contains(log, clientKey) || strings.Contains(log, engineKey) {
		t.Error("a key is in the log")
	}
	for _, r := range engine.Requests() {
		if seen := fmt.Sprint(r.Header); strings.Contains(seen, clientKey) || strings.Contains(seen, "wrong") {
			t.Errorf("the engine got a key of a client: %s", seen)
		}
	}
}

// A balancer that stops ends the streams that do not finish in time with an
// error, and itself in order.
func TestStop(t *testing.T) {
	engine := startMocks(t, 1, "")[0]
	setFault(t, mock.Fault{Kind: "stall", After: 5}, engine)
	config := writeConfig(t, fmt.Sprintf("endpoints:\n  a: {url: %q}\ndrain_timeout: 500ms\n", engine.URL()))
	lb := harness.Evenkeel(t, "--config", config)
	clients := startAll(t, lb.URL, "")
	for _, runner := range clients {
		runner.Begin(t, "stream_broken")
	}
	harness.Eventually(t, 30*time.Second, "all streams have begun", func() bool { return engine.Stats().Running == len(clients) })
	if code := lb.Stop(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	for client, runner := range clients {
		if result := runner.End(t); !result.OK {
			t.Errorf("%s: %s", client.Name, result.Detail)
		}
	}
}

func writeConfig(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "evenkeel.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
