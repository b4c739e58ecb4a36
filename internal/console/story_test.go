package console

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; if that is meant: go test ./internal/console -update\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// deployment builds a candidate with load; samples say whether its TTFT was learned.
func deployment(id string, inFlight, work int, ttft float64, samples int) route.Candidate {
	return route.Candidate{ID: id, Weight: 1, InFlight: inFlight, Tokens: work + 200, Work: work, TTFT: ttft, Samples: samples, Share: 1, Healthy: route.Always}
}

func cut(c route.Candidate, why route.Cut, by string, until time.Duration) route.Candidate {
	c.Cut, c.CutBy, c.Until = why, by, until
	return c
}

// decision is one of least_tokens at an offset from start.
func decision(at time.Duration, draw int, model, chosen string, field ...route.Candidate) *route.Decision {
	d := &route.Decision{
		At: start.Add(at), Epoch: 4, Seed: 1<<63 + 1, Draw: draw, Model: model, Strategy: "least_tokens", Chosen: chosen, Prompt: 1053, Output: 400, Answer: 214,
	}
	r := route.NewRound(d.At, &route.Facts{Seed: d.Seed}, draw, field, 0)
	for i := range field {
		if field[i].Cut == route.CutNone {
			d.Eligible++
			r.Note(i, "work_tokens/weight", float64(field[i].Work)/field[i].Weight)
		}
	}
	d.Candidates = field
	return d
}

func attempt(from, to time.Duration, d *route.Decision, o route.Outcome) exchange.Attempt {
	return exchange.Attempt{Model: d.Model, Deployment: d.Chosen, Decision: d, Started: start.Add(from), Ended: start.Add(to), Outcome: o}
}

func request(id string, took time.Duration, result exchange.Result, status int, attempts ...exchange.Attempt) *exchange.Record {
	r := &exchange.Record{
		Facts: route.Facts{
			ID: id, Seed: 1<<63 + 1, Model: "qwen3-32b", API: "chat", Tenant: "search", Arrived: start, Stream: true, PromptBytes: 4000, MaxOutput: 400,
		},
		Started: start, Ended: start.Add(took), Result: result, Status: status, Attempts: attempts,
	}
	if a := r.Last(); a != nil {
		r.Model = a.Model
		if a.Outcome.TTFT > 0 {
			r.Content, r.Bytes = a.Started.Add(a.Outcome.TTFT), 23_456
		}
	}
	return r
}

const ms = time.Millisecond

var answered = route.Outcome{
	Verdict: route.Success, Answered: true, Status: 200, TTFT: 398 * ms, ITL: 18300 * time.Microsecond,
	InputTokens: 1103, CachedTokens: 896, OutputTokens: 214, Reported: true, ServedModel: "Qwen/Qwen3-32B",
}

func simple() *exchange.Record {
	d := decision(0, 0, "qwen3-32b", "gpu-2/qwen3-32b",
		deployment("gpu-1/qwen3-32b", 5, 3410, .42, 80), deployment("gpu-2/qwen3-32b", 1, 812, .31, 64), deployment("gpu-4/qwen3-32b", 2, 2200, .372, 0),
		cut(deployment("gpu-3/qwen3-32b", 0, 0, 0, 0), route.CutOpen, "endpoint gpu-3", 12*time.Second))
	return request("req-simple", 4320*ms, exchange.Complete, 200, attempt(0, 4320*ms, d, answered))
}

func failover() *exchange.Record {
	first := decision(0, 0, "qwen3-32b", "gpu-2/qwen3-32b",
		deployment("gpu-1/qwen3-32b", 5, 3410, .42, 80), deployment("gpu-2/qwen3-32b", 1, 812, .31, 64))
	second := decision(3*ms, 1, "qwen3-32b", "gpu-1/qwen3-32b",
		deployment("gpu-1/qwen3-32b", 5, 3410, .42, 80),
		cut(deployment("gpu-2/qwen3-32b", 0, 0, .31, 64), route.CutOpen, "endpoint gpu-2", time.Second))
	return request("req-failover", 4500*ms, exchange.Complete, 200,
		attempt(0, 3*ms, first, route.Outcome{Verdict: route.DeploymentFault, Class: "connect", Fault: route.Unreachable, Detail: "dial tcp 10.0.0.2:8000: connection refused"}),
		attempt(3*ms, 4500*ms, second, answered))
}

