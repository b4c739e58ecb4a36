package yardstick

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/sim"
)

// Pool is a sim.Server: engines behind one who knows their caches and loads, and the lengths of answers, and who may hold requests
// back until an engine can begin with them. A Fleet that has it as its only deployment shows what such knowledge is worth.
type Pool struct {
	machines []*machine
	kinds    []*sim.Engine // one for each size of blocks
	rule     rule
	asks     map[uint64]*ask
	queue    []*ask // with the Pool, in order of arrival
	version  uint64 // counts what happens
	reports  []sim.Report
}

// rule decides where requests go.
type rule interface {
	// arrived says where a request goes at once; nil = the Pool keeps it until an engine is free.
	arrived(p *Pool, now time.Duration, a *ask) *machine
	// next returns which request of the queue m is to begin with now, which it can; nil = none.
	next(p *Pool, now time.Duration, m *machine) *ask
}

func newPool(engines []engine.Config, r rule) (*Pool, error) {
	p := &Pool{rule: r, asks: map[uint64]*ask{}}
	if len(engines) == 0 {
		return nil, errors.New("yardstick: there is no engine: give one at least")
	}
	for i, c := range engines {
		e, err := sim.NewEngine(c)
		if err != nil {
			return nil, fmt.Errorf("yardstick: engine %d: %w", i, err)
		}
		block := slices.IndexFunc(p.kinds, func(k *sim.Engine) bool { return k.BlockTokens() == c.BlockTokens })
		if block < 0 {
			block = len(p.kinds)
			p.kinds = append(p.kinds, e)
		}
		p.machines = append(p.machines, &machine{Engine: e, pace: paceOf(&c), config: c, index: i, block: block, version: 1})
	}
	return p, nil
}

// Submit implements sim.Server.
func (p *Pool) Submit(now time.Duration, j sim.Job) error {
	if !slices.ContainsFunc(p.machines, func(m *machine) bool { return m.holds(j.Request) }) {
		return fmt.Errorf("yardstick: no engine holds %d prompt and %d output tokens", j.Request.PromptTokens, j.Request.OutputTokens)
	}
	r := *j.Request // the caller's is used again
	j.Request = &r
	a, err := p.ask(j)
	if err != nil {
		return err
	}
	if m := p.rule.arrived(p, now, a); m != nil {
		if err := m.give(now, a); err != nil {
			return err
		}
		p.asks[j.ID] = a
		return nil
	}
	p.asks[j.ID] = a
	p.queue = append(p.queue, a)
	return p.offer(now)
}

// ask describes a job to machines.
func (p *Pool) ask(j sim.Job) (*ask, error) {
	a := &ask{job: j, finds: make([]find, len(p.machines))}
	for _, k := range p.kinds {
		s, err := k.Sequence(j.Request)
		if err != nil {
			return nil, err
		}
		a.sequences = append(a.sequences, s)
	}
	return a, nil
}

// offer lets all engines that compute no prompt begin with one.
func (p *Pool) offer(now time.Duration) error {
	for len(p.queue) > 0 {
		before := len(p.queue)
		for _, m := range p.machines {
			if len(m.waiting) == 0 {
				if err := p.pull(now, m); err != nil {
					return err
				}
			}
		}
		if len(p.queue) == before {
			break
		}
	}
	return nil
}

// pull gives m one request of the queue if the rule has one for it.
func (p *Pool) pull(now time.Duration, m *machine) error {
	a := p.rule.next(p, now, m)
	if a == nil {
		return nil
	}
	p.queue = slices.DeleteFunc(p.queue, func(q *ask) bool { return q == a })
	p.version++
	return m.give(now, a)
}

// refill gives m, whose step ends now, what the next step can begin with.
func (p *Pool) refill(now time.Duration, m *machine) error {
	if m.fifo { // whether its prompt is done shows after the step
		return nil
	}
	budget := m.budget()
	for left := max(0, m.left-budget); left < budget && len(p.queue) > 0; {
		before := m.left
		n := len(p.queue)
		if err := p.pull(now, m); err != nil || len(p.queue) == n {
			return err
		}
		left += max(1, m.left-before)
	}
	return nil
}

// Cancel implements sim.Server.
func (p *Pool) Cancel(now time.Duration, id uint64) bool {
	a := p.asks[id]
	if a == nil {
		return false
	}
	delete(p.asks, id)
	if a.at == nil {
		p.queue = slices.DeleteFunc(p.queue, func(q *ask) bool { return q == a })
		return true
	}
	a.at.version++
	a.at.take(a, true)
	return a.at.Cancel(now, id)
}

// Next implements sim.Server.
func (p *Pool) Next() (at time.Duration, ok bool) {
	for _, m := range p.machines {
		if t, busy := m.Next(); busy && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}

// Step implements sim.Server.
func (p *Pool) Step(now time.Duration) []sim.Report {
	p.reports = p.reports[:0]
	for _, m := range p.machines {
		if at, busy := m.Next(); !busy || at > now {
			continue
		}
		p.version++
		p.must(p.refill(now, m))
		before := len(m.waiting)
		m.version++
		for _, r := range m.Engine.Step(now) {
			if a := p.asks[r.ID]; a != nil {
				m.take(a, r.Kind == sim.Done)
				if r.Kind == sim.Done {
					delete(p.asks, r.ID)
				}
				p.reports = append(p.reports, r)
			}
		}
		if !m.fifo || len(m.waiting) != before {
			m.look(now)
		}
	}
	p.must(p.offer(now))
	return p.reports
}

// must is for requests that an engine holds, as the rule made sure.
func (p *Pool) must(err error) {
	if err != nil {
		panic("BUG: yardstick: " + err.Error())
	}
}

// Load returns the sum of what the engines' metrics would say.
func (p *Pool) Load(now time.Duration) (sum engine.Load) {
	for _, m := range p.machines {
		l := m.Load(now)
		sum.Running += l.Running
		sum.Waiting += l.Waiting
		sum.WaitingTokens += l.WaitingTokens
		sum.ContextTokens += l.ContextTokens
		sum.Blocks += l.Blocks
		sum.Used += l.Used
		sum.Cached += l.Cached
		sum.PromptTokens += l.PromptTokens
		sum.CachedTokens += l.CachedTokens
		sum.Preemptions += l.Preemptions
	}
	sum.Waiting += len(p.queue)
	return sum
}
