package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/trace"
)

// Request is one request of a workload. It is the same whatever becomes of it.
type Request struct {
	At           time.Duration // arrival
	Seed         uint64        // of all that is random about it; 0 = the Fleet draws one
	Model        string        // that it asks for, if Options has a Site
	Tenant       string        // "" = nobody's
	Session      uint64        // requests of one session have the same, 0 = none
	PromptTokens int
	OutputTokens int
	BlockTokens  int           // tokens of a block, 0 = nothing is known of prefixes
	Prompt       []uint64      // hash chain of the prompt's whole blocks
	Output       []uint64      // how the chain goes on once the answer is part of the next prompt
	Turns        route.Turns   // where the answers in the prompt stand: Rest and Answer are in tokens
	Work         time.Duration // for a Queue: mean time of service at speed 1
	Recorded     *trace.Entry  // what became of it when it was recorded; nil = nothing is known. It is read-only
}

// Source brings requests.
type Source interface {
	// Next fills r with the next request, in order of arrival; false if there is none. r's slices may be kept.
	Next(r *Request) bool
}

// Law is a distribution of positive numbers.
type Law struct {
	Mean float64
	CV   float64 // coefficient of variation: 0 = constant, else log-normal
}

func (l Law) check(what string) error {
	if !(l.Mean > 0) || math.IsInf(l.Mean, 1) || !(l.CV >= 0) || math.IsInf(l.CV, 1) {
		return fmt.Errorf("%s: mean %v, CV %v: the mean must be positive and the CV not negative", what, l.Mean, l.CV)
	}
	return nil
}

func (l Law) draw(r *rand.Rand) float64 {
	if l.CV == 0 {
		return l.Mean
	}
	return l.at(r.NormFloat64())
}

// at returns the number that lies so many standard deviations above the mean of the logarithm.
func (l Law) at(deviations float64) float64 {
	variance := math.Log1p(l.CV * l.CV)
	return l.Mean * math.Exp(math.Sqrt(variance)*deviations-variance/2)
}

// quantile returns the number that a share q of all does not exceed.
func (l Law) quantile(q float64) float64 { return l.at(math.Sqrt2 * math.Erfinv(2*q-1)) }

// tokens draws a whole number of at least 1.
func (l Law) tokens(r *rand.Rand) int { return max(1, int(math.Round(l.draw(r)))) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// PoissonOptions describe requests that know nothing of each other.
type PoissonOptions struct {
	Rate   float64       // arrivals per second in the mean
	CV     float64       // of the gaps between them: 0 or 1 = Poisson; more = bursts
	Work   time.Duration // Request.Work of each
	Prompt Law           // tokens; a mean of 0 = none
	Output Law           // tokens; likewise
}

// Poisson brings requests at random times: exponential gaps or, for bursts, gaps that are nearly always short and at times
// long (a hyperexponential law of two phases with balanced means).
type Poisson struct {
	o                 PoissonOptions
	now               float64 // seconds
	arrivals, lengths *rand.Rand
	often             float64 // probability of the phase of short gaps
}

// NewPoisson returns a source of that seed.
func NewPoisson(seed uint64, o PoissonOptions) (*Poisson, error) {
	if err := (Law{o.Rate, 0}).check("arrivals per second"); err != nil {
		return nil, err
	}
	if o.CV != 0 && !(o.CV >= 1) || math.IsInf(o.CV, 1) {
		return nil, fmt.Errorf("bursts of CV %v: it must be 1 or more, or 0 for Poisson arrivals", o.CV)
	}
	for _, l := range []struct {
		name string
		law  Law
	}{{"prompt tokens", o.Prompt}, {"output tokens", o.Output}} {
		if l.law != (Law{}) {
			if err := l.law.check(l.name); err != nil {
				return nil, err
			}
		}
	}
	p := &Poisson{o: o, arrivals: stream(seed, forArrivals), lengths: stream(seed, forLengths), often: 0.5}
	if square := o.CV * o.CV; square > 1 {
		p.often = (1 + math.Sqrt((square-1)/(square+1))) / 2
	}
	return p, nil
}

// Next implements Source.
func (p *Poisson) Next(r *Request) bool {
	gap := p.arrivals.ExpFloat64() / p.o.Rate
	if p.o.CV > 1 {
		part := p.often
		if p.arrivals.Float64() >= p.often {
			part = 1 - p.often
		}
		gap /= 2 * part
	}
	p.now += gap
	*r = Request{At: seconds(p.now), Work: p.o.Work}
	if p.o.Prompt.Mean > 0 {
		r.PromptTokens = p.o.Prompt.tokens(p.lengths)
	}
	if p.o.Output.Mean > 0 {
		r.OutputTokens = p.o.Output.tokens(p.lengths)
	}
	return true
}
