package study

import (
	"errors"
	"fmt"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/exchange"
	"evenkeel/internal/sim"
)

// Basis says which work Row.Rho counts.
type Basis uint8

// The bases.
const (
	InfiniteCache Basis = iota // what is left with a cache that forgets nothing
	NoCache                    // all of it
)

// Row is one experiment. Exactly one of Rho, Rate and Speed says how fast requests come.
type Row struct {
	Workload Workload
	Engine   string          // preset (engine.Preset) of all deployments
	N        int             // deployments
	Engines  []engine.Config // in place of Engine and N: one for each deployment

	Rho   float64 // work that arrives over the work that the fleet can do
	Basis Basis   // of Rho
	Rate  float64 // requests per second
	Speed float64 // of a trace: 2 = in half the time

	// Requests is how many requests are played, 0 = the whole trace once for each of its copies. A seed begins at a place of the
	// trace of its own, and at its beginning if the whole is played.
	Requests int
	// Copies of a trace are laid over each other, with prefixes that have nothing in common, so that caches are under the
	// same pressure in a large fleet; 0 = one for each 8 deployments.
	Copies int
	// BurnIn is the share of the time that is not measured; 0 = a fifth.
	BurnIn float64

	Knowledge Knowledge
	// Faults makes what befalls the deployments of a run whose last request comes at that time; nil = nothing.
	Faults func(r *Row, last time.Duration) ([]sim.Fault, error)
	Plan   exchange.Plan // of each request; the zero value tries once and waits for ever
	Budget sim.Budget
}

// Knowledge is what balancers know.
type Knowledge struct {
	Balancers int // 0 = 1
	// Scrapes say how those policies read engines' metrics that do at all; Every 0 = as often as each does by default, negative = never.
	Scrapes       sim.Scrapes
	Sharing       sim.Sharing
	BytesPerToken sim.Law // how much text prompts are, see sim.Options
	// CacheGuess is how large policies that index prefixes take the first engine's cache to be, in multiples of what it is; 0 = what each
	// assumes by default.
	CacheGuess float64
}

// Prepared is a Row that is ready to be played. It may be used by several goroutines.
type Prepared struct {
	Row    Row
	Work   Work    // of the first engine; the workload's, whatever part of it a seed plays
	Prompt float64 // tokens of a request in the mean, of those that the seed plays
	Output float64 // likewise
	Rho    float64 // with a cache that forgets nothing
	NoRho  float64 // without any cache
	Rate   float64 // requests per second
	Last   time.Duration
	BurnIn time.Duration

	whole bool // the trace is played from its beginning to its end
}

const defaultBurnIn = 0.2

// check reports the first thing that is wrong, and fills in what is left out.
func (r *Row) check() error {
	given := 0
	for _, x := range []float64{r.Rho, r.Rate, r.Speed} {
		if x != 0 {
			given++
		}
		if !(x >= 0) {
			return fmt.Errorf("a rho, rate or speed of %v: it must be positive", x)
		}
	}
	switch {
	case given != 1:
		return errors.New("a row needs exactly one of rho, rate and speed")
	case r.Speed != 0 && r.Workload.Trace == nil:
		return fmt.Errorf("the workload %s is no trace and has no speed of its own: give a rho or a rate", r.Workload.Name)
	case r.Requests < 0, r.Requests == 0 && r.Workload.Trace == nil:
		return fmt.Errorf("%d requests of the workload %s: there must be one at least", r.Requests, r.Workload.Name)
	case !(r.BurnIn >= 0 && r.BurnIn < 1):
		return fmt.Errorf("a burn-in of %v: it is a share of the time, from 0 to below 1", r.BurnIn)
	}
	if r.Engines == nil {
		if r.N < 1 {
			return fmt.Errorf("%d deployments: at least one is needed", r.N)
		}
		c, err := engine.Preset(r.Engine)
		if err != nil {
			return err
		}
		for range r.N {
			r.Engines = append(r.Engines, c)
		}
	}
	r.N = len(r.Engines)
	if r.Copies == 0 {
		r.Copies = max(1, r.N/8)
	}
	if r.BurnIn == 0 {
		r.BurnIn = defaultBurnIn
	}
	return nil
}