// kept goes on where its session is, though another deployment has less to do.
func kept() *exchange.Record {
	d := decision(0, 0, "qwen3-32b", "gpu-1/qwen3-32b",
		deployment("gpu-1/qwen3-32b", 5, 3410, .42, 80),
		cut(deployment("gpu-2/qwen3-32b", 1, 812, .31, 64), route.CutAffinity, "", 0))
	d.Home = route.Home{By: "session", Deployment: d.Chosen, Share: .85, Slowdown: 1.4, Limit: 2.275}
	return request("req-kept", 4500*ms, exchange.Complete, 200, attempt(0, 4500*ms, d, answered))
}

// left finds its home too slow, goes to one of several that have the beginning of its prompt, then away from where it is not possible to stay.
func left() *exchange.Record {
	first := decision(0, 0, "qwen3-32b", "gpu-2/qwen3-32b",
		deployment("gpu-2/qwen3-32b", 1, 812, .31, 64), deployment("gpu-3/qwen3-32b", 2, 900, .31, 64),
		cut(deployment("gpu-1/qwen3-32b", 5, 3410, .92, 80), route.CutLeft, "", 0))
	first.Home = route.Home{By: "session", Deployment: "gpu-1/qwen3-32b", Share: .85, Slowdown: 2.97, Limit: 2.275, Left: "slow"}
	second := decision(3*ms, 1, "qwen3-32b", "gpu-3/qwen3-32b",
		deployment("gpu-3/qwen3-32b", 2, 900, .31, 64), deployment("gpu-4/qwen3-32b", 3, 950, .31, 64),
		cut(deployment("gpu-1/qwen3-32b", 5, 3410, .92, 80), route.CutAffinity, "", 0),
		cut(deployment("gpu-2/qwen3-32b", 0, 0, .31, 64), route.CutOpen, "endpoint gpu-2", time.Second))
	second.Home = route.Home{By: "prefix", Deployment: "gpu-3/qwen3-32b", Share: .62, Slowdown: 1.1, Limit: 1.93}
	third := decision(6*ms, 2, "qwen3-32b", "gpu-4/qwen3-32b",
		deployment("gpu-4/qwen3-32b", 3, 950, .31, 64),
		cut(deployment("gpu-3/qwen3-32b", 0, 0, .31, 64), route.CutTried, "", 0))
	third.Home = route.Home{By: "session", Deployment: "gpu-3/qwen3-32b", Left: "out"}
	fault := route.Outcome{Verdict: route.DeploymentFault, Class: "connect", Fault: route.Unreachable, Detail: "connection refused"}
	return request("req-left", 4500*ms, exchange.Complete, 200,
		attempt(0, 3*ms, first, fault), attempt(3*ms, 6*ms, second, fault), attempt(6*ms, 4500*ms, third, answered))
}

// hedge takes long at first, and is answered by a second attempt beside that.
func hedge() *exchange.Record {
	first := decision(0, 0, "qwen3-32b", "gpu-2/qwen3-32b",
		deployment("gpu-1/qwen3-32b", 5, 3410, .42, 80), deployment("gpu-2/qwen3-32b", 1, 812, .31, 64))
	second := decision(900*ms, 1, "qwen3-32b", "gpu-1/qwen3-32b",
		deployment("gpu-1/qwen3-32b", 5, 3410, .42, 80),
		cut(deployment("gpu-2/qwen3-32b", 2, 1800, .31, 64), route.CutTried, "", 0))
	lost := attempt(0, 1311*ms, first, route.Outcome{Class: "hedge_lost", Detail: "the other attempt had content first", InputTokens: 1053})
	won := attempt(900*ms, 4500*ms, second, answered)
	lost.Waste, won.Hedge, won.Drift = true, true, "fingerprint fp_1 → fp_2"
	return request("req-hedge", 4500*ms, exchange.Complete, 200, lost, won)
}

