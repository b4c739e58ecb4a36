package study

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"

	"evenkeel/internal/sim"
)

// traffic returns the requests of a workload, rate of them a second.
func (w *Workload) traffic(seed uint64, rate float64, copies int, whole bool) (sim.Source, error) {
	switch {
	case w.Trace != nil:
		return newLaps(w, seed, rate, copies, whole)
	case w.Generate != nil:
		return w.Generate(seed, rate)
	}
	return nil, fmt.Errorf("the workload %s plays the trace %s, which was not given", w.Name, w.File)
}

// natural returns the requests per second of a trace as it was recorded.
func natural(t *sim.Trace) (float64, error) {
	p, err := sim.NewReplay(0, t, sim.ReplayOptions{})
	if err != nil {
		return 0, err
	}
	return float64(t.Len()) / p.Length().Seconds(), nil
}

// laps plays a trace over and over. What one lap brings has nothing in common with what another does, or a lap's prompts
// would all be in caches.
type laps struct {
	trace  *sim.Trace
	o      sim.ReplayOptions
	rng    *rand.Rand
	replay *sim.Replay
	from   time.Duration // when the lap began
	salt   uint64
}

// newLaps returns a source that begins at the seed's place of the trace, or at its beginning if it is to be played whole.
func newLaps(w *Workload, seed uint64, rate float64, copies int, whole bool) (*laps, error) {
	l := &laps{trace: w.Trace, rng: rand.New(rand.NewPCG(seed, forLaps))}
	if n := w.Trace.Len(); !whole && n > 0 {
		l.trace = w.Trace.From(place(seed, n))
	}
	recorded, err := natural(l.trace)
	if err != nil {
		return nil, fmt.Errorf("the workload %s: %w", w.Name, err)
	}
	l.o = sim.ReplayOptions{Copies: copies, Spread: w.Spread, Scale: recorded * float64(copies) / rate}
	return l, l.next()
}

// place returns where in a trace of n rows a seed begins. Seeds that follow each other are spread evenly over it, however many there
// are (multiples of the golden ratio): of places drawn by lot, five often miss what only a fifth of a trace has.
func place(seed uint64, n int) int {
	at, _ := bits.Mul64(seed*0x9e3779b97f4a7c15, uint64(n))
	return int(at)
}

// forLaps sets the random numbers of laps apart from others of the same seed.
const forLaps = 0x6c617073

// next begins another lap.
func (l *laps) next() error {
	if l.replay != nil {
		l.from += l.replay.Length()
		l.salt = l.rng.Uint64() | 1
	}
	p, err := sim.NewReplay(l.rng.Uint64(), l.trace, l.o)
	l.replay = p
	return err
}

// Next implements sim.Source. It has no end.
func (l *laps) Next(r *sim.Request) bool {
	for !l.replay.Next(r) {
		if l.next() != nil {
			return false
		}
	}
	r.At += l.from
	if l.salt != 0 {
		r.Prompt, r.Output = l.salted(r.Prompt), l.salted(r.Output)
		if r.Session != 0 {
			r.Session = scramble(r.Session^l.salt) | 1
		}
	}
	return true
}

// salted returns other numbers for the blocks of a chain.
func (l *laps) salted(chain []uint64) []uint64 {
	out := make([]uint64, len(chain))
	for i, h := range chain {
		out[i] = scramble(h ^ l.salt)
	}
	return out
}

// scramble is a bijection that leaves no likeness (the finaliser of MurmurHash3).
func scramble(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// few brings the first requests of a source.
type few struct {
	sim.Source
	left int
}

func (f *few) Next(r *sim.Request) bool {
	if f.left == 0 {
		return false
	}
	f.left--
	return f.Source.Next(r)
}
