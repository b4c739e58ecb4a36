package main

import (
	"fmt"
	"path"
	"strconv"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim/study"
)

// spec is a row by name. Its JSON is in the keys of results, with the number of requests that Lengths, Most and Least come to.
type spec struct {
	Workload string  `json:"workload"`
	Engine   string  `json:"engine"`
	N        int     `json:"n"`
	Rho      float64 `json:"rho"`
	NoCache  bool    `json:"no_cache,omitempty"` // Rho is without any cache
	Variant  string  `json:"variant,omitempty"`
	Lengths  float64 `json:"-"` // how long it is played, in multiples of the 99th percentile of a request's duration
	Most     int     `json:"-"` // requests at most, for 8 deployments
	Least    int     `json:"-"` // and at least
	Holdout  bool    `json:"holdout,omitempty"`

	seeds int  // the first is played under every policy, the others only under those that may be the best
	quick bool // it is among the few
}

// name tells rows apart: workload/engine/n/rho[/variant].
func (s *spec) name() string {
	rho := "rho" + strconv.FormatFloat(s.Rho, 'f', -1, 64)
	if s.NoCache {
		rho += "nc"
	}
	name := fmt.Sprintf("%s/%s/n%d/%s", s.Workload, s.Engine, s.N, rho)
	if s.Variant != "" {
		name += "/" + s.Variant
	}
	if s.Holdout {
		name += "/holdout"
	}
	return name
}

// holdoutSeeds is how far the seeds of hold-out rows are from the others.
const holdoutSeeds = 1000

// seed returns the i-th seed of a row.
func (s *spec) seed(i int) uint64 {
	if s.Holdout {
		return holdoutSeeds + uint64(i) + 1
	}
	return uint64(i) + 1
}

// Sizes of rows. A request's duration is tens of seconds on Mooncake, so that rows are hundreds of seconds to an hour long.
const (
	fullLengths, quickLengths = 20, 5
	fullMost, quickMost       = 120_000, 3_000
	fullLeast, quickLeast     = 4_000, 1_500
	fullSeeds, quickSeeds     = 10, 3 // 99th percentiles need ten

	chatLeast = 60_000 // requests of conversations before FIFO engines, which serve hundreds a second: minutes, or all is cold

	wholeTrace = 12_031 // requests of the Mooncake conversation trace, to guess what it costs
	wholeSeeds = 1      // a seed only spreads its ticks
)

// batching are the engines of the matrix that batch.
var batching = []string{"vllm-2048", "vllm-8192", "sglang"}

// matrix returns all rows. Where there is reuse, rho is without a cache on the Mooncake traces, as published figures have it: with a
// cache that forgets nothing the same rows are at two thirds of it, and no policy gets there with caches as small as engines have.
func matrix() []spec {
	var m []spec
	add := func(workload string, noCache bool, n int, engines []string, rhos ...float64) {
		for _, e := range engines {
			for _, rho := range rhos {
				m = append(m, spec{Workload: workload, Engine: e, N: n, Rho: rho, NoCache: noCache})
			}
		}
	}
	one := func(e string) []string { return []string{e} }
	all := append(one("fifo"), batching...)

	const conversation, synthetic = "mooncake-conversation", "mooncake-synthetic"
	add(conversation, true, 8, all, .7, .9, 1, 1.15)
	add(conversation, true, 4, one("fifo"), .9, 1.15)
	add(conversation, true, 4, one("vllm-2048"), .9, 1.15)
	add(conversation, true, 16, one("fifo"), .7, 1)
	add(conversation, true, 16, one("vllm-8192"), .9, 1.15)
	add(conversation, true, 16, one("sglang"), .9)
	add(conversation, true, 64, one("fifo"), .7, 1)
	add(conversation, true, 64, one("vllm-2048"), 1.15)
	add(conversation, false, 8, all, .9) // hopeless for all: who still answers in time?

	add(synthetic, true, 8, one("fifo"), .7, .9, 1, 1.15)
	add(synthetic, true, 8, one("vllm-2048"), .7, .9, 1, 1.15)
	add(synthetic, true, 8, one("vllm-8192"), .9, 1.15)
	add(synthetic, true, 8, one("sglang"), .9, 1.15)
	add(synthetic, true, 4, one("fifo"), 1)
	add(synthetic, true, 4, one("vllm-8192"), .9)
	add(synthetic, true, 16, one("fifo"), .7, 1)
	add(synthetic, true, 16, one("vllm-2048"), .9)
	add(synthetic, true, 64, one("vllm-8192"), 1)

	for _, w := range []string{"azure-code", "azure-conversation"} {
		add(w, false, 8, one("fifo"), .7, .9)
		add(w, false, 8, one("vllm-2048"), .7, .9)
		add(w, false, 8, one("sglang"), .9)
		add(w, false, 16, one("vllm-8192"), .9)
		add(w, false, 4, one("fifo"), .7)
	}
	add("multi-turn", true, 8, one("fifo"), .9) // at .7 of a cache that forgets nothing no policy keeps up
	add("multi-turn", false, 8, batching, .5, .7)
	add("multi-turn", false, 4, one("vllm-2048"), .5)
	add("multi-turn", false, 16, one("vllm-8192"), .7)
	add("reasoning", false, 8, batching, .7, .9)
	add("reasoning", false, 16, one("vllm-8192"), .9)
	add("bursty", false, 8, one("vllm-8192"), .7)
	add("tenant-flood", false, 8, one("vllm-8192"), .7)

	for _, v := range variants {
		if v.name == whole {
			continue
		}
		m = append(m, spec{Workload: conversation, Engine: "vllm-2048", N: 8, Rho: .9, NoCache: true, Variant: v.name})
	}
	for i := range m {
		s := &m[i]
		s.quick = quickRows[s.name()]
		s.Lengths, s.Most, s.Least, s.seeds = fullLengths, fullMost, fullLeast, fullSeeds
		if s.Workload == "multi-turn" && s.Engine == "fifo" {
			s.Least = chatLeast
		}
	}
	for _, rho := range []float64{.7, 1} { // its name is what says how long it is
		m = append(m, spec{Workload: conversation, Engine: "fifo", N: 8, Rho: rho, NoCache: true, Variant: whole, Most: wholeTrace, seeds: wholeSeeds, quick: true})
	}
	return m
}