// Prepare finds how fast requests must come with a seed, and until when they do.
func Prepare(r Row, seed uint64) (*Prepared, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	p := &Prepared{Row: r, whole: r.Requests == 0}
	if p.whole {
		p.Row.Requests = r.Copies * r.Workload.Trace.Len()
	}
	works, err := p.works()
	if err != nil {
		return nil, err
	}
	p.Work = works[0]
	best, none := 0.0, 0.0 // requests per second that the fleet can serve
	for _, w := range works {
		best += 1 / w.Seconds
		none += 1 / w.NoCache
	}
	switch {
	case r.Rate > 0:
		p.Rate = r.Rate
	case r.Speed > 0:
		recorded, err := natural(r.Workload.Trace)
		if err != nil {
			return nil, err
		}
		p.Rate = recorded * r.Speed * float64(p.Row.Copies)
	case r.Basis == NoCache:
		p.Rate = r.Rho * none
	default:
		p.Rate = r.Rho * best
	}
	p.Rho, p.NoRho = p.Rate/best, p.Rate/none
	return p.With(seed)
}

// With returns the row as another seed plays it. That is much quicker than Prepare.
func (p *Prepared) With(seed uint64) (*Prepared, error) {
	source, err := p.Source(seed)
	if err != nil {
		return nil, err
	}
	q := *p
	q.Prompt, q.Output = 0, 0
	var last sim.Request
	for source.Next(&last) { // the last arrival says how long it takes
		q.Prompt += float64(last.PromptTokens) / float64(q.Row.Requests)
		q.Output += float64(last.OutputTokens) / float64(q.Row.Requests)
	}
	q.Last = last.At
	q.BurnIn = time.Duration(q.Row.BurnIn * float64(last.At))
	return &q, nil
}

// sampled is how many requests of made-up traffic Work is taken from.
const sampled = 20_000

// works returns the work of a request for each engine. It is that of the workload, whatever part of it a seed plays: the
// trace's from its beginning to its end, or that of so much made-up traffic that chance is small. So the seeds of a row have the
// same rate, and what they play differs by no more than parts of one traffic do.
func (p *Prepared) works() ([]Work, error) {
	var works []Work
	known := map[string]Work{} // fleets have few kinds of engines
	for i := range p.Row.Engines {
		c := &p.Row.Engines[i]
		key := fmt.Sprintf("%+v", *c)
		w, ok := known[key]
		if !ok {
			n := sampled
			if t := p.Row.Workload.Trace; t != nil {
				n = t.Len()
			}
			source, err := p.Row.Workload.traffic(0, 1, 1, true)
			if err != nil {
				return nil, err
			}
			if w = measure(c, source, n); w.Requests == 0 {
				return nil, fmt.Errorf("the workload %s brings no request", p.Row.Workload.Name)
			}
			known[key] = w
		}
		works = append(works, w)
	}
	return works, nil
}

// Source returns the requests of a seed.
func (p *Prepared) Source(seed uint64) (sim.Source, error) {
	s, err := p.Row.Workload.traffic(seed, p.Rate, p.Row.Copies, p.whole)
	if err != nil {
		return nil, err
	}
	return &few{s, p.Row.Requests}, nil
}

// TraceShare returns how much of its trace a seed plays, copies counted once: above 1 if some of it comes more than once, 0 if
// the workload is made up. Seeds whose shares come to more than 1 have traffic in common.
func (p *Prepared) TraceShare() float64 {
	t := p.Row.Workload.Trace
	if t == nil {
		return 0
	}
	return float64(p.Row.Requests) / float64(p.Row.Copies*t.Len())
}

// Requests returns all of a seed at once.
func (p *Prepared) Requests(seed uint64) ([]sim.Request, error) {
	s, err := p.Source(seed)
	if err != nil {
		return nil, err
	}
	all := make([]sim.Request, 0, p.Row.Requests)
	for r := (sim.Request{}); s.Next(&r); {
		all = append(all, r)
	}
	return all, nil
}
