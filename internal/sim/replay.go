package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// ReplayOptions say how a trace is played.
type ReplayOptions struct {
	Scale  float64 // time between requests, in multiples of the trace's; 0 = 1, less is faster
	Copies int     // the trace is laid over itself so often; 0 = 1
	Spread bool    // requests of one timestamp are spread over the time to the next one: the trace has rounded them
}

// Replay brings the requests of a trace. Copies begin at other places of it and go round, and their prefixes have nothing
// in common: together they are the same traffic, so many times over.
type Replay struct {
	trace  *Trace
	scale  float64
	at     []time.Duration // of the rows, spread
	length time.Duration   // from the first to one mean gap after the last
	copies []playing
}

// playing is one copy.
type playing struct {
	salt  uint64 // 0 = none
	shift time.Duration
	next  int // index of the row that comes next, counted on over the end of the trace
	left  int // rows
}

// NewReplay returns a source that plays a trace, whose rows it only reads.
func NewReplay(seed uint64, t *Trace, o ReplayOptions) (*Replay, error) {
	if o.Scale == 0 {
		o.Scale = 1
	}
	if o.Copies == 0 {
		o.Copies = 1
	}
	n := len(t.Rows)
	switch {
	case n == 0:
		return nil, errors.New("the trace holds no request")
	case !(o.Scale > 0) || math.IsInf(o.Scale, 1):
		return nil, fmt.Errorf("a time scale of %v: it must be positive", o.Scale)
	case o.Copies < 0:
		return nil, fmt.Errorf("%d copies of the trace: at least one is needed", o.Copies)
	}
	p := &Replay{trace: t, scale: o.Scale}
	for i := range t.Rows {
		p.at = append(p.at, t.Rows[i].At)
	}
	p.length = p.at[n-1] + p.at[n-1]/time.Duration(max(n-1, 1)) + 1
	if o.Spread {
		p.spread(seed)
	}
	rng := stream(seed, forCopies)
	for i := range o.Copies {
		c := playing{left: n}
		if i > 0 {
			c.salt = rng.Uint64() | 1
			// A part of the trace for each copy, and a place at random in it.
			c.shift = time.Duration((float64(i) + rng.Float64()) / float64(o.Copies) * float64(p.length))
			c.next, _ = slices.BinarySearch(p.at, p.length-c.shift)
		}
		p.copies = append(p.copies, c)
	}
	return p, nil
}

// spread places the rows of each timestamp at random, in order, before the next timestamp.
func (p *Replay) spread(seed uint64) {
	rng := stream(seed, forTicks)
	for i := 0; i < len(p.at); {
		j := i
		for j < len(p.at) && p.at[j] == p.at[i] {
			j++
		}
		end := p.length
		if j < len(p.at) {
			end = p.at[j]
		}
		from := p.at[i]
		for k := i; k < j; k++ {
			p.at[k] = from + time.Duration(rng.Float64()*float64(end-from))
		}
		slices.Sort(p.at[i:j])
		i = j
	}
}

// time returns when a copy's next row comes, before scaling. Until a copy that began amid the trace has come round, it is a
// round early.
func (p *Replay) time(c *playing) time.Duration {
	if n := len(p.at); c.next >= n {
		return p.at[c.next-n] + c.shift
	}
	if c.shift == 0 {
		return p.at[c.next]
	}
	return p.at[c.next] + c.shift - p.length
}

// Next implements Source.
func (p *Replay) Next(r *Request) bool {
	var first *playing
	var at time.Duration
	for i := range p.copies {
		if c := &p.copies[i]; c.left > 0 {
			if t := p.time(c); first == nil || t < at {
				first, at = c, t
			}
		}
	}
	if first == nil {
		return false
	}
	row := &p.trace.Rows[first.next%len(p.at)]
	first.next++
	first.left--
	*r = Request{
		At: time.Duration(float64(at) * p.scale), Model: row.Model, Tenant: row.Tenant, Session: row.Session,
		PromptTokens: row.PromptTokens, OutputTokens: row.OutputTokens, BlockTokens: p.trace.BlockTokens, Recorded: row.Recorded,
	}
	r.Prompt, r.Output = row.chain(p.trace.BlockTokens)
	if first.salt != 0 {
		r.Prompt, r.Output = salted(r.Prompt, first.salt), salted(r.Output, first.salt)
		if r.Session != 0 {
			r.Session = mix(r.Session^first.salt) | 1
		}
	}
	return true
}

// chain returns the chain of the prompt's whole blocks, and how it goes on with the answer.
func (r *Row) chain(block int) (prompt, output []uint64) {
	switch {
	case r.told != nil:
		return r.told.blocks(r.PromptTokens, r.OutputTokens)
	case block == 0:
		return nil, nil
	}
	full := min(r.PromptTokens/block, len(r.Blocks))
	return r.Blocks[:full:full], nil
}

// salted returns other numbers for the blocks of a chain.
func salted(chain []uint64, salt uint64) []uint64 {
	out := make([]uint64, len(chain))
	for i, h := range chain {
		out[i] = mix(h ^ salt)
	}
	return out
}

// Length returns how long the trace takes to play.
func (p *Replay) Length() time.Duration { return time.Duration(float64(p.length) * p.scale) }
