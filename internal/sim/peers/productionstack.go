package peers

import (
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// stackPrefix is the logic prefixaware of vLLM's production stack (src/vllm_router/routers/routing_logic.py): a trie of chunks of 128
// characters, and at random one of the engines with the longest match. No load, and nothing is ever forgotten (issue 687:
// out of memory); here the oldest is, beyond several times what any engine holds.
//
// With loadaware (pull request 1035) it is the highest matched/prompt − β·(load − mean)/max(1, mean), load being requests in
// flight and β 1.
type stackPrefix struct {
	books
	loadAware bool
}

const (
	stackChunk = 128 / charsPerToken
	stackRoom  = 1 << 22 // tokens for each engine
	stackBeta  = 1.0
)

func newStackPrefix(loadAware bool) func(sim.Vantage) sim.Policy {
	return func(at sim.Vantage) sim.Policy {
		b := newBooks(at, &indexOptions{block: stackChunk, room: stackRoom})
		return &stackPrefix{b, loadAware}
	}
}

func (*stackPrefix) String() string { return "production-stack" }

// Pick implements route.Strategy.
func (p *stackPrefix) Pick(r *route.Round) int {
	a := p.round(r)
	mean := 0.0
	for i := range r.Candidates {
		mean += float64(p.of(i).running) / float64(len(r.Candidates))
	}
	return anyOf(r, func(i int) float64 {
		matched := float64(p.cached[p.who[i]]) / float64(a.tokens)
		r.Note(i, "-matched", -matched)
		if !p.loadAware {
			return -matched
		}
		load := stackBeta * (float64(p.of(i).running) - mean) / max(1, mean)
		r.Note(i, "load", load)
		return load - matched
	})
}

// stackQPS is its routing by rate (logic priority, and session without a session): the engine with the fewest requests in the last
// 60 s (request-stats-window), the first of equals. The first engine that never had one wins at once.
type stackQPS struct {
	books
	sent []window
}

const stackWindow = 60 * time.Second

// window is when requests were sent, of those of the last stackWindow, and whether there ever was one.
type window struct {
	times []time.Duration // from head on
	head  int
	used  bool
}

func newStackQPS(at sim.Vantage) sim.Policy {
	b := newBooks(at, nil)
	return &stackQPS{b, make([]window, len(at.IDs))}
}

func (*stackQPS) String() string { return "production-stack" }

// Learn implements sim.Policy.
func (p *stackQPS) Learn(n *sim.Notice) {
	p.note(n)
	if n.Kind == sim.Sent {
		w := &p.sent[n.Deployment]
		w.used = true
		w.times = append(w.times, n.At)
	}
}

// count returns how many requests the last stackWindow saw.
func (w *window) count(now time.Duration) int {
	for w.head < len(w.times) && w.times[w.head] <= now-stackWindow {
		w.head++
	}
	if 2*w.head > len(w.times) {
		w.times = append(w.times[:0], w.times[w.head:]...)
		w.head = 0
	}
	return len(w.times) - w.head
}

// Pick implements route.Strategy.
func (p *stackQPS) Pick(r *route.Round) int {
	a := p.round(r)
	return first(r, func(i int) float64 {
		w := &p.sent[p.who[i]]
		if !w.used {
			return -1
		}
		qps := float64(w.count(a.now)) / stackWindow.Seconds()
		r.Note(i, "requests_per_second", qps)
		return qps
	})
}
