package sim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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
// in common: together they are the same traffic, so many times over. It holds but the next row of each copy, or, spread, those of one
// timestamp.
type Replay struct {
	trace  *Trace
	seed   uint64
	scale  float64
	spread bool
	length time.Duration // from the first to one mean gap after the last
	copies []playing
}

// playing is one copy.
type playing struct {
	salt  uint64 // 0 = none
	shift time.Duration
	next  int // index of the row that comes next, counted on over the end of the trace
	left  int // rows
	row   Row // the one that comes next
	rows  *timed
}

// playBytes is what all copies read at once, together.
const playBytes = 4 << 20

// NewReplay returns a source that plays a trace.
func NewReplay(seed uint64, t *Trace, o ReplayOptions) (*Replay, error) {
	if o.Scale == 0 {
		o.Scale = 1
	}
	if o.Copies == 0 {
		o.Copies = 1
	}
	switch {
	case t.n == 0:
		return nil, errors.New("the trace holds no request")
	case !(o.Scale > 0) || math.IsInf(o.Scale, 1):
		return nil, fmt.Errorf("a time scale of %v: it must be positive", o.Scale)
	case o.Copies < 0:
		return nil, fmt.Errorf("%d copies of the trace: at least one is needed", o.Copies)
	}
	p := &Replay{trace: t, seed: seed, scale: o.Scale, spread: o.Spread, length: lengthOf(t.Last(), t.n)}
	rng := stream(seed, forCopies)
	for i := range o.Copies {
		c := playing{left: t.n}
		if i > 0 {
			c.salt = rng.Uint64() | 1
			// A part of the trace for each copy, and a place at random in it.
			c.shift = time.Duration((float64(i) + rng.Float64()) / float64(o.Copies) * float64(p.length))
		}
		p.copies = append(p.copies, c)
	}
	p.place()
	return p, nil
}

// place puts each copy before the row that it begins with.
func (p *Replay) place() {
	buffer := min(readBytes, max(512, playBytes/len(p.copies)))
	late := len(p.copies) - 1 // of the copies that have no place yet, the one that begins first
	if late > 0 {
		rows := p.rows(readBytes)
		for i := 0; i < p.trace.n && late > 0; i++ {
			var r Row
			for rows.next(&r); late > 0 && r.At >= p.length-p.copies[late].shift; late-- {
				c := &p.copies[late]
				c.next, c.rows, c.row = i, rows.fork(buffer), r
			}
		}
	}
	for i := range p.copies[:late+1] { // they begin at the beginning
		c := &p.copies[i]
		if c.rows = p.rows(buffer); i > 0 {
			c.next = p.trace.n
		}
		c.rows.next(&c.row)
	}
}

// time returns when a copy's next row comes, before scaling. Until a copy that began amid the trace has come round, it is a
// round early.
func (p *Replay) time(c *playing) time.Duration {
	if c.next >= p.trace.n || c.shift == 0 {
		return c.row.At + c.shift
	}
	return c.row.At + c.shift - p.length
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
	row := &first.row
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
	first.next++
	if first.left--; first.left > 0 {
		first.rows.next(&first.row)
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

// timed reads rows round and round, with the times at which they are played. Those of one timestamp are placed at random, in order,
// before the next timestamp if they are to be spread. Use by one goroutine.
type timed struct {
	replay *Replay
	cursor *cursor
	ticks  rand.PCG // what rows are placed by

	group []Row // those of one timestamp, which are read together to be spread
	taken int   // of group
	ahead *Row  // the first of the next timestamp, nil = it was not read

	first  int      // number of the row that group begins with
	before rand.PCG // what ticks was then
}

// rows returns the rows from the beginning.
func (p *Replay) rows(buffer int) *timed {
	return &timed{replay: p, cursor: newCursor(p.trace, 0, buffer)}
}

// fork returns the rows that come next once more.
func (t *timed) fork(buffer int) *timed {
	out := &timed{replay: t.replay, cursor: newCursor(t.replay.trace, t.first, buffer), ticks: t.before}
	out.fill()
	out.taken = t.taken
	return out
}

// next takes a row.
func (t *timed) next(r *Row) {
	if t.taken == len(t.group) {
		t.fill()
	}
	*r, t.group[t.taken] = t.group[t.taken], Row{}
	t.taken++
}

// fill reads the rows of the next timestamp.
func (t *timed) fill() {
	p, n := t.replay, t.replay.trace.n
	t.group, t.taken = append(t.group[:0], Row{}), 0
	if t.ahead != nil {
		t.first, t.group[0], t.ahead = t.cursor.at-1, *t.ahead, nil
	} else {
		t.first = t.cursor.at % n
		t.cursor.next(&t.group[0])
	}
	if !p.spread {
		return
	}
	if t.first == 0 { // each round is the same
		t.ticks = *source(p.seed, forTicks)
	}
	t.before = t.ticks
	from, end := t.group[0].At, p.length
	for t.cursor.at < n {
		var r Row
		if t.cursor.next(&r); r.At > from {
			t.ahead, end = &r, r.At
			break
		}
		t.group = append(t.group, r)
	}
	rng := rand.New(&t.ticks)
	times := make([]time.Duration, len(t.group))
	for i := range times {
		times[i] = from + time.Duration(rng.Float64()*float64(end-from))
	}
	slices.Sort(times)
	for i, at := range times {
		t.group[i].At = at
	}
}
