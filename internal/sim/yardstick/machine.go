package yardstick

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
)

// ask is a request that a Pool has.
type ask struct {
	job       sim.Job
	sequences []engine.Sequence // by machine.block
	at        *machine          // nil = it is with the Pool
	cached    int               // tokens that it will find, as of its dispatch
	finds     []find            // by machine.index

	best        *machine // for late.patient, at a time and version of the Pool
	bestAt      time.Duration
	bestVersion uint64
}

// find is what a machine has of a request, as of a version of the machine; 0 = it is not known.
type find struct {
	version uint64
	tokens  int
}

// common is how many tokens two requests share from the start. Each hash stands for all before it.
func common(a, b *sim.Request) int {
	n := min(len(a.Prompt), len(b.Prompt))
	return a.BlockTokens * sort.Search(n, func(i int) bool { return a.Prompt[i] != b.Prompt[i] })
}

// machine is an engine, and what it has been given.
type machine struct {
	*sim.Engine
	pace
	config engine.Config
	index  int
	block  int // of ask.sequences

	waiting  []*ask // those without a first token, in order
	decoding []*ask
	given    int // requests so far

	version uint64 // counts what may change its cache and what it was given
	space   space  // if spaced, what room is left once all have begun that wait
	spaced  bool

	since time.Duration // when its step began; of FIFO, the prompt
	load  engine.Load   // at the beginning of its step
	left  int           // prompt tokens to compute, as of then
}

// look sees what the engine does now that something has happened.
func (m *machine) look(now time.Duration) {
	m.since, m.spaced = now, false
	if m.fifo {
		return
	}
	m.load = m.Load(now)
	m.left = m.load.WaitingTokens
	for i := len(m.waiting) - min(m.load.Waiting, len(m.waiting)); i < len(m.waiting); i++ {
		m.left -= m.waiting[i].cached // the engine counts all of a prompt that it has not begun
	}
	m.left = max(m.left, len(m.waiting))
}

// found is how many tokens a request would find in the cache by the time that the engine comes to it.
func (m *machine) found(a *ask) int {
	f := &a.finds[m.index]
	if f.version == m.version {
		return f.tokens
	}
	n := m.Cached(&a.sequences[m.block])
	for _, w := range m.waiting {
		n = max(n, common(w.job.Request, a.job.Request)/m.pace.block*m.pace.block)
	}
	*f = find{m.version, min(n, m.most(a.job.Request.PromptTokens))}
	return f.tokens
}

// own is what the engine takes for a prompt, in seconds, but for the base of its steps if it works in steps.
func (m *machine) own(prompt, cached int) float64 {
	if m.fifo {
		return m.alone(prompt - cached)
	}
	return m.token*float64(prompt-cached) + m.pair*(square(prompt)-square(cached))
}

// step is what a step costs beside prompt tokens.
func (m *machine) step() float64 {
	s := m.base + m.prefill
	if m.config.Scheduler != engine.PrefillFirst {
		s += m.decode()
	}
	return s
}

// decode is what the tokens of answers add to a step.
func (m *machine) decode() float64 {
	t := &m.config.Timing
	switch n := len(m.decoding); {
	case n == 0:
		return 0
	case t.Decode != nil:
		return t.Decode(min(1, float64(m.load.ContextTokens)/float64(m.config.Blocks*m.config.BlockTokens)))
	default:
		return t.Sequence*float64(n) + t.Context*float64(m.load.ContextTokens)
	}
}

// budget is how many prompt tokens fit in a step.
func (m *machine) budget() int {
	if m.config.Scheduler == engine.PrefillFirst {
		return m.pace.step
	}
	return max(1, m.pace.step-len(m.decoding))
}

// backlog is how long a request that was given to the engine now would wait before the engine computes nothing but its prompt.
func (m *machine) backlog(now time.Duration, a *ask, cached int) float64 {
	elapsed := (now - m.since).Seconds()
	if m.fifo {
		sum := 0.0
		for _, w := range m.waiting {
			sum += m.own(w.job.Request.PromptTokens, w.cached)
		}
		return max(0, sum-elapsed)
	}
	if len(m.waiting) == 0 {
		steps := math.Ceil(float64(a.job.Request.PromptTokens-cached) / float64(m.budget()))
		wait := m.room(now, a, cached)
		if len(m.decoding) > 0 && wait == 0 {
			wait = (m.base + m.decode()) / 2 // of the step that runs
		}
		return wait + steps*m.step()
	}
	sum, tokens := 0.0, 0
	for _, w := range m.waiting {
		sum += m.own(w.job.Request.PromptTokens, w.cached)
		tokens += w.job.Request.PromptTokens - w.cached
	}
	sum *= float64(min(m.left, tokens)) / float64(tokens) // a part of that is done
	steps := math.Ceil(float64(m.left+a.job.Request.PromptTokens-cached) / float64(m.budget()))
	return max(0, sum+steps*m.step()-elapsed) + m.room(now, a, cached)
}

