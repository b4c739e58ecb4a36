package report

import (
	"maps"
	"math"
	"slices"

	"evenkeel/internal/sim"
	"evenkeel/internal/sim/study"
)

// Report is what simulations of one workload came to.
type Report struct {
	Title string
	Facts []Fact // about workload and fleet, for its head
	// Note is what a reader must know before all else, such as that it was interrupted; "" = nothing.
	Note     string
	Policies []Policy // all are compared with the first
	Priced   bool     // costs are known
	Goal     sim.Goal
	Sections []Section // come last; not in the JSON
}

// Section is text with a title. It is laid out in columns.
type Section struct{ Title, Text string }

// Fact is one thing that was given.
type Fact struct{ Name, Value string }

// Policy is one policy, or one configuration.
type Policy struct {
	Name   string
	Origin string // whose it is, "" = Evenkeel's
	Runs   []Run  // by seed, the same seeds as of all others
}

// Run is one simulation. Runs of one seed saw the same requests.
type Run struct {
	Seed   uint64
	Result *sim.Result
	Watch  *Watch
	// TraceShare is how much of a trace was played, above 1 if some of it came more than once; 0 = traffic that is made up, which no
	// other seed has.
	TraceShare float64

	pairing *pairing // with the first policy's run of this seed; nil for that itself
}

// Row is one line of the table, and one object of the JSON. Times are in seconds, shares from 0 to 1. Over several seeds
// each number is the mean of what each came to, and counts are sums. What is not known is nil: of nothing that was answered no
// time is known.
type Row struct {
	Strategy string `json:"strategy"`
	Origin   string `json:"origin,omitempty"`
	Seeds    int    `json:"seeds"`

	Requests  int            `json:"requests"` // measured, as all that follows
	Completed int            `json:"completed"`
	Failed    int            `json:"failed"`
	Results   map[string]int `json:"results"`
	Status429 int            `json:"status_429"`

	TTFTMean     *float64 `json:"ttft_mean_seconds"`
	TTFTInterval *float64 `json:"ttft_mean_interval_seconds"` // half of its 95 % interval; null: too few requests to tell
	TTFTP50      *float64 `json:"ttft_p50_seconds"`
	TTFTP90      *float64 `json:"ttft_p90_seconds"`
	TTFTP99      *float64 `json:"ttft_p99_seconds"`
	P99Interval  *float64 `json:"ttft_p99_interval_seconds"` // from seeds alone; null with one
	ITLMean      *float64 `json:"itl_mean_seconds"`
	ITLP99       *float64 `json:"itl_p99_seconds"`
	ResponseMean *float64 `json:"response_mean_seconds"`
	ResponseP99  *float64 `json:"response_p99_seconds"`
	Goodput      *float64 `json:"goodput"`
	HitShare     *float64 `json:"hit_share"`
	Cost         *float64 `json:"cost_dollars"` // null: no prices are known
	Imbalance    *float64 `json:"imbalance"`
	Picks        []int    `json:"picks"`  // attempts that each deployment was given
	Stable       bool     `json:"stable"` // backlog did not grow

	Versus  *Difference `json:"versus,omitempty"`  // how it differs from the first row
	Tenants []TenantRow `json:"tenants,omitempty"` // if requests name any
}

// Difference is how a row differs from the first one, on the same requests. Negative means less. Times and hit share are of the
// requests that both answered in full; the rest is of all.
type Difference struct {
	Strategy     string   `json:"strategy"` // of the first row
	Requests     int      `json:"requests"` // that both answered
	TTFTMean     *float64 `json:"ttft_mean_seconds"`
	TTFTInterval *float64 `json:"ttft_mean_interval_seconds"` // half of the 95 % interval; null: too few requests to tell
	TTFTP99      *float64 `json:"ttft_p99_seconds"`
	P99Interval  *float64 `json:"ttft_p99_interval_seconds"` // from seeds alone; null with one
	Goodput      *float64 `json:"goodput"`
	GoodInterval *float64 `json:"goodput_interval"`
	HitShare     *float64 `json:"hit_share"`
	Cost         *float64 `json:"cost_dollars"`
	CostInterval *float64 `json:"cost_interval_dollars"`
	Status429    int      `json:"status_429"`
	Failed       int      `json:"failed"`

	baseTTFT *float64 // mean of the first row, of the same requests
}