// queueShed waits for room, fails there, waits again and runs out of time.
func queueShed() *exchange.Record {
	full := decision(0, 0, "qwen3-32b", "",
		cut(deployment("gpu-1/qwen3-32b", 8, 9000, .42, 80), route.CutInFlight, "", 0),
		cut(deployment("gpu-2/qwen3-32b", 3, 99000, .31, 64), route.CutTokens, "credential team-a", 0),
		cut(deployment("gpu-3/qwen3-32b", 8, 9000, .42, 80), route.CutEarlier, "", 0))
	granted := decision(1200*ms, 0, "qwen3-32b", "gpu-1/qwen3-32b",
		deployment("gpu-1/qwen3-32b", 7, 8000, .42, 80),
		cut(deployment("gpu-2/qwen3-32b", 3, 99000, .31, 64), route.CutTokens, "credential team-a", 0))
	again := decision(1250*ms, 1, "qwen3-32b", "",
		cut(deployment("gpu-1/qwen3-32b", 7, 8000, .42, 80), route.CutTried, "", 0),
		cut(deployment("gpu-2/qwen3-32b", 3, 99000, .31, 64), route.CutTokens, "credential team-a", 0))
	r := request("req-shed", 30*time.Second, exchange.Refused, 503,
		attempt(1200*ms, 1250*ms, granted, route.Outcome{Verdict: route.DeploymentFault, Class: "overloaded", Answered: true, Status: 503, RetryAfter: 5 * time.Second}))
	r.Queued = 29950 * ms
	r.Refusals = []*route.Refusal{{Kind: route.Saturated, Decision: full}, {Kind: route.Saturated, Decision: again}}
	r.Failure = &exchange.Failure{Status: 503, Code: "evenkeel_queue_timeout", RetryIn: 1000,
		Message: `No deployment of model "qwen3-32b" had room within the deadline of 30s.`}
	return r
}

func allOut() *exchange.Record {
	large := decision(0, 0, "qwen3-32b", "",
		cut(deployment("gpu-1/qwen3-32b", 0, 0, .42, 80), route.CutOpen, "endpoint gpu-1", 1700*ms),
		cut(deployment("gpu-2/qwen3-32b", 1, 900, .31, 64), route.CutTrial, "", 0),
		cut(deployment("old/qwen3-32b", 0, 0, 0, 0), route.CutWeight, "", 0))
	small := decision(0, 1, "qwen3-4b", "",
		cut(deployment("cpu/qwen3-4b", 0, 0, 1.9, 3), route.CutExcluded, "", 0),
		cut(deployment("gpu-9/qwen3-4b", 0, 0, .1, 30), route.CutPinned, "", 0))
	r := request("req-out", 180*time.Microsecond, exchange.Refused, 503)
	r.Facts.Stream, r.Facts.Tenant = false, ""
	r.Depth = 1
	r.Refusals = []*route.Refusal{{Kind: route.Unavailable, Decision: large, RetryIn: time.Second}, {Kind: route.Unavailable, Decision: small}}
	r.Failure = &exchange.Failure{Status: 503, Code: "evenkeel_no_deployment", RetryIn: 1000,
		Message: `No deployment of model "qwen3-4b" can take the request: 1 excluded by the request, 1 not the one the request names.`}
	return r
}

// many has more candidates than a decision keeps.
func many() *exchange.Record {
	field := []route.Candidate{deployment("pool-17/qwen3-32b", 0, 40, .3, 9)}
	for i := range 16 {
		field = append(field, deployment(fmt.Sprintf("pool-%d/qwen3-32b", 20+i), 1+i/4, 300+17*i, .3+float64(i)/100, i))
	}
	d := decision(0, 0, "qwen3-32b", "pool-17/qwen3-32b", field...)
	d.Eligible = 36
	d.Omitted = []route.CutCount{{Count: 19}, {Cut: route.CutOpen, Count: 3}, {Cut: route.CutInFlight, Count: 1}}
	return request("req-many", 4320*ms, exchange.Complete, 200, attempt(0, 4320*ms, d, answered))
}

func cutStream() *exchange.Record {
	d := decision(0, 0, "qwen3-32b", "gpu-2/qwen3-32b", deployment("gpu-2/qwen3-32b", 1, 812, .31, 64))
	o := answered
	o.Verdict, o.Class, o.Detail, o.Reported, o.CachedTokens, o.OutputTokens = route.DeploymentFault, "reset", "read: connection reset by peer", false, 0, 61
	r := request("req-cut", 1514*ms, exchange.Cut, 200, attempt(0, 1514*ms, d, o))
	r.Failure = &exchange.Failure{Status: 502, Code: "evenkeel_upstream_closed", Cut: true,
		Message: "The model's server broke the connection before the answer was complete."}
	return r
}

// cutWhole is an answer that was not streamed.
func cutWhole() *exchange.Record {
	r := cutStream()
	r.Facts.ID, r.Facts.Stream = "req-cut-whole", false
	return r
}

func clientGone() *exchange.Record {
	d := decision(0, 0, "qwen3-32b", "gpu-2/qwen3-32b", deployment("gpu-2/qwen3-32b", 1, 812, .31, 64))
	return request("req-gone", 250*ms, exchange.ClientGone, 0,
		attempt(0, 250*ms, d, route.Outcome{Class: "client_gone", InputTokens: 1053}))
}

