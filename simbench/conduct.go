package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"slices"
	"sync"

	"evenkeel/internal/sim/study"
)

// Other routers' policies run through the router, the exchange, the engines and the simulator too, and hours of results would be void with every
// change there. Instead it is tried what they do: a few short rows of every kind, under each of them, to the last bit. Results of Evenkeel's
// own strategies follow from the text of the code, see version.go.

const conductRequests = 500

// conductRows returns the rows that are tried: each kind of engine and traffic, each variant. All are from excerpts that are in the repository.
func conductRows() []spec {
	var rows []spec
	add := func(workload, engine, variant string, rho float64) {
		rows = append(rows, spec{Workload: workload, Engine: engine, N: 4, Rho: rho, Variant: variant})
	}
	for _, engine := range append([]string{"fifo", heldEngine}, batching...) {
		add("mooncake-conversation", engine, "", .6)
	}
	add("azure-code", "fifo", "", .9)
	add("azure-conversation", "vllm-8192", "", .9)
	add("multi-turn", "sglang", "", .7)
	add("multi-turn", "fifo", "", .7)
	add("reasoning", "vllm-8192", "", .9)
	add("bursty", "vllm-2048", "", .7)
	for _, v := range variants {
		if v.name != whole {
			add("mooncake-conversation", "vllm-2048", v.name, .6)
		}
	}
	return rows
}

// conduct returns a hash of what the policies of each kind do, but for Evenkeel's.
func conduct(ctx context.Context, o options, all []policy) (map[kind]string, error) {
	t, err := readTraces(options{root: o.root})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(append(slices.Clone(all), floor), func(p policy) bool { return p.kind == ours })
	rows := conductRows()
	outcomes := make([]map[kind][]*study.Outcome, len(rows))
	failed := make([]error, len(rows))
	var workers sync.WaitGroup
	next := make(chan int)
	for range o.workers {
		workers.Go(func() { // ends when next is closed
			for i := range next {
				outcomes[i], failed[i] = conductOf(ctx, &rows[i], t, all)
			}
		})
	}
	for i := range rows {
		next <- i
	}
	close(next)
	workers.Wait()
	hashes := map[kind]hash.Hash{}
	for i := range rows {
		if failed[i] != nil {
			return nil, fmt.Errorf("%s, tried to see what policies do: %w", rows[i].name(), failed[i])
		}
		for k, outcomes := range outcomes[i] {
			if hashes[k] == nil {
				hashes[k] = sha256.New()
			}
			if err := json.NewEncoder(hashes[k]).Encode(outcomes); err != nil {
				return nil, err
			}
		}
	}
	sums := map[kind]string{}
	for k, h := range hashes {
		sums[k] = fmt.Sprintf("%x", h.Sum(nil))
	}
	return sums, nil
}

// conductOf returns what the policies make of one row.
func conductOf(ctx context.Context, s *spec, t traces, all []policy) (map[kind][]*study.Outcome, error) {
	base, err := s.row(t)
	if err != nil {
		return nil, err
	}
	base.Requests = conductRequests
	prepared, err := study.Prepare(base, s.seed(0))
	if err != nil {
		return nil, err
	}
	outcomes := map[kind][]*study.Outcome{}
	for _, p := range all {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if p.kind == reference && base.Faults != nil {
			continue
		}
		o, err := outcome(prepared, p, s.seed(0))
		if err != nil {
			return nil, err
		}
		outcomes[p.kind] = append(outcomes[p.kind], o)
	}
	return outcomes, nil
}