// TenantRow is what one tenant got.
type TenantRow struct {
	Tenant       string   `json:"tenant"` // "" = requests that name none
	Requests     int      `json:"requests"`
	Completed    int      `json:"completed"`
	Status429    int      `json:"status_429"`
	TTFTMean     *float64 `json:"ttft_mean_seconds"`
	TTFTP99      *float64 `json:"ttft_p99_seconds"`
	Goodput      *float64 `json:"goodput"`
	HitShare     *float64 `json:"hit_share"`
	Cost         *float64 `json:"cost_dollars"`
	TTFTChange   *float64 `json:"ttft_mean_change_seconds"` // against the first row, of the requests that both answered
	TTFTInterval *float64 `json:"ttft_mean_change_interval_seconds"`
	CostChange   *float64 `json:"cost_change_dollars"`
	CostInterval *float64 `json:"cost_change_interval_dollars"`
}

// Rows returns a row for each policy, in order.
func (r *Report) Rows() []Row {
	rows := make([]Row, 0, len(r.Policies))
	for i := range r.Policies {
		p := &r.Policies[i]
		row := r.row(p)
		if i > 0 {
			row.Versus = r.difference(&row, &rows[0], p)
		}
		row.Tenants = r.tenants(p, i > 0)
		rows = append(rows, row)
	}
	return rows
}

func (r *Report) row(p *Policy) Row {
	row := Row{Strategy: p.Name, Origin: p.Origin, Seeds: len(p.Runs), Results: map[string]int{}, Picks: []int{}, Stable: true}
	mean := func(of func(*sim.Result) *sim.Series) *float64 {
		return p.mean(func(x *Run) float64 { return meanOf(of(x.Result)) })
	}
	quantile := func(of func(*sim.Result) *sim.Series, q float64) *float64 {
		return p.mean(func(x *Run) float64 { return quantileOf(of(x.Result), q) })
	}
	ttft := func(s *sim.Result) *sim.Series { return &s.TTFT }
	itl := func(s *sim.Result) *sim.Series { return &s.ITL }
	response := func(s *sim.Result) *sim.Series { return &s.Response }
	row.TTFTMean, row.ITLMean, row.ResponseMean = mean(ttft), mean(itl), mean(response)
	row.TTFTInterval = p.interval(func(x *Run) (float64, float64) { return meanOf(&x.Result.TTFT), x.Result.TTFT.Error() })
	row.TTFTP50, row.TTFTP90, row.TTFTP99 = quantile(ttft, .5), quantile(ttft, .9), quantile(ttft, .99)
	row.P99Interval = p.between(func(x *Run) float64 { return quantileOf(&x.Result.TTFT, .99) })
	row.ITLP99, row.ResponseP99 = quantile(itl, .99), quantile(response, .99)
	row.Goodput = p.mean(func(x *Run) float64 { return meanOf(&x.Watch.all.Good) })
	row.HitShare = p.mean(func(x *Run) float64 { return ratio(x.Watch.all.CachedTokens, x.Watch.all.PromptTokens) })
	row.Imbalance = p.mean(func(x *Run) float64 {
		if x.Result.Imbalance == 0 { // nothing was anywhere
			return math.NaN()
		}
		return x.Result.Imbalance
	})
	for i := range p.Runs {
		x := &p.Runs[i]
		t := &x.Watch.all
		row.Requests += t.Requests
		for result, n := range t.Results {
			row.Results[string(result)] += n
		}
		row.Completed += t.Completed()
		row.Status429 += t.Statuses[429]
		row.Stable = row.Stable && x.Watch.stable()
		for d, n := range x.Result.Picks {
			if len(row.Picks) <= d {
				row.Picks = append(row.Picks, 0)
			}
			row.Picks[d] += n
		}
	}
	row.Failed = row.Requests - row.Completed
	row.Cost = r.dollars(p, everyone)
	return row
}

