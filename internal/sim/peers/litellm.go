package peers

import (
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// liteLLMShuffle is LiteLLM's default, simple-shuffle (router_strategy/simple_shuffle.py): at random in proportion to weight.
type liteLLMShuffle struct{ books }

func newLiteLLMShuffle(at sim.Vantage) sim.Policy {
	b := newBooks(at, nil)
	return &liteLLMShuffle{b}
}

func (*liteLLMShuffle) String() string { return "litellm" }

// Pick implements route.Strategy.
func (p *liteLLMShuffle) Pick(r *route.Round) int {
	sum := 0.0
	for i := range r.Candidates {
		sum += r.Candidates[i].Weight
	}
	x := r.Float64() * sum
	for i := range r.Candidates {
		if x -= r.Candidates[i].Weight; x < 0 {
			return i
		}
	}
	return len(r.Candidates) - 1
}

// liteLLMBusy is LiteLLM's least-busy (router_strategy/least_busy.py): the fewest requests in flight, the first of equals.
type liteLLMBusy struct{ books }

func newLiteLLMBusy(at sim.Vantage) sim.Policy {
	b := newBooks(at, nil)
	return &liteLLMBusy{b}
}

func (*liteLLMBusy) String() string { return "litellm" }

// Pick implements route.Strategy.
func (p *liteLLMBusy) Pick(r *route.Round) int {
	p.round(r)
	return first(r, func(i int) float64 { return float64(p.of(i).running) })
}

// liteLLMLatency is LiteLLM's latency-based-routing (router_strategy/lowest_latency.py): the lowest mean of a list of 10 samples
// (max_latency_list_size), at random among those within lowest_latency_buffer = 0 of it. A sample of a streamed answer is the time to
// the first token, else the seconds per output token. One without samples counts as 0. Until September 2026 the time to the first
// token was divided by the output tokens (issue 40202): the mended reading is taken. A full list keeps its first nine and
// replaces the tenth, as the source has it.
type liteLLMLatency struct {
	books
	lists []latencies
}

type latencies struct{ stream, whole []float64 }

const liteLLMListSize = 10

func newLiteLLMLatency(at sim.Vantage) sim.Policy {
	b := newBooks(at, nil)
	return &liteLLMLatency{b, make([]latencies, len(at.IDs))}
}

func (*liteLLMLatency) String() string { return "litellm" }

// Learn implements sim.Policy.
func (p *liteLLMLatency) Learn(n *sim.Notice) {
	c := p.note(n)
	if n.Kind != sim.Over || !n.OK {
		return
	}
	l := &p.lists[n.Deployment]
	l.whole = listed(l.whole, (n.At-c.sent).Seconds()/float64(max(n.Output, 1)))
	if n.TTFT > 0 {
		l.stream = listed(l.stream, n.TTFT.Seconds())
	}
}

func listed(l []float64, seconds float64) []float64 {
	if len(l) == liteLLMListSize {
		l = l[:liteLLMListSize-1]
	}
	return append(l, seconds)
}

// Pick implements route.Strategy.
func (p *liteLLMLatency) Pick(r *route.Round) int {
	p.round(r)
	return anyOf(r, func(i int) float64 {
		l := p.lists[p.who[i]].whole
		if r.Facts.Stream {
			l = p.lists[p.who[i]].stream
		}
		sum := 0.0
		for _, s := range l {
			sum += s
		}
		v := sum / float64(max(len(l), 1))
		r.Note(i, "mean_latency_seconds", v)
		return v
	})
}
