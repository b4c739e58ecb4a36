package peers

import (
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// lmetric is the product of LMetric (2026): the lowest new prefill tokens × batch size, at random of equals. The batch is the requests
// there with this one. What has to be prefilled is by the paper what waits there and this request's own uncached tokens; by
// llm-d's lmetric-scorer only its own; by AIBrix's l-metric-local that of all requests there, until they end. Dynamo's
// reading, which multiplies by decode blocks, is a variant of dynamo. The index is llm-d's.
type lmetric struct {
	books
	reading lmetricReading
}

type lmetricReading uint8

const (
	lmetricPaper lmetricReading = iota
	lmetricOwn
	lmetricHeld
)

func newLMetric(reading lmetricReading) func(sim.Vantage) sim.Policy {
	return func(at sim.Vantage) sim.Policy {
		b := newBooks(at, &indexOptions{block: llmdBlock, room: llmdRoom})
		return &lmetric{b, reading}
	}
}

func (*lmetric) String() string { return "lmetric" }

// Pick implements route.Strategy.
func (p *lmetric) Pick(r *route.Round) int {
	a := p.round(r)
	return anyOf(r, func(i int) float64 {
		w := p.of(i)
		tokens := p.missing(a, i)
		switch p.reading {
		case lmetricPaper:
			tokens += w.uncached
		case lmetricHeld:
			tokens += w.held
		}
		v := float64(tokens) * float64(w.running+1)
		r.Note(i, "prefill_tokens*batch", v)
		return v
	})
}