func (r *Report) difference(row, first *Row, p *Policy) *Difference {
	d := &Difference{
		Strategy: first.Strategy, Goodput: minus(row.Goodput, first.Goodput), Status429: row.Status429 - first.Status429, Failed: row.Failed - first.Failed,
	}
	for i := range p.Runs {
		d.Requests += p.Runs[i].pairing.all.requests
	}
	both := func(x *Run) *pair { return &x.pairing.all }
	d.TTFTMean, d.TTFTInterval = p.ttftChange(both)
	d.baseTTFT = p.mean(func(x *Run) float64 { return meanOf(&both(x).base.ttft) })
	p99 := func(x *Run) float64 { return quantileOf(&both(x).own.ttft, .99) - quantileOf(&both(x).base.ttft, .99) }
	d.TTFTP99, d.P99Interval = p.mean(p99), p.between(p99)
	d.HitShare = p.mean(func(x *Run) float64 { return both(x).own.hitShare() - both(x).base.hitShare() })
	d.GoodInterval = p.paired(&r.Policies[0], func(x *Run) *sim.Series { return &x.Watch.all.Good })
	d.Cost, d.CostInterval = r.costChange(p, everyone)
	return d
}

// ttftChange is by how much the mean time to the first token is above the first policy's, and half of the 95 % interval.
func (p *Policy) ttftChange(of func(*Run) *pair) (change, interval *float64) {
	change = p.mean(func(x *Run) float64 { return meanOf(&of(x).own.ttft) - meanOf(&of(x).base.ttft) })
	return change, p.interval(func(x *Run) (float64, float64) { return of(x).ttft() })
}

// tenants returns what each tenant got, nil if requests name none.
func (r *Report) tenants(p *Policy, compare bool) []TenantRow {
	names := map[string]bool{}
	for i := range p.Runs {
		for name := range p.Runs[i].Watch.tenants {
			names[name] = true
		}
	}
	if len(names) == 0 || len(names) == 1 && names[""] {
		return nil
	}
	var rows []TenantRow
	for _, name := range slices.Sorted(maps.Keys(names)) {
		of := func(x *Run) *Tally { return x.Watch.tenant(name) }
		row := TenantRow{Tenant: name}
		prompt, cached := 0, 0
		for i := range p.Runs {
			t := of(&p.Runs[i])
			row.Requests += t.Requests
			row.Completed += t.Completed()
			row.Status429 += t.Statuses[429]
			prompt += t.PromptTokens
			cached += t.CachedTokens
		}
		row.HitShare = known(ratio(cached, prompt))
		row.TTFTMean = p.mean(func(x *Run) float64 { return meanOf(&of(x).TTFT) })
		row.TTFTP99 = p.mean(func(x *Run) float64 { return quantileOf(&of(x).TTFT, .99) })
		row.Goodput = p.mean(func(x *Run) float64 { return meanOf(&of(x).Good) })
		row.Cost = r.dollars(p, of)
		if compare {
			row.TTFTChange, row.TTFTInterval = p.ttftChange(func(x *Run) *pair { return x.pairing.tenant(name) })
			row.CostChange, row.CostInterval = r.costChange(p, of)
		}
		rows = append(rows, row)
	}
	return rows
}

// everyone is the tally of all tenants together.
func everyone(x *Run) *Tally { return &x.Watch.all }

// dollars is what all requests of a tally cost, over the seeds; nil without prices.
func (r *Report) dollars(p *Policy, of func(*Run) *Tally) *float64 {
	if !r.Priced {
		return nil
	}
	sum := 0.0
	for i := range p.Runs {
		d := &of(&p.Runs[i]).Dollars
		sum += d.Mean() * float64(d.Count())
	}
	return &sum
}

