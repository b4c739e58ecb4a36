package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/internal/sim/study"
)

// TestRowsAreLong: a row that is played lasts as long as it should, also where a first pilot is too short to find the longest requests, and
// the bound ends it where backlog grows.
func TestRowsAreLong(t *testing.T) {
	o := options{root: "..", results: filepath.Join(t.TempDir(), "results")}
	b := &bench{options: o, out: io.Discard, versions: map[kind]string{}}
	var err error
	if b.traces, err = readTraces(o); err != nil {
		t.Fatal(err)
	}
	if b.store, err = openStore(o.results); err != nil {
		t.Fatal(err)
	}
	defer b.store.close()
	f := func(s spec) (requests int, lasts float64) {
		t.Helper()
		base, err := s.row(b.traces)
		if err != nil {
			t.Fatal(err)
		}
		if base.Requests, err = b.length(t.Context(), &s, base); err != nil {
			t.Fatal(err)
		}
		p, err := study.Prepare(base, s.seed(0))
		if err != nil {
			t.Fatal(err)
		}
		policy, err := study.Strategy(pilot)
		if err != nil {
			t.Fatal(err)
		}
		x, err := p.Run(policy, s.seed(0), study.Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		return base.Requests, p.Last.Seconds() / x.TotalP99
	}
	for _, s := range []spec{
		{Workload: "azure-conversation", Engine: "vllm-2048", N: 2, Rho: .7, Lengths: 20, Most: 60_000, Least: 400},
		{Workload: "reasoning", Engine: "vllm-8192", N: 1, Rho: .7, Lengths: 20, Most: 60_000, Least: 400},
		{Workload: "mooncake-conversation", Engine: "fifo", N: 2, Rho: .8, Lengths: 20, Most: 60_000, Least: 400},
	} {
		if n, lasts := f(s); lasts < s.Lengths {
			t.Errorf("%s: %d requests last %.1f times as long as 99 %% of them, want %v", s.name(), n, lasts, s.Lengths)
		}
	}
	over := spec{Workload: "azure-conversation", Engine: "vllm-2048", N: 2, Rho: 2, Lengths: 20, Most: 12_000, Least: 400}
	if n, _ := f(over); n > over.Most*over.N/8 {
		t.Errorf("%s: %d requests, the bound is %d", over.name(), n, over.Most*over.N/8)
	}
}

// TestShortRowsAreNamed: the report says which rows are too short, but not those where backlog grows.
func TestShortRowsAreNamed(t *testing.T) {
	row := func(workload string, span float64, thirds [3]float64) *table {
		p := made(map[string][]float64{"a": {1, 1, 1}, "b": {2, 2, 2}}, thirds)
		p.spec.Workload, p.spec.Lengths, p.load.Span = workload, 20, span
		for _, outcomes := range p.outcomes {
			for _, o := range outcomes {
				o.TotalP99 = 5 * o.TTFTMean
			}
		}
		return digest(p, cast)
	}
	steady, growing := [3]float64{1, 1, 1}, [3]float64{1, 2, 4}
	tables := []*table{row("long", 101, steady), row("scant", 97, steady), row("heap", 50, growing)}
	if tables[0].short() || !tables[1].short() || tables[2].short() {
		t.Error("want the second to be short, and no other")
	}
	var text bytes.Buffer
	(&bench{}).lengths(document{&text}, tables)
	if got := text.String(); !strings.Contains(got, "last 20 times") || !strings.Contains(got, "Of 2 stable rows that are made that long, these are not: scant/fifo/n8/rho0.9 (19.4).") {
		t.Errorf("the report says %s", got)
	}
}
