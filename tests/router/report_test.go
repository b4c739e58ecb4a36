//go:build !race

package router

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// What is played for the report.
const (
	warmUp   = 20 * time.Second // turns asked before do not count: caches fill, and learning balancers learn
	counted  = 60 * time.Second
	realLoad = 1.5 // of prompts, if nothing were cached
)

// peerLoads are the loads before mock engines, likewise.
var peerLoads = []float64{1, 1.8}

// realTargets are compared before real engines: each with a name for the report, the balancer, and whether talks are pinned.
var realTargets = []struct {
	name   string
	target target
	pinned bool
}{
	{"evenkeel predicted_wait", evenkeel("predicted_wait"), false},
	{"evenkeel least_connections", evenkeel("least_connections", noAffinity), false},
	{"perfect stickiness", evenkeel("round_robin"), true},
	{"nginx least_conn", nginx("least_conn", "", "least_conn;"), false},
}

// report is what docs/routing-real.md is written from.
type report struct {
	runs      int
	machine   string
	realSpeed speed
	share     float64   // least share of a processor that a real server had; +Inf = not known
	real      []realRow // as realTargets

	peers                 []peerRow
	loadBefore, loadAfter string
	versions              []string
}

type realRow struct {
	runs []figures
	all  []turn // of all runs
}

type peerRow struct {
	target target
	absent string    // why it was not measured; "" = it was
	loads  []figures // as peerLoads
}

// mean is that of one of the figures over runs.
func (r *realRow) mean(of func(figures) float64) (m float64) {
	for _, f := range r.runs {
		m += of(f) / float64(len(r.runs))
	}
	return m
}

func ttft(f figures) float64   { return f.mean }
func cached(f figures) float64 { return f.cached }

// pooled are the figures of all runs' turns together.
func (r *realRow) pooled() figures { return summarize(r.all, warmUp) }

// String returns the page.
func (b *report) String() string {
	var w strings.Builder
	fmt.Fprintf(&w, `# Routing before real engines, and beside real peers

Written by `+"`make routerbench`"+`; do not edit. It plays conversations over HTTP: each begins with one of a few system prompts, taken by Zipf's law, and grows with
every turn; the next question comes a random time after the answer. Conversations begin at random times at a fixed rate, and the
same ones meet every balancer. The first %v of each run do not count.

| | |
|---|---|
| machine | %s |

TTFT is the time from a request to its first token as the client sees it; hits are prompt tokens that engines found in their caches, per prompt token. A load of 1 is
what keeps all engines busy with prompts alone if nothing is cached.
`, warmUp, b.machine)
	b.writeReal(&w)
	if len(b.peers) > 0 {
		b.writePeers(&w)
	}
	return w.String()
}

func (b *report) writeReal(w *strings.Builder) {
	fmt.Fprintf(w, `
## Before two llama.cpp servers

Two real servers with one thread and a processor each, %d slots of %d tokens, %d MiB for prompts that lost their slot, and a model of a million random weights, which reads a
prompt in %.1f ms and %.3f ms for each token. Load %g, %d runs of %v with other conversations in each. "Perfect stickiness" pins every conversation to one of the two servers, in turn (with
`+"`x-evenkeel-pin`"+`); least_connections is without affinity. Means are means of the runs', from the least to the greatest in parentheses; medians and p99 are of all turns together.

`, realSlots, realContext, realCache, 1e3*b.realSpeed.fixed, 1e3*b.realSpeed.perToken, realLoad, b.runs, counted)
	if b.share < 0.9 {
		fmt.Fprintf(w, "**The machine was busy with other things**: for %.0f %% of the time in which a server had work, no processor was free for it. Times tell little.\n\n", 100*(1-b.share))
	}
	w.WriteString("| balancer | turns | failed | mean TTFT, s | p50 | p99 | hits | thought to be cached |\n|---|---|---|---|---|---|---|---|\n")
	for i, g := range realTargets {
		row := &b.real[i]
		least, most := math.Inf(1), 0.0
		for _, f := range row.runs {
			least, most = min(least, f.mean), max(most, f.mean)
		}
		f, thought := row.pooled(), "-"
		if !math.IsNaN(f.forecast) {
			thought = fmt.Sprintf("%.3f", f.forecast)
		}
		fmt.Fprintf(w, "| %s | %d | %d | %.3f (%.3f–%.3f) | %.3f | %.3f | %.3f | %s |\n", g.name, f.turns, f.failed, row.mean(ttft), least, most, f.p50, f.p99, row.mean(cached), thought)
	}
	w.WriteString("\n| what is wanted of predicted_wait | wanted | measured | |\n|---|---|---|---|\n")
	for _, c := range b.claims() {
		verdict := "met"
		if !c.met() {
			verdict = "**missed**"
		}
		fmt.Fprintf(w, "| %s | %s %g | %.3f | %s |\n", c.what, map[bool]string{true: "at least", false: "at most"}[c.least], c.limit, c.value, verdict)
	}
}

