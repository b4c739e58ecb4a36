package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"evenkeel/internal/engine"
	"evenkeel/internal/exchange"
	"evenkeel/internal/sim"
	"evenkeel/internal/trace"
)

const pricedConfig = `
endpoints:
  cheap: {url: http://a:1, limits: {rpm: %d}}
  dear: {url: http://b:1, api_key: "${EVENKEEL_NOT_SET}"}
models:
  chat:
    providers:
      - {name: cheap, price: {input: 1, output: 1}}
      - {name: dear, price: {input: 10, output: 10}}
    strategy: failover
`

// Two configurations are what they say: limits send requests to the dearer provider, which costs more, per tenant too.
func TestSimulateConfigurations(t *testing.T) {
	file := in(t, map[string]string{"before.yaml": fmt.Sprintf(pricedConfig, 100_000), "after/a.yaml": fmt.Sprintf(pricedConfig, 6), "after/readme.txt": "not read"})
	rows := rowsOf(t, "--workload", "tenant-flood", "--rate", "1", "--requests", "600", "--baseline", file("before.yaml"), "--candidate", file("after"))
	before, after := rows["baseline"], rows["candidate"]
	if picks := before["picks"].([]any); before["failed"] != 0. || picks[0] == 0. || picks[1] != 0. {
		t.Errorf("before: %v", before)
	}
	if picks := after["picks"].([]any); picks[1].(float64) < 3*picks[0].(float64) {
		t.Errorf("after: picked %v times, while a deployment may have 6 a minute of 60", picks)
	}
	if cost := after["cost_dollars"].(float64) / before["cost_dollars"].(float64); cost < 5 || cost > 10 {
		t.Errorf("it costs %v times as much, and nine tenths go where it is ten times", cost)
	}
	parts := 0.
	for _, x := range after["tenants"].([]any) {
		tenant := x.(map[string]any)
		if tenant["cost_change_dollars"].(float64) <= 0 {
			t.Errorf("%v", tenant)
		}
		parts += tenant["cost_dollars"].(float64)
	}
	if whole := after["cost_dollars"].(float64); parts < .999*whole || parts > 1.001*whole {
		t.Errorf("tenants pay %v of %v", parts, whole)
	}
}

// What limits turn away is counted, and an endpoint's engine may be another one.
func TestSimulateRefusals(t *testing.T) {
	file := in(t, map[string]string{
		"open.yaml":  "endpoints: {a: {url: 'http://a:1', models: [m]}, pool: {url: 'dns+http://p:1', models: [m]}}",
		"tight.yaml": "endpoints: {a: {url: 'http://a:1', models: [m], limits: {rpm: 10}}}\nqueue: {max_waiting: 1}\ndeadlines: {deadline: 5s}",
	})
	args := []string{"--workload", "multi-turn", "--rate", "2", "--requests", "300", "--baseline", file("open.yaml"), "--candidate", file("tight.yaml"), "--deployments", "3", "--engine", "vllm-8192,pool=sglang"}
	rows := rowsOf(t, args...)
	before, after := rows["baseline"], rows["candidate"]
	if before["failed"] != 0. || len(before["picks"].([]any)) != 4 {
		t.Errorf("before: %v", before)
	}
	if failed, all := after["failed"].(float64), after["requests"].(float64); failed < all/2 || failed != after["results"].(map[string]any)["refused"] {
		t.Errorf("after: %v", after)
	}
	if text := simulated(t, args...); !strings.Contains(text, "4 deployments, predicted_wait; behind them 1 × vllm-8192, 3 × sglang") {
		t.Errorf("got\n%s", text)
	}
}

