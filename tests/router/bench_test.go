//go:build !race

package router

import (
	"math"
	"os"
	"strconv"
	"testing"
	"time"
)

// What is played for the report.
const (
	usualRuns = 5                // before real engines, when RUNS does not say
	warmUp    = 20 * time.Second // turns asked before do not count: caches fill, and learning balancers learn
	counted   = 60 * time.Second
	realLoad  = 1.5 // of prompts, if nothing were cached
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

// TestRouterBench plays all for the report and writes it to the file that ROUTERBENCH names.
func TestRouterBench(t *testing.T) {
	file := os.Getenv("ROUTERBENCH")
	if file == "" {
		t.Skip("make routerbench runs it")
	}
	runs := usualRuns
	if text := os.Getenv("RUNS"); text != "" {
		var err error
		if runs, err = strconv.Atoi(text); err != nil || runs < 1 {
			t.Fatalf("RUNS=%s: it must be a number from 1 on, such as 5", text)
		}
	}
	b := &report{runs: runs, machine: machine(t)}
	for _, part := range []func(*testing.T, *report){benchReal, benchPeers} {
		part(t, b)
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil { // also what is there so far, if the rest does not come
			t.Fatal(err)
		}
	}
}

// benchReal plays the same talks through each balancer, in turn, and other talks in each run.
func benchReal(t *testing.T, b *report) {
	r := startReal(t)
	b.realSpeed = measure(t, r.servers[0].URL, r.fleet.model, realShape)
	rate := realShape.rate(b.realSpeed, realServers, realLoad)
	b.real = make([]realRow, len(realTargets))
	b.share = math.Inf(1)
	for run := range b.runs {
		talks := realShape.talks(uint64(run+1), rate, warmUp+counted)
		for k := range realTargets {
			i := (k + run) % len(realTargets) // what the machine does besides is to meet all alike
			g := realTargets[i]
			var pin pins
			if g.pinned {
				pin = r.fleet.sticky
			}
			turns, share := r.run(t, g.target, talks, pin, warmUp+counted)
			row := &b.real[i]
			row.runs, row.all = append(row.runs, summarize(turns, warmUp)), append(row.all, turns...)
			if !math.IsNaN(share) {
				b.share = min(b.share, share)
			}
			t.Logf("run %d, %s: %v; a server had a processor for %.0f %% of the time in which it had work", run+1, g.name, row.runs[run], 100*share)
		}
	}
}

// benchPeers plays the same talks through each balancer, before engines that have cached nothing.
func benchPeers(t *testing.T, b *report) {
	probe := startMocks(t)
	v := measure(t, probe.urls[0], mockModel, mockShape)
	b.loadBefore = loadAverage()
	for _, g := range peers {
		row := peerRow{target: g}
		if g.ready != nil {
			if err := g.ready(t); err != nil {
				row.absent = err.Error()
				b.peers = append(b.peers, row)
				continue
			}
		}
		for _, load := range peerLoads {
			talks := mockShape.talks(1, mockShape.rate(v, mockEngines, load), warmUp+counted)
			f := startMocks(t)
			lb := g.start(t, f)
			turns := play(t.Context(), lb.url, f.model, talks, nil, warmUp+counted)
			if lb.evenkeel != nil {
				learnForecasts(t, lb.evenkeel, turns)
			}
			lb.stop()
			row.loads = append(row.loads, summarize(turns, warmUp))
			t.Logf("%s at %g: %v", g.name, load, row.loads[len(row.loads)-1])
		}
		b.peers = append(b.peers, row)
	}
	b.loadAfter = loadAverage()
	for _, name := range []string{"nginx", "haproxy", "sglang-router", "vllm-router"} {
		b.versions = append(b.versions, version(t, name))
	}
}
