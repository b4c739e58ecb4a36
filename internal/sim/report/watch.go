package report

import (
	"strconv"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// WatchOptions describe a Watch.
type WatchOptions struct {
	Deployments []string      // IDs, in the order in which they are shown
	BurnIn      time.Duration // as of the simulation: requests that come before do not count
	Goal        sim.Goal      // as of the simulation
	// Cost returns what an attempt costs, in dollars; nil: there are no prices.
	Cost func(*exchange.Attempt) float64
	// Choices has the Watch keep where each request went first: 16 bytes for each. Until Report.Add it also keeps 24 bytes for
	// each answer; all else does not grow with the requests.
	Choices bool
}

// Watch gathers, request by request, what a sim.Result does not tell: what was where over time, what each tenant got, what
// it cost. Its Record is a sim.Options.Record. It is not safe for concurrent use.
type Watch struct {
	o       WatchOptions
	index   map[string]int // of deployments
	all     Tally
	tenants map[string]*Tally
	load    []timeline // of each deployment: requests × seconds
	prompt  timeline   // tokens of answered requests, by arrival
	cached  timeline   // likewise
	ended   timeline   // requests, by arrival
	good    timeline   // of them, those within the goal
	answer  timeline   // of them, those that were answered in full
	waited  timeline   // seconds to their first content
	firsts  []choice   // of the n-th request
	replies []reply    // likewise, until the run is paired (Report.Add)
}

// Tally sums up requests that count.
type Tally struct {
	Requests int
	Results  map[exchange.Result]int
	Statuses map[int]int // what clients saw; 0 = they left before
	TTFT     sim.Series  // seconds from arrival to first content, of complete answers
	Good     sim.Series  // 1 for a complete answer within the goal, else 0
	Dollars  sim.Series  // of each request, over all its attempts

	PromptTokens, CachedTokens, OutputTokens int // of complete answers

	tenant string
}

// NewWatch returns a Watch that has seen nothing.
func NewWatch(o WatchOptions) *Watch {
	w := &Watch{o: o, index: map[string]int{}, tenants: map[string]*Tally{}, load: make([]timeline, len(o.Deployments))}
	for i, id := range o.Deployments {
		w.index[id] = i
	}
	return w
}

// Record takes a request that is over.
func (w *Watch) Record(r *sim.Request, rec *exchange.Record) {
	w.chosen(rec)
	for i := range rec.Attempts {
		a := &rec.Attempts[i]
		if d, ok := w.index[a.Deployment]; ok {
			w.load[d].spread(a.Started.Sub(sim.Epoch).Seconds(), a.Ended.Sub(sim.Epoch).Seconds())
		}
	}
	if r.At < w.o.BurnIn {
		return
	}
	o := w.outcome(r, rec)
	w.all.add(&o)
	t := w.tenants[r.Tenant]
	if t == nil {
		t = &Tally{tenant: r.Tenant}
		w.tenants[r.Tenant] = t
	}
	t.add(&o)
	w.reply(&o, t)
	at := r.At.Seconds()
	w.ended.add(at, 1)
	w.good.add(at, o.good)
	if o.result == exchange.Complete {
		w.answer.add(at, 1)
		w.waited.add(at, o.ttft)
	}
	w.prompt.add(at, float64(o.prompt))
	w.cached.add(at, float64(o.cached))
}

// reply keeps an answer, for pairs.
func (w *Watch) reply(o *outcome, to *Tally) {
	if o.result != exchange.Complete {
		return
	}
	if missing := o.ordinal + 1 - len(w.replies); missing > 0 {
		w.replies = append(w.replies, make([]reply, missing)...)
	}
	w.replies[o.ordinal] = reply{o.ttft, to, int32(o.prompt), int32(o.cached)}
}

// Ordinal returns the place in the order of arrival of the request that a record is about, from 0.
func Ordinal(rec *exchange.Record) int {
	n, err := strconv.Atoi(rec.Facts.ID)
	if err != nil || n < 1 {
		panic("BUG: report: the simulation's requests are counted from 1, this one is " + strconv.Quote(rec.Facts.ID))
	}
	return n - 1
}

// FirstChoice returns the decision by which a request went somewhere first, nil if it went nowhere.
func FirstChoice(rec *exchange.Record) *route.Decision {
	if len(rec.Attempts) == 0 {
		return nil
	}
	return rec.Attempts[0].Decision
}

// choice is where a request went first.
type choice struct {
	at    int32  // index of the deployment, or one of those below
	equal uint64 // deployments that it could as well have gone to, by lot; of the first 64
}

const (
	unseen  = iota - 2 // it is not over
	nowhere            // no deployment was found for it
)

func (w *Watch) chosen(rec *exchange.Record) {
	if !w.o.Choices {
		return
	}
	for len(w.firsts) <= Ordinal(rec) {
		w.firsts = append(w.firsts, choice{at: unseen})
	}
	w.firsts[Ordinal(rec)] = w.choice(FirstChoice(rec))
}

func (w *Watch) choice(d *route.Decision) choice {
	c := choice{at: nowhere}
	if d == nil {
		return c
	}
	var best float64
	scored := false
	for i := range d.Candidates {
		if d.Candidates[i].ID == d.Chosen {
			best, scored = d.Candidates[i].Score()
		}
	}
	for i := range d.Candidates {
		k, known := w.index[d.Candidates[i].ID]
		if !known {
			continue
		}
		if d.Candidates[i].ID == d.Chosen {
			c.at = int32(k)
		}
		if score, ok := d.Candidates[i].Score(); scored && ok && score == best && d.Candidates[i].Cut == route.CutNone && k < 64 {
			c.equal |= 1 << k
		}
	}
	return c
}

// Differing returns the first requests, at most so many, about which two simulations differ: they went elsewhere first in the
// one than in the other, and not because lots were drawn among deployments that were equally good for both. It also returns
// how many there are of these, and how many that lots alone made go elsewhere. Both Watches must keep Choices; requests that
// are not over in both are left out.
func Differing(a, b *Watch, most int) (ordinals []int, differ, byLot int) {
	for n := range min(len(a.firsts), len(b.firsts)) {
		x, y := a.firsts[n], b.firsts[n]
		if x.at == unseen || y.at == unseen || a.place(x) == b.place(y) {
			continue
		}
		if a.allows(x, b.place(y)) && b.allows(y, a.place(x)) {
			byLot++
			continue
		}
		if differ++; len(ordinals) < most {
			ordinals = append(ordinals, n)
		}
	}
	return ordinals, differ, byLot
}

// place names where a choice is, "" = nowhere.
func (w *Watch) place(c choice) string {
	if c.at < 0 {
		return ""
	}
	return w.o.Deployments[c.at]
}

// allows reports whether a choice could as well have been another deployment.
func (w *Watch) allows(c choice, other string) bool {
	k, known := w.index[other]
	return known && k < 64 && c.equal>>k&1 == 1
}

// outcome is what a request came to.
type outcome struct {
	ordinal                int
	result                 exchange.Result
	status                 int
	ttft                   float64 // seconds
	good                   float64
	dollars                float64
	prompt, cached, output int
}

func (w *Watch) outcome(r *sim.Request, rec *exchange.Record) outcome {
	o := outcome{ordinal: Ordinal(rec), result: rec.Result, status: rec.Status}
	if w.o.Cost != nil {
		for i := range rec.Attempts {
			o.dollars += w.o.Cost(&rec.Attempts[i])
		}
	}
	last := rec.Last()
	if rec.Result != exchange.Complete || last == nil {
		return o
	}
	o.prompt, o.cached, o.output = last.Outcome.InputTokens, last.Outcome.CachedTokens, last.Outcome.OutputTokens
	first, end := rec.Content, rec.Ended
	if first.IsZero() {
		first = end
	}
	ttft := first.Sub(sim.Epoch) - r.At
	o.ttft = ttft.Seconds()
	goal := w.o.Goal
	var itl time.Duration
	if o.output > 1 {
		itl = end.Sub(first) / time.Duration(o.output-1)
	}
	if (goal.TTFT == 0 || ttft <= goal.TTFT) && (goal.ITL == 0 || itl <= goal.ITL) {
		o.good = 1
	}
	return o
}

func (t *Tally) add(o *outcome) {
	if t.Results == nil {
		t.Results, t.Statuses = map[exchange.Result]int{}, map[int]int{}
	}
	t.Requests++
	t.Results[o.result]++
	t.Statuses[o.status]++
	t.Good.Add(o.ordinal, o.good)
	t.Dollars.Add(o.ordinal, o.dollars)
	if o.result != exchange.Complete {
		return
	}
	t.TTFT.Add(o.ordinal, o.ttft)
	t.PromptTokens += o.prompt
	t.CachedTokens += o.cached
	t.OutputTokens += o.output
}
