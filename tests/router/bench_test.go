//go:build !race && routerbench

package router

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"evenkeel/tests/harness"
	"evenkeel/tests/realengine"
)

const usualRuns = 5 // before real engines, when RUNS does not say

// TestRouterBench plays all for the report and writes it to the file that ROUTERBENCH names.
func TestRouterBench(t *testing.T) {
	file := os.Getenv("ROUTERBENCH")
	if file == "" {
		t.Fatal("ROUTERBENCH names no file: run make routerbench")
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

// version is what a peer says it is, for the report.
func version(t *testing.T, name string) string {
	t.Helper()
	var text []byte
	var err error
	switch name {
	case "nginx":
		text, err = exec.Command("nginx", "-v").CombinedOutput()
		text = []byte(strings.TrimPrefix(string(text), "nginx version: "))
	default:
		text, err = os.ReadFile(filepath.Join(harness.Root(t), ".cache", "peers", name, "version"))
	}
	if err != nil {
		return name + ", version not known"
	}
	return strings.TrimSpace(string(text))
}

// measure finds out how fast an idle engine is.
func measure(t *testing.T, url, model string, s shape) speed {
	t.Helper()
	sizes := []int{s.system.max / 4, s.system.max}
	var tokens, seconds [2]float64
	rng := rand.New(rand.NewPCG(1, 3))
	for i, n := range sizes {
		var ttft []float64
		for range 5 { // of which the median is taken, so that a machine that does other things is asked for less
			a, err := realengine.Ask(t.Context(), realengine.Question{
				URL: url, Model: model, Messages: []realengine.Message{{Role: "user", Content: say(rng, n)}}, Tokens: 2, Seed: 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			tokens[i], ttft = float64(a.Prompt), append(ttft, a.TTFT.Seconds())
		}
		slices.Sort(ttft)
		seconds[i] = quantile(ttft, 0.5)
	}
	v := speed{perToken: (seconds[1] - seconds[0]) / (tokens[1] - tokens[0]), tokensPerWord: (tokens[1] - tokens[0]) / float64(sizes[1]-sizes[0])}
	v.fixed = max(seconds[0]-v.perToken*tokens[0], 0)
	if v.perToken <= 0 {
		t.Fatalf("prompts of %v tokens took %v s", tokens, seconds)
	}
	return v
}

var cpuName = regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`)

// machine says where, when and what is measured.
func machine(t *testing.T) string {
	t.Helper()
	cpu, commit := runtime.GOARCH, "unknown"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil { // elsewhere the architecture must do
		if found := cpuName.FindSubmatch(text); found != nil {
			cpu = string(found[1])
		}
	}
	if out, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil { // an export has no repository
		commit = strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("%s, %d cores, %s/%s, %s, on %s, commit %s", cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), time.Now().UTC().Format("2006-01-02"), commit)
}

// loadAverage is that of the last minute.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "not known"
	}
	return strings.Fields(string(text))[0]
}