// costChange is how much more a policy costs than the first, and half of the 95 % interval.
func (r *Report) costChange(p *Policy, of func(*Run) *Tally) (change, interval *float64) {
	if !r.Priced {
		return nil, nil
	}
	base := &r.Policies[0]
	d := *r.dollars(p, of) - *r.dollars(base, of)
	interval = p.paired(base, func(x *Run) *sim.Series { return &of(x).Dollars })
	if interval != nil { // of the mean over requests
		n := 0
		for i := range p.Runs {
			n += of(&p.Runs[i]).Requests
		}
		*interval *= float64(n)
	}
	return &d, interval
}

// mean is the mean over the seeds of which a number is known, and not NaN; nil if there is none.
func (p *Policy) mean(of func(*Run) float64) *float64 {
	sum, n := 0.0, 0.0
	for i := range p.Runs {
		if x := of(&p.Runs[i]); !math.IsNaN(x) {
			sum += x
			n++
		}
	}
	return known(sum / n)
}

// known is nil for NaN.
func known(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	return &x
}

// paired returns half of the 95 % interval of the mean by which a policy differs from another on the same requests, nil if it
// cannot be told.
func (p *Policy) paired(base *Policy, of func(*Run) *sim.Series) *float64 {
	i := -1
	return p.interval(func(x *Run) (float64, float64) {
		i++
		return sim.Paired(of(x), of(&base.Runs[i]))
	})
}

// interval returns half of the 95 % interval of a mean over seeds, of each of which a mean and its standard error are known; nil if it
// cannot be told.
//
// It holds how far the seeds differ, and how far the parts of each do. Neither is enough alone: what comes seldom is in few of the
// seeds, which agree too well without it, and what comes and goes slowly is in all parts of a run. Seeds that play one trace are no
// more to go by than the trace is. One run says too little about others, and has an interval only if it is all there is: a whole trace.
func (p *Policy) interval(of func(*Run) (mean, standardError float64)) *float64 {
	n := float64(len(p.Runs))
	var means []float64
	squares, played := 0.0, 0.0
	for i := range p.Runs {
		m, e := of(&p.Runs[i])
		means = append(means, m)
		squares += e * e
		played += p.Runs[i].TraceShare
	}
	if n == 1 && played < 1 {
		return nil
	}
	overlap := max(1, played) // how often each row of the trace was played
	within := study.Student(sim.ErrorFreedom*max(1, int(n/overlap))) * math.Sqrt(squares*overlap) / n
	between := 0.0
	if n > 1 {
		x := study.Over(means)
		between = x.High - x.Estimate
	}
	if math.IsInf(within, 0) && n > 1 && played < n { // not known: about as much, where nothing is seldom
		within = between * math.Sqrt(overlap)
	}
	half := math.Hypot(between, within)
	if math.IsInf(half, 0) || math.IsNaN(half) {
		return nil
	}
	return &half
}

// between is interval for a number of each run of which no standard error is known.
func (p *Policy) between(of func(*Run) float64) *float64 {
	return p.interval(func(x *Run) (float64, float64) { return of(x), math.Inf(1) })
}

// Completed returns how many were answered in full.
func (t *Tally) Completed() int { return t.Results["complete"] }

// tenant returns the tally of a tenant, an empty one if it sent nothing.
func (w *Watch) tenant(name string) *Tally {
	if t := w.tenants[name]; t != nil {
		return t
	}
	return &Tally{}
}

// stable reports whether backlog did not grow: the last third of the time waited at most half as long again as the middle one.
func (w *Watch) stable() bool {
	var sums, counts [3]float64
	n := len(w.answer.bins)
	from := min(n, int(w.o.BurnIn.Seconds()/max(w.answer.width, firstWidth)))
	for i := from; i < n; i++ {
		third := 3 * (i - from) / (n - from)
		sums[third] += w.waited.bins[i]
		counts[third] += w.answer.bins[i]
	}
	if counts[1] == 0 || counts[2] == 0 {
		return true
	}
	return sums[2]/counts[2] <= 1.5*sums[1]/counts[1]
}