// fallback fails at the only deployment, tries it once more after a pause, then takes another model. Weights differ.
func fallback() *exchange.Record {
	gpu := deployment("gpu-2/qwen3-32b", 1, 812, .31, 64)
	gpu.Weight = .5
	first, again := decision(0, 0, "qwen3-32b", gpu.ID, gpu), decision(105*ms, 2, "qwen3-32b", gpu.ID, gpu)
	tried := decision(5*ms, 1, "qwen3-32b", "", cut(gpu, route.CutTried, "", 0))
	gone := decision(110*ms, 3, "qwen3-32b", "", cut(gpu, route.CutTried, "", 0))
	small := decision(110*ms, 4, "qwen3-4b", "cpu/qwen3-4b", deployment("cpu/qwen3-4b", 0, 0, 0, 0), deployment("cpu-2/qwen3-4b", 0, 0, 0, 0))
	fault := route.Outcome{Verdict: route.DeploymentFault, Class: "server_error", Answered: true, Status: 500}
	o := answered
	o.ServedModel = "qwen3-4b"
	r := request("req-fallback", 4430*ms, exchange.Complete, 200,
		attempt(0, 5*ms, first, fault), attempt(105*ms, 110*ms, again, fault), attempt(110*ms, 4430*ms, small, o))
	r.Depth = 1
	r.Refusals = []*route.Refusal{{Kind: route.Unavailable, Decision: tried}, {Kind: route.Unavailable, Decision: gone}}
	return r
}

// hostile holds what clients and engines can put into a record.
func hostile() *exchange.Record {
	r := failover()
	esc := "\x1b[2J\x1b]0;owned\x07\u202e\xff\r\n"
	r.Facts.ID, r.Facts.Model, r.Attempts[0].Outcome.Detail, r.Attempts[1].Outcome.ServedModel = "id"+esc, "model"+esc, "detail"+esc, "served"+esc
	return r
}

func unknownModel() *exchange.Record {
	r := request("req-unknown", 90*time.Microsecond, exchange.Refused, 404)
	r.Facts.Model = "qwen4"
	r.Refusals = []*route.Refusal{{Kind: route.NoModel, Decision: &route.Decision{At: start, Model: "qwen4"}}}
	r.Failure = &exchange.Failure{Status: 404, Code: "model_not_found", Final: true, Message: `The model "qwen4" does not exist here. GET /v1/models lists those that do.`}
	return r
}

var stories = []struct {
	name   string
	record func() *exchange.Record
}{
	{"simple", simple}, {"failover", failover}, {"hedge", hedge}, {"kept", kept}, {"left", left}, {"queue_shed", queueShed}, {"all_out", allOut}, {"many", many}, {"cut_stream", cutStream}, {"cut_whole", cutWhole},
	{"client_gone", clientGone}, {"fallback", fallback}, {"hostile", hostile}, {"unknown_model", unknownModel},
}

func TestStories(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			e := Explain(s.record())
			text := e.Text()
			golden(t, s.name+".txt", []byte(text))
			for i, c := range text {
				if c != '\n' && (c < ' ' || c == 0x7f || c == '\u202e') {
					t.Errorf("control character %q at %d", c, i)
				}
			}
			// A reader that only has the JSON tells the same story.
			if s.name == "hostile" {
				return // JSON replaces what is not UTF-8
			}
			data, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			var back Explanation
			if err := json.Unmarshal(data, &back); err != nil {
				t.Fatal(err)
			}
			if got := back.Text(); got != text {
				t.Errorf("from JSON:\n%s\nwant:\n%s", got, text)
			}
		})
	}
}

// The JSON is an interface: names and units must not change unnoticed.
func TestJSONForm(t *testing.T) {
	for _, name := range []string{"failover", "queue_shed"} {
		for _, s := range stories {
			if s.name == name {
				data, err := json.MarshalIndent(Explain(s.record()), "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				golden(t, name+".json", append(data, '\n'))
			}
		}
	}
}

// Weights that make a score infinite must not make an answer impossible.
func TestNumbersThatJSONCannotSay(t *testing.T) {
	c := deployment("a/m", 1, 1, 1, 1)
	c.Weight = 5e-324
	d := decision(0, 0, "m", "a/m", c, deployment("b/m", 1, 1, 1, 1))
	rec := request("x", ms, exchange.Complete, 200, attempt(0, ms, d, answered))
	if _, err := json.Marshal(Explain(rec)); err != nil {
		t.Error(err)
	}
}
