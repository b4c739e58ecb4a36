package study

import (
	"fmt"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
	"evenkeel/internal/strategy"
)

// Outcome is what a policy made of a row with one seed. Times are in seconds.
type Outcome struct {
	Policy   string `json:"policy"`
	Seed     uint64 `json:"seed"`
	Requests int    `json:"requests"` // measured
	Failed   int    `json:"failed"`   // of all, also in the burn-in

	TTFTMean  float64 `json:"ttft_mean_seconds"`
	TTFTP50   float64 `json:"ttft_p50_seconds"`
	TTFTP99   float64 `json:"ttft_p99_seconds"`
	ShortP99  float64 `json:"ttft_p99_short_seconds"` // TTFT of prompts of less than ShortPrompt tokens: who starves is among them
	ITLP99    float64 `json:"itl_p99_seconds"`
	TotalP99  float64 `json:"total_p99_seconds"` // arrival to the end of the answer
	Goodput   float64 `json:"goodput"`           // share of requests that were answered within the goal
	HitShare  float64 `json:"hit_share"`         // cached tokens per prompt token
	Imbalance float64 `json:"imbalance"`         // requests of the busiest deployment over the mean

	// Thirds is the mean time to the first token of the requests that came in each third of the whole time: backlog that grows
	// shows here.
	Thirds [3]float64 `json:"ttft_thirds_seconds"`

	Result *sim.Result `json:"-"` // all that was measured
}

// ShortPrompt is the tokens from which on a prompt is not short.
const ShortPrompt = 2_000

// Stable reports whether backlog did not grow: the last third waited at most half as long again as the middle one.
func (o *Outcome) Stable() bool { return o.Thirds[2] <= 1.5*o.Thirds[1] }

// Hooks let a caller look at a run; any may be nil.
type Hooks struct {
	// Record is told of each request that is over.
	Record func(*sim.Request, *exchange.Record)
	// Watch is called every WatchEvery of virtual time, and may look at the fleet. It stops the run by returning an error.
	Watch      func(*sim.Fleet) error
	WatchEvery time.Duration
}

// Run plays the row under a policy. Equal arguments give equal outcomes.
func (p *Prepared) Run(policy Policy, seed uint64, h Hooks) (*Outcome, error) {
	o, err := p.Options(policy, seed)
	if err != nil {
		return nil, err
	}
	var thirds [3]struct {
		sum   float64
		count int
	}
	var short sim.Series
	o.Record = func(r *sim.Request, rec *exchange.Record) {
		if rec.Result == exchange.Complete {
			first := rec.Ended
			if !rec.Content.IsZero() {
				first = rec.Content
			}
			t := &thirds[min(2, int(3*r.At/(p.Last+1)))]
			ttft := first.Sub(rec.Started).Seconds()
			t.sum += ttft
			t.count++
			if r.PromptTokens < ShortPrompt && r.At >= p.BurnIn {
				short.Add(short.Count(), ttft)
			}
		}
		if h.Record != nil {
			h.Record(r, rec)
		}
	}
	fleet, err := sim.New(o)
	if err != nil {
		return nil, err
	}
	if h.Watch != nil && h.WatchEvery > 0 {
		for at := time.Duration(0); at < p.Last; at += h.WatchEvery {
			fleet.Run(at)
			if err := h.Watch(fleet); err != nil {
				return nil, err
			}
		}
	}
	if err := fleet.Finish(p.Last); err != nil {
		return nil, fmt.Errorf("%s, seed %d: %w", policy.Name, seed, err)
	}
	out := summary(policy.Name, seed, fleet.Result())
	out.ShortP99 = short.Quantile(.99)
	for i, t := range thirds {
		if t.count > 0 {
			out.Thirds[i] = t.sum / float64(t.count)
		}
	}
	return out, nil
}

// bare is the health of deployments without the rule that gives less to those whose first tokens come late: what takes nobody out
// when more than this share of a pool is out, never does.
var bare = route.Health{MaxEjection: 1e-9}

// Options returns the options of the simulation that Run runs, for a caller who steps through it.
func (p *Prepared) Options(policy Policy, seed uint64) (o sim.Options, err error) {
	r := &p.Row
	o = sim.Options{
		Seed: seed, Strategy: policy.Strategy, Stream: true, BurnIn: p.BurnIn, Goal: r.Workload.Goal, Plan: r.Plan, Budget: r.Budget,
		Balancers: r.Knowledge.Balancers, Scrapes: r.scrapes(policy), Sharing: r.Knowledge.Sharing, BytesPerToken: r.Knowledge.BytesPerToken,
	}
	if guess := r.Knowledge.CacheGuess; guess > 0 {
		o.CacheTokens = max(int(guess*float64(r.Engines[0].Blocks*r.Engines[0].BlockTokens)), 1)
	}
	if policy.Bare || policy.Strategy == nil {
		o.Router.Health = bare
	}
	if policy.Pool != nil {
		err = p.pool(&o, policy, seed)
		return o, err
	}
	if policy.Adviser != nil {
		o.Policy = func(v sim.Vantage) (sim.Policy, error) { return policy.Adviser(r, v) }
	}
	for _, c := range r.Engines {
		e, err := sim.NewEngine(c)
		if err != nil {
			return o, err
		}
		o.Servers = append(o.Servers, e)
	}
	if r.Faults != nil {
		if o.Faults, err = r.Faults(r, p.Last); err != nil {
			return o, err
		}
	}
	o.Source, err = p.Source(seed)
	return o, err
}

// pool puts a yardstick in the place of all deployments.
func (p *Prepared) pool(o *sim.Options, policy Policy, seed uint64) error {
	if p.Row.Faults != nil {
		return fmt.Errorf("%s: it does not know of faults", policy.Name)
	}
	requests, err := p.Requests(seed)
	if err != nil {
		return err
	}
	server, err := policy.Pool(p.Row.Engines, requests)
	if err != nil {
		return err
	}
	o.Servers = []sim.Server{server}
	if o.Strategy, err = strategy.New("round_robin", nil); err != nil {
		return err
	}
	o.Source, err = p.Source(seed)
	return err
}

// scrapes says how a policy reads metrics.
func (r *Row) scrapes(p Policy) sim.Scrapes {
	s := r.Knowledge.Scrapes
	switch {
	case p.Scrape == 0 || s.Every < 0:
		return sim.Scrapes{}
	case s.Every == 0:
		s.Every = p.Scrape
	}
	return s
}

func summary(policy string, seed uint64, r *sim.Result) *Outcome {
	o := &Outcome{
		Policy: policy, Seed: seed, Failed: r.Counts.Failed,
		TTFTMean: r.TTFT.Mean(), TTFTP50: r.TTFT.Quantile(.5), TTFTP99: r.TTFT.Quantile(.99),
		ITLP99: r.ITL.Quantile(.99), TotalP99: r.Response.Quantile(.99), Goodput: r.Goodput, HitShare: r.HitShare, Imbalance: r.Imbalance, Result: r,
	}
	for _, n := range r.Results {
		o.Requests += n
	}
	return o
}