// claim is what the router is to reach.
type claim struct {
	what         string
	value, limit float64
	least        bool // limit is a lower one
}

func (c claim) met() bool { return c.least && c.value >= c.limit || !c.least && c.value <= c.limit }

func (b *report) claims() []claim {
	own, fewest, sticky, nginx := &b.real[0], &b.real[1], &b.real[2], &b.real[3]
	f := own.pooled()
	return []claim{
		{"hits, of those of perfect stickiness", own.mean(cached) / sticky.mean(cached), 0.8, true},
		{"mean TTFT, of that under least_connections", own.mean(ttft) / fewest.mean(ttft), 0.8, false},
		{"mean TTFT, of that behind nginx", own.mean(ttft) / nginx.mean(ttft), 0.8, false},
		{"p99, of that under least_connections", f.p99 / fewest.pooled().p99, 1, false},
		{"p99, of that behind nginx", f.p99 / nginx.pooled().p99, 1, false},
		{"difference of what was thought to be cached and what engines found, of the latter", math.Abs(f.forecast/f.cached - 1), 0.1, false},
		{"hits there, so that this says something", f.cached, 0.3, true},
	}
}

func (b *report) writePeers(w *strings.Builder) {
	fmt.Fprintf(w, `
## Beside real peers

Before %d mock engines `+"(`evenkeel mock --engine %s`)"+`: an 8B model on an H100, as `+"[mock.md](mock.md)"+` says. One run of %v for each load, so differences of a few per cent say nothing. The engines, the client and
the balancer share the machine: its load average was %s at the start and %s at the end. Versions: %s.

| balancer | load | turns | failed | prompt, tokens | mean TTFT, s | p50 | p99 | hits |
|---|---|---|---|---|---|---|---|---|
`, mockEngines, mockPreset, counted, b.loadBefore, b.loadAfter, strings.Join(b.versions, "; "))
	for i, load := range peerLoads {
		for _, p := range b.peers {
			if p.absent == "" {
				f := p.loads[i]
				fmt.Fprintf(w, "| %s | %g | %d | %d | %.0f | %.3f | %.3f | %.3f | %.3f |\n", p.target.name, load, f.turns, f.failed, f.prompt, f.mean, f.p50, f.p99, f.cached)
			}
		}
	}
	w.WriteString("\n")
	for _, p := range b.peers {
		if p.absent != "" {
			fmt.Fprintf(w, "- %s was not measured: %s\n", p.target.name, p.absent)
			continue
		}
		fmt.Fprintf(w, "- %s: %s.\n", p.target.name, p.target.how)
	}
}

func TestReport(t *testing.T) {
	f := func(seconds float64, hits int) realRow {
		var r realRow
		for i := range 2 {
			u := turn{at: warmUp + time.Duration(i), Answer: answered(seconds*float64(i+1), 1000, hits)}
			r.runs, r.all = append(r.runs, summarize([]turn{u}, warmUp)), append(r.all, u)
		}
		return r
	}
	b := &report{runs: 2, machine: "m", share: 0.5, real: []realRow{f(1, 500), f(2, 400), f(0.9, 700), f(1.2, 400)}, loadBefore: "1.0", loadAfter: "2.0"}
	for i, c := range b.claims()[:5] {
		if want := []bool{false, true, false, true, true}[i]; c.met() != want {
			t.Errorf("%+v: met is %v", c, !want)
		}
	}
	b.peers = []peerRow{{target: peers[0], loads: []figures{{turns: 1}, {turns: 2}}}, {target: peers[len(peers)-1], absent: "it is not there"}}
	text := b.String()
	for _, want := range []string{"| evenkeel least_connections | 2 | 0 | 3.000 (2.000–4.000) | 2.000 | 4.000 | 0.400 | - |", "at least 0.8 | 0.714 | **missed** |",
		"busy with other things**: for 50 %", "| evenkeel predicted_wait | 1.8 | 2 | 0 |", "vllm-router cache_aware was not measured: it is not there"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
