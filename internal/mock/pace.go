package mock

import (
	"errors"
	"slices"
	"time"

	"evenkeel/internal/engine"
)

// pace says when the tokens of one answer come. It is of one connection, as that is what waits.
type pace interface {
	// wait returns when the i-th token, from 0, is out. An error says that the client left, or the connection is gone.
	wait(i int) error
	// cached is how many prompt tokens a cache held; known once the first token is out.
	cached() int
	// leave gives back what the answer holds of the engine.
	leave()
}

// fixedPace has the times of Config: a slot, and from then on a schedule that nothing else changes.
type fixedPace struct {
	c           *conn
	start       time.Time
	first, step time.Duration
	held        int64 // tokens, for the KV gauge
}

// fixed waits for a slot.
func (c *conn) fixed(a *answer, factor float64) (pace, error) {
	slots := &c.engine.slots
	granted, w := slots.take(c.poke)
	if !granted && w == nil {
		return nil, errQueueFull
	}
	if !granted {
		if err := c.park(func() bool { return slots.granted(w) }); err != nil {
			slots.leave(w)
			return nil, err
		}
	}
	cfg := &c.engine.cfg
	p := &c.pace
	*p = fixedPace{
		c: c, start: time.Now(), held: int64(a.promptTokens() + a.tokens),
		first: scaled(cfg.BaseLatency+cfg.prefill(a.promptTokens()), factor), step: scaled(cfg.InterToken, factor),
	}
	c.engine.count.heldTokens.Add(p.held)
	return p, nil
}

func scaled(d time.Duration, factor float64) time.Duration {
	return time.Duration(float64(d) * factor)
}

func (p *fixedPace) wait(i int) error {
	if i > 0 && p.step == 0 {
		return nil
	}
	return p.c.sleep(p.start.Add(p.first + time.Duration(i)*p.step))
}

func (p *fixedPace) cached() int { return 0 }

func (p *fixedPace) leave() {
	p.c.engine.count.heldTokens.Add(-p.held)
	p.c.engine.slots.release()
}

// modelPace has the times of the timing model.
type modelPace struct {
	c *conn
	d *driver
	j *job
}

// modelled submits the answer's request to the model.
func (c *conn) modelled(d *driver, a *answer) (pace, error) {
	s := engine.Sequence{PromptTokens: a.promptTokens(), OutputTokens: max(1, a.tokens), EachToken: a.stream}
	if name := string(a.call.model); slices.Contains(c.engine.cfg.Adapters, name) {
		s.Adapter = name
	}
	s.Prompt, s.Output = a.blocks(c.engine.cfg.Engine.BlockTokens)
	j, err := d.submit(s, c.poke)
	if err != nil {
		return nil, err
	}
	return &modelPace{c, d, j}, nil
}

func (p *modelPace) wait(i int) error {
	for {
		err := p.c.park(func() bool {
			out, _ := p.d.told(p.j)
			return out > i
		})
		if !errors.Is(err, errPipelined) {
			return err
		}
		time.Sleep(pipelinedGrain)
	}
}

// pipelinedGrain is how often a connection looks for its token that cannot wait by watching its client.
const pipelinedGrain = time.Millisecond

func (p *modelPace) cached() int {
	_, cached := p.d.told(p.j)
	return cached
}

func (p *modelPace) leave() { p.d.leave(p.j) }
