package sim

import (
	"math"
	"time"

	"evenkeel/internal/exchange"
)

// Counts are what went in and out, over a whole run. Once all is over, Arrived = Done + Failed.
type Counts struct {
	Arrived, Done, Failed int // requests
	Attempts, Hedges      int // of them, and those that began beside another one
	Dispatched            int // attempts that a server was given

	PromptTokens, CachedTokens, OutputTokens int // of requests that are done, as servers reported
	AskedPrompt, AskedOutput                 int // of the same requests, as the workload says
}

// Goal is what an answer must keep to count for goodput; 0 = whatever it takes.
type Goal struct {
	TTFT time.Duration // arrival to first content
	ITL  time.Duration // mean time between its tokens
}

// mostOccupancy is the longest queue that Result.Occupancy tells apart.
const mostOccupancy = 64

// Result is what a run came to. All but Counts is about requests that came after the burn-in; times are in seconds.
type Result struct {
	Counts   Counts
	Results  map[exchange.Result]int // how exchanges ended
	TTFT     Series                  // arrival to first content at the client; of an answer that came all at once, to its end
	ITL      Series                  // mean time between tokens, of answers with two or more
	Response Series                  // arrival to the end of the answer
	Goodput  float64                 // share of requests that were answered within the Goal
	HitShare float64                 // cached tokens per prompt token of those that were answered

	// Imbalance is what the busiest deployment has in the mean, of requests that run or wait, in multiples of the mean
	// over all deployments.
	Imbalance float64
	// InSystem is the mean number of requests that each deployment has.
	InSystem []float64
	// Occupancy is the share of time, over all deployments, for which one has as many requests as the index says, or
	// more for the last.
	Occupancy [mostOccupancy + 1]float64
	// Picks is how many attempts each deployment was given.
	Picks []int
}

// measure gathers a Result.
type measure struct {
	counts   Counts
	results  map[exchange.Result]int
	goal     Goal
	measured int // requests that came after the burn-in and are over
	good     int
	prompt   int // tokens of those that were answered
	cached   int
	ttft     Series
	itl      Series
	response Series
	since    time.Duration // of the integrals over time
	until    time.Duration // and their end, once that is reached
	frozen   bool
	held     [mostOccupancy + 1]float64
}

// load is what one deployment holds, over time.
type load struct {
	inSystem int
	changed  time.Duration
	area     float64 // requests × seconds
	picks    int
}

// change adds by to what a deployment holds.
func (m *measure) change(now time.Duration, l *load, by int) {
	m.advance(now, l)
	l.inSystem += by
}

func (m *measure) advance(now time.Duration, l *load) {
	if m.frozen {
		return
	}
	d := (now - l.changed).Seconds()
	l.area += d * float64(l.inSystem)
	m.held[min(l.inSystem, mostOccupancy)] += d
	l.changed = now
}

// burn forgets what was measured over time so far.
func (m *measure) burn(now time.Duration, loads []*load) {
	for _, l := range loads {
		m.advance(now, l)
		l.area, l.picks = 0, 0
	}
	m.held, m.since = [mostOccupancy + 1]float64{}, now
}

// freeze ends what is measured over time: from here on requests only end.
func (m *measure) freeze(now time.Duration, loads []*load) {
	for _, l := range loads {
		m.advance(now, l)
	}
	m.frozen, m.until = true, now
}

// answer is what came of one request, for measurement.
type answer struct {
	ordinal          int // among those that count, from 0; -1 = it came during the burn-in
	cached, prompt   int
	output           int
	firstTo, lastTo  time.Duration // first content and the end, as times since the simulation began
	request          *Request
	attempts, hedges int
}

// over takes one request that has ended.
func (m *measure) over(result exchange.Result, a *answer) {
	c := &m.counts
	c.Attempts += a.attempts
	c.Hedges += a.hedges
	if result == exchange.Complete {
		c.Done++
		c.PromptTokens += a.prompt
		c.CachedTokens += a.cached
		c.OutputTokens += a.output
		c.AskedPrompt += a.request.PromptTokens
		c.AskedOutput += a.request.OutputTokens
	} else {
		c.Failed++
	}
	if a.ordinal < 0 {
		return
	}
	m.measured++
	m.results[result]++
	if result != exchange.Complete {
		return
	}
	m.prompt += a.prompt
	m.cached += a.cached
	ttft, itl := a.firstTo-a.request.At, time.Duration(0)
	m.ttft.Add(a.ordinal, ttft.Seconds())
	m.response.Add(a.ordinal, (a.lastTo - a.request.At).Seconds())
	if a.output > 1 && a.lastTo > a.firstTo {
		itl = (a.lastTo - a.firstTo) / time.Duration(a.output-1)
		m.itl.Add(a.ordinal, itl.Seconds())
	}
	if (m.goal.TTFT == 0 || ttft <= m.goal.TTFT) && (m.goal.ITL == 0 || itl <= m.goal.ITL) {
		m.good++
	}
}

// result sums up at a time.
func (m *measure) result(now time.Duration, loads []*load) *Result {
	r := &Result{Counts: m.counts, Results: map[exchange.Result]int{}, TTFT: m.ttft.clone(), ITL: m.itl.clone(), Response: m.response.clone()}
	for k, n := range m.results {
		r.Results[k] = n
	}
	r.Goodput = share(m.good, m.measured)
	r.HitShare = share(m.cached, m.prompt)
	if m.frozen {
		now = m.until
	}
	span := (now - m.since).Seconds()
	most, sum := 0.0, 0.0
	for _, l := range loads {
		m.advance(now, l)
		mean := 0.0
		if span > 0 {
			mean = l.area / span
		}
		r.InSystem = append(r.InSystem, mean)
		r.Picks = append(r.Picks, l.picks)
		most, sum = math.Max(most, mean), sum+mean
	}
	if sum > 0 {
		r.Imbalance = most / (sum / float64(len(loads)))
	}
	for i, held := range m.held {
		if span > 0 {
			r.Occupancy[i] = held / span / float64(len(loads))
		}
	}
	return r
}

func share(part, all int) float64 {
	if all == 0 {
		return 0
	}
	return float64(part) / float64(all)
}