// The hold-out has an engine that no other row has, in the place of one of the others.
const (
	heldEngine = "vllm-router"
	heldFor    = "vllm-8192"
)

// holdout returns the rows that nothing may be tuned by: those of the matrix, with the second half of each trace, other seeds, and an
// engine that is not in it. They are played once, when the defaults are settled.
func holdout() []spec {
	var m []spec
	for _, s := range matrix() {
		if s.Variant != "" {
			continue
		}
		if s.Holdout = true; s.Engine == heldFor {
			s.Engine = heldEngine
		}
		m = append(m, s)
	}
	return m
}

// quickRows are those of a quick run: each workload, each engine, each kind of load once at least.
var quickRows = map[string]bool{
	"mooncake-conversation/fifo/n8/rho1nc":         true,
	"mooncake-conversation/fifo/n8/rho1.15nc":      true,
	"mooncake-conversation/vllm-2048/n8/rho0.9nc":  true,
	"mooncake-conversation/vllm-8192/n16/rho0.9nc": true,
	"mooncake-conversation/sglang/n8/rho1.15nc":    true,
	"mooncake-synthetic/fifo/n8/rho1nc":            true,
	"mooncake-synthetic/vllm-2048/n8/rho0.9nc":     true,
	"azure-code/vllm-2048/n8/rho0.7":               true,
	"azure-conversation/sglang/n8/rho0.9":          true,
	"multi-turn/vllm-8192/n8/rho0.5":               true,
	"reasoning/vllm-8192/n8/rho0.9":                true,
}

// selected returns the rows that the options ask for.
func selected(o options) ([]spec, error) {
	all := matrix()
	if o.holdout {
		all = holdout()
	}
	var some []spec
	for _, s := range all {
		if o.quick {
			if !s.quick {
				continue
			}
			if s.Variant != whole {
				s.Lengths, s.Most, s.Least, s.seeds = quickLengths, quickMost, quickLeast, quickSeeds
			}
		}
		if ok, _ := path.Match(o.only, s.name()); !ok && o.only != "*" {
			continue
		}
		if o.seeds > 0 {
			s.seeds = o.seeds
		}
		some = append(some, s)
	}
	if len(some) == 0 {
		return nil, fmt.Errorf("--only %q: no row has such a name; --list lists them", o.only)
	}
	return some, nil
}

// row returns the row that is played, but for the number of requests.
func (s *spec) row(t traces) (study.Row, error) {
	w, err := study.Find(s.Workload)
	if err != nil {
		return study.Row{}, err
	}
	w.Trace = t.of(s).trace
	r := study.Row{Workload: w, Rho: s.Rho}
	if s.NoCache {
		r.Basis = study.NoCache
	}
	c, err := engine.Preset(s.Engine)
	if err != nil {
		return r, err
	}
	for range s.N {
		r.Engines = append(r.Engines, c)
	}
	for _, v := range variants {
		if v.name == s.Variant {
			v.change(&r)
		}
	}
	return r, nil
}