// end is when a request will be over: after so many more tokens. Then so many blocks are free.
type end struct{ tokens, blocks int }

// space is what an engine has room for, as of so many tokens of those that decode.
type space struct {
	places, blocks, tokens int
	ends                   []end // that are to come, the soonest first
}

// take finds when there is room for so many blocks, and takes it.
func (s *space) take(blocks int) {
	for (s.places < 1 || s.blocks < blocks) && len(s.ends) > 0 {
		e := s.ends[0]
		s.ends = s.ends[1:]
		s.places, s.blocks, s.tokens = s.places+1, s.blocks+e.blocks, e.tokens
	}
	s.places--
	s.blocks -= blocks
}

func (s *space) end(e end) {
	i, _ := slices.BinarySearchFunc(s.ends, e, func(x, y end) int { return cmp.Compare(x.tokens, y.tokens) })
	s.ends = slices.Insert(s.ends, i, e)
}

// places is how many requests can run.
func (m *machine) places() int {
	switch {
	case m.fifo || m.config.Scheduler == engine.Legacy:
		return math.MaxInt
	case m.slots:
		return m.config.Slots
	}
	return m.config.MaxSequences
}

// full reports whether as many requests run or wait as can run.
func (m *machine) full() bool { return len(m.waiting)+len(m.decoding) >= m.places() }

// needs is the blocks that a prompt takes beside those that it finds.
func (m *machine) needs(a *ask, cached int) int {
	if m.slots { // each slot has its own
		return 0
	}
	return (a.job.Request.PromptTokens - cached + m.pace.block - 1) / m.pace.block
}

// frees is the blocks that a request leaves; those that it found, others may hold too.
func (m *machine) frees(a *ask) int {
	return (a.job.Request.PromptTokens - a.cached + a.job.Request.OutputTokens) / m.pace.block
}

// queued works out what room is left once all have begun that wait.
func (m *machine) queued(now time.Duration) {
	s := space{places: m.places() - len(m.decoding), blocks: m.config.Blocks - m.load.Used, ends: m.space.ends[:0]}
	for _, d := range m.decoding {
		s.ends = append(s.ends, end{d.job.Request.OutputTokens - m.Produced(now, d.job.ID), m.frees(d)})
	}
	slices.SortFunc(s.ends, func(x, y end) int { return cmp.Compare(x.tokens, y.tokens) })
	running := len(m.waiting) - min(m.load.Waiting, len(m.waiting))
	for i, w := range m.waiting {
		if i < running {
			s.places-- // it has its blocks
		} else {
			s.take(m.needs(w, w.cached))
		}
		s.end(end{s.tokens + w.job.Request.OutputTokens, m.frees(w)})
	}
	m.space, m.spaced = s, true
}

// room is how long it takes until so many answers have ended that the engine has room for all it was given and one more request.
func (m *machine) room(now time.Duration, a *ask, cached int) float64 {
	if m.fifo || m.config.Scheduler == engine.Legacy {
		return 0
	}
	needs := m.needs(a, cached)
	if !m.full() && m.load.Waiting == 0 && m.config.Blocks-m.load.Used >= needs {
		return 0
	}
	if !m.spaced {
		m.queued(now)
	}
	s := m.space
	s.take(needs)
	return float64(s.tokens) * (m.base + m.decode())
}

// give hands the engine a request.
func (m *machine) give(now time.Duration, a *ask) error {
	a.cached = m.found(a)
	if err := m.Submit(now, a.job); err != nil {
		return err
	}
	a.at = m
	m.version++
	m.waiting = append(m.waiting, a)
	m.given++
	if m.fifo && len(m.waiting) > 1 {
		return nil // it goes on with what it has begun
	}
	if m.fifo || len(m.waiting) == 1 {
		m.look(now)
		return nil
	}
	m.left += a.job.Request.PromptTokens - a.cached
	m.load.Waiting++
	m.spaced = false
	return nil
}

// take forgets a request that is over, and one that has its first token moves on.
func (m *machine) take(a *ask, over bool) {
	if i := slices.Index(m.waiting, a); i >= 0 {
		m.waiting = slices.Delete(m.waiting, i, i+1)
		if !over {
			m.decoding = append(m.decoding, a)
		}
		return
	}
	if i := slices.Index(m.decoding, a); i >= 0 && over {
		m.decoding = slices.Delete(m.decoding, i, i+1)
	}
}
