package main

import (
	"math"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
	"evenkeel/internal/sim/study"
)

// variant is one row in other circumstances.
type variant struct {
	name   string
	about  string // one line for people
	change func(*study.Row)
}

var variants = []variant{
	{"scrapes-none", "nobody reads the engines' metrics", func(r *study.Row) { r.Knowledge.Scrapes.Every = -1 }},
	{"scrapes-5s", "the engines' metrics are read every 5 seconds", func(r *study.Row) { r.Knowledge.Scrapes.Every = 5 * time.Second }},
	{"balancers-4", "four balancers that tell each other nothing", func(r *study.Row) { r.Knowledge.Balancers = 4 }},
	{"text-varies", "a token is 4 bytes of text in the mean, with a coefficient of variation of 0.5: balancers see bytes", func(r *study.Row) { r.Knowledge.BytesPerToken = sim.Law{Mean: 4, CV: 0.5} }},
	{"tokens-half", "a token is 2 bytes of text, half of what balancers take it for until engines tell", func(r *study.Row) { r.Knowledge.BytesPerToken = sim.Law{Mean: 2} }},
	{"tokens-double", "a token is 8 bytes of text, twice what balancers take it for until engines tell", func(r *study.Row) { r.Knowledge.BytesPerToken = sim.Law{Mean: 8} }},
	{"balancers-4-shared", "four balancers that tell each other what they send and what comes back, 100 ms late", func(r *study.Row) {
		r.Knowledge.Balancers, r.Knowledge.Sharing = 4, sim.Sharing{On: true, Delay: 100 * time.Millisecond}
	}},
	{"cache-quarter", "policies that index prefixes take the engines' caches for a quarter of what they are", func(r *study.Row) { r.Knowledge.CacheGuess = 0.25 }},
	{"cache-16x", "and for sixteen times what they are", func(r *study.Row) { r.Knowledge.CacheGuess = 16 }},
	{"half-slow", "half of the engines take twice as long", halfSlow},
	{"small-kv", "caches of 60,000 tokens, and all takes twice as long", smallKV},
	{"cold", "an engine is replaced by a cold one at half-time", func(r *study.Row) { r.Faults = cold }},
	{whole, "the trace is played once from its beginning to its end, and all of it is measured", func(r *study.Row) { r.BurnIn = noBurnIn }},
	{"slows-tenfold", "an engine takes ten times as long from half-time on", func(r *study.Row) { r.Faults = slows }},
}

// noBurnIn is too short for any request, and not 0, which is the default.
const noBurnIn = 1e-12

func halfSlow(r *study.Row) {
	for i := range r.Engines {
		if i%2 == 1 {
			slower(&r.Engines[i].Timing, 2)
		}
	}
}

// smallCache is the tokens of the cache of an engine on a small GPU.
const smallCache = 60_000

func smallKV(r *study.Row) {
	for i := range r.Engines {
		c := &r.Engines[i]
		c.Blocks = smallCache / c.BlockTokens
		slower(&c.Timing, 2)
	}
}

// slower multiplies what a step costs.
func slower(t *engine.Timing, by float64) {
	for _, x := range []*float64{&t.Base, &t.Prefill, &t.Token, &t.Pair, &t.Sequence, &t.Context} {
		*x *= by
	}
	if f := t.Decode; f != nil {
		t.Decode = func(use float64) float64 { return by * f(use) }
	}
}

// half is half of the time of a row.
func half(last time.Duration) time.Duration { return time.Duration(math.Round(float64(last) / 2)) }

func cold(r *study.Row, last time.Duration) ([]sim.Fault, error) {
	e, err := sim.NewEngine(r.Engines[0])
	return []sim.Fault{{At: half(last), Deployment: 0, Kind: sim.Mended, Server: e}}, err
}

func slows(_ *study.Row, last time.Duration) ([]sim.Fault, error) {
	return []sim.Fault{{At: half(last), Deployment: 0, Kind: sim.Slowed, Factor: 10}}, nil
}