// recordedTrace is what a balancer might have recorded: two tenants, who ask for two models.
func recordedTrace() string {
	begun := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	lines := trace.AppendHeader(nil, &trace.Header{Version: trace.Version, Key: "k", BlockBytes: 256})
	for i := range 400 {
		e := trace.Entry{
			At: begun.Add(time.Duration(i) * 500 * time.Millisecond), ID: fmt.Sprintf("ek-%d", i), API: "chat", Model: []string{"big", "small"}[i%2], Tenant: []string{"ann", "bob", "ann"}[i%3],
			Stream: true, Bytes: 8000, Result: exchange.Complete, Status: 200, First: 200 * time.Millisecond, Total: 2 * time.Second,
		}
		e.Attempts = []trace.Attempt{{Deployment: "a/" + e.Model, Strategy: "round_robin", Eligible: 2, TTFT: e.First, Took: e.Total, Input: 2000, Output: 50}}
		if i%100 == 99 {
			e.Result, e.Status, e.First, e.Attempts = exchange.Refused, 429, 0, nil
		}
		lines = trace.Append(lines, &e)
	}
	return string(lines)
}

// Recorded traffic asks for the models that it asked for, in the names of its tenants, and what it met is told beside.
func TestSimulateRecorded(t *testing.T) {
	file := in(t, map[string]string{
		"traffic.jsonl": recordedTrace(),
		"before.yaml":   "endpoints: {a: {url: 'http://a:1'}, b: {url: 'http://b:1', models: [small]}}\nmodels: {big: {providers: [{name: a, price: {output: 10}}]}}",
		"after.yaml":    "endpoints: {a: {url: 'http://a:1'}}\nmodels: {big: {providers: [{name: a, limits: {rpm: 20}, price: {output: 10}}]}}\ndeadlines: {deadline: 1s}",
	})
	args := []string{"--trace", file("traffic.jsonl"), "--baseline", file("before.yaml"), "--candidate", file("after.yaml")}
	text := simulated(t, args...)
	for _, want := range []string{
		"as recorded   TTFT mean 200 ms, p50 200 ms, p99 200 ms; hit share 0.0 %; 4 failed, 4 of them by a 429; 0.0800 $ at the prices of baseline\n", // 160 × 50 tokens
		"\n    ann         214 requests; TTFT mean 200 ms, p50 200 ms, p99 200 ms; hit share 0.0 %; 3 failed, 3 of them by a 429; 0.0535 $ at the prices of baseline\n",
		"\n    bob         106 requests; TTFT mean 200 ms, p50 200 ms, p99 200 ms; hit share 0.0 %; 1 failed, 1 of them by a 429; 0.0265 $ at the prices of baseline\n",
		"before.yaml: 3 deployments, predicted_wait", "after.yaml: 2 deployments, predicted_wait", "400 in 200 s",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, other := range []struct{ want, flag, value string }{
		{"4 of them by a 429; 0.0800 $ at the prices of baseline\n", "--speed", "2"},
		{"4 of them by a 429; 0.1000 $ at the prices of baseline, of the whole trace\n", "--copies", "2"},
		{"4 of them by a 429; 0.1000 $ at the prices of baseline, of the whole trace\n", "--requests", "100"},
	} {
		if text := simulated(t, append(args, other.flag, other.value)...); !strings.Contains(text, other.want) {
			t.Errorf("%s %s: no %q in\n%s", other.flag, other.value, other.want, text)
		}
	}
	rows := rowsOf(t, args...)
	before, after := rows["baseline"], rows["candidate"]
	var names []any
	for _, x := range after["tenants"].([]any) {
		names = append(names, x.(map[string]any)["tenant"])
	}
	if fmt.Sprint(names) != "[ann bob]" || before["failed"] != 0. || after["failed"].(float64) < 80 {
		t.Errorf("tenants %v; before %v, after %v", names, before, after)
	}
	if x := before["versus"]; x != nil {
		t.Errorf("the baseline differs from %v", x)
	}
}

// servedTrace is what a balancer records that sends requests without a common prefix to two engines of a preset.
func servedTrace(t *testing.T, preset string) string {
	t.Helper()
	c, err := engine.Preset(preset)
	if err != nil {
		t.Fatal(err)
	}
	source, err := sim.NewPoisson(1, sim.PoissonOptions{Rate: 4, Prompt: sim.Law{Mean: 3000, CV: 1}, Output: sim.Law{Mean: 100, CV: 1}})
	if err != nil {
		t.Fatal(err)
	}
	strategy, err := policy("least_tokens")
	if err != nil {
		t.Fatal(err)
	}
	lines := trace.AppendHeader(nil, &trace.Header{Version: trace.Version, Key: "k", BlockBytes: 256})
	o := sim.Options{
		Strategy: strategy.Strategy, Source: source, Stream: true, Plan: exchange.Plan{MaxAttempts: 1},
		Record: func(_ *sim.Request, rec *exchange.Record) {
			var e trace.Entry
			e.From(rec)
			lines = trace.Append(lines, &e)
		},
	}
	for range 2 {
		e, err := sim.NewEngine(c)
		if err != nil {
			t.Fatal(err)
		}
		o.Servers = append(o.Servers, e)
	}
	fleet, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.Finish(time.Minute); err != nil {
		t.Fatal(err)
	}
	return string(lines)
}

// Engines that are fitted to a recorded trace take the times that it tells of, whatever preset they began with.
func TestSimulateFit(t *testing.T) {
	if raceEnabled {
		t.Skip("a fit simulates the trace hundreds of times, in one goroutine")
	}
	file := in(t, map[string]string{"traffic.jsonl": servedTrace(t, "vllm-router")})
	args := []string{"--trace", file("traffic.jsonl"), "--fit"}
	if text := simulated(t, args...); !strings.Contains(text, "TTFT") || strings.Contains(text, "goodput") {
		t.Errorf("got\n%s", text)
	}
	args = append(args, "--strategy", "least_tokens", "--deployments", "2", "--burn-in", "0")
	text := simulated(t, args...)
	for _, want := range []string{"Engines, fitted to the trace", "2 × fitted", "as recorded"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	_, stdout, _ := command(append([]string{"simulate", "--json"}, args...)...) // what was fitted goes to stderr then
	var rows []struct {
		TTFT float64 `json:"ttft_mean_seconds"`
	}
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || len(rows) != 1 {
		t.Fatalf("%v in %s", err, stdout)
	}
	got, recorded := rows[0].TTFT, 0.
	if m := regexp.MustCompile(`TTFT mean (\d+) ms`).FindStringSubmatch(text); m == nil {
		t.Fatalf("got\n%s", text)
	} else if _, err := fmt.Sscan(m[1], &recorded); err != nil {
		t.Fatal(err)
	}
	if recorded /= 1000; got < .9*recorded || got > 1.1*recorded {
		t.Errorf("a TTFT of %v s, where %v s was recorded", got, recorded)
	}
	code, _, stderr := command("simulate", "--trace", excerpt, "--fit")
	if code != exitUsage || !strings.Contains(stderr, "--fit needs a trace that serve has recorded") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

// What clients chose in a trace does nothing to a terminal.
func TestSimulateNamesArePrintable(t *testing.T) {
	text := strings.ReplaceAll(strings.ReplaceAll(recordedTrace(), `"ann"`, `"\u001b[2J\nann\u009b"`), `"ek-`, `"\u0007ek-`)
	file := in(t, map[string]string{"traffic.jsonl": text})
	got := simulated(t, "--trace", file("traffic.jsonl"), "--strategy", "round_robin,least_tokens", "--explain-diff")
	if bad := strings.IndexFunc(got, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); bad >= 0 {
		t.Errorf("%q reaches the terminal", got[max(0, bad-20):bad+5])
	}
	for _, want := range []string{`  "\x1b[2J\nann\u009b"  round_robin  `, `tenant "\x1b[2J\nann\u009b"`, `("\aek-`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}
