package cli

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// lookEvery is how often the demo looks at the balancer and shows what it sees.
const lookEvery = 200 * time.Millisecond

// plan says when what happens within one strategy's half of the demo.
type plan struct {
	half       time.Duration
	traffic    []arrival // ends before the half does, so that queues can drain
	kill, back time.Duration
}

func newPlan(half time.Duration) plan {
	part := func(x float64) time.Duration { return time.Duration(x * float64(half)) }
	return plan{half: half, traffic: schedule(demoSeed, part(0.70)), kill: part(0.40), back: part(0.60)}
}

// event is something worth a line.
type event struct {
	at   time.Duration
	text string
}

// news is what a client tells while its answer comes.
type news struct {
	engine string
	ttft   time.Duration // of the first content
	ended  *answer       // nil: the first content came
}

// phase runs the traffic under one strategy. One goroutine owns it, that of run; the clients send it news.
type phase struct {
	fleet  *demoFleet
	client *demoClient
	plan   plan
	show   func(*phase) // after every look
	say    func(event)  // at once

	began    time.Time
	tally    *tally
	outage   outage
	back     bool
	standing map[string]standing
	before   map[string]standing // at the start
	events   []event
	clients  sync.WaitGroup
	news     chan news
	sent     int
	told     int // seconds that plain lines were written for
}

// run returns when every request has ended. When ctx ends, what still runs is dropped.
func (p *phase) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, err := p.fleet.look(ctx)
	if err != nil {
		return err
	}
	p.before, p.standing, p.news, p.began = before, before, make(chan news), time.Now()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	for err == nil && (p.sent < len(p.plan.traffic) || !p.back || p.tally.running() > 0) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case n := <-p.news:
			p.heard(n)
		case <-next.C:
			err = p.act(ctx)
			next.Reset(p.untilNext())
		case <-look.C:
			err = p.look(ctx)
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
	}
	p.finish()
	if err == nil {
		err = p.look(ctx)
	}
	return err
}

// finish waits for the clients; those that still run are told by their context.
func (p *phase) finish() {
	done := make(chan struct{})
	go func() { // ends with the clients
		p.clients.Wait()
		close(done)
	}()
	for {
		select {
		case n := <-p.news:
			p.heard(n)
		case <-done:
			p.tally.span = time.Since(p.began)
			return
		}
	}
}

func (p *phase) heard(n news) {
	if n.ended == nil {
		p.tally.first(n.engine, n.ttft)
		return
	}
	p.tally.add(n.ended, &p.outage)
}

// act does what is due.
func (p *phase) act(ctx context.Context) error {
	now := time.Since(p.began)
	for ; p.sent < len(p.plan.traffic) && p.plan.traffic[p.sent].at <= now; p.sent++ {
		p.send(ctx, p.sent)
	}
	switch {
	case p.outage.killed.IsZero() && now >= p.plan.kill:
		p.outage = outage{engine: demoVictim, killed: time.Now()}
		p.fleet.engine(demoVictim).Kill()
		p.outage.dead = time.Now()
		p.note(demoVictim + " is killed: all its connections are reset")
	case !p.back && now >= p.plan.back:
		p.back = true
		if err := p.fleet.engine(demoVictim).Restart(); err != nil {
			return err
		}
		p.note(demoVictim + " is started again")
	}
	return nil
}

// untilNext is how long there is nothing to do but listen.
func (p *phase) untilNext() time.Duration {
	due := time.Duration(1<<63 - 1)
	if p.sent < len(p.plan.traffic) {
		due = p.plan.traffic[p.sent].at
	}
	if p.outage.killed.IsZero() {
		due = min(due, p.plan.kill)
	} else if !p.back {
		due = min(due, p.plan.back)
	}
	return max(due-time.Since(p.began), 0)
}

func (p *phase) send(ctx context.Context, n int) {
	p.tally.asked++
	a := p.plan.traffic[n]
	p.clients.Go(func() {
		ended := p.client.ask(ctx, a.body(n), a.output, func(engine string, ttft time.Duration) {
			p.news <- news{engine: engine, ttft: ttft}
		})
		p.news <- news{ended: &ended}
	})
}

// look asks how the engines stand, notes what changed, and shows it.
func (p *phase) look(ctx context.Context) error {
	seen, err := p.fleet.look(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("the balancer's admin listener: %w", err)
	}
	for _, e := range p.fleet.engines {
		name := e.Name()
		old, now := p.standing[name], seen[name]
		switch {
		case old.serves() && !now.serves():
			p.note(fmt.Sprintf("the balancer takes %s out: %s", name, now.reason))
		case !old.serves() && now.serves():
			p.note(fmt.Sprintf("the balancer uses %s again, after %s", name, brief(time.Since(old.since))))
		}
		t := p.tally.engines[name]
		t.picks = now.picks - p.before[name].picks
		t.longestQueue = max(t.longestQueue, e.Stats().Waiting)
	}
	p.standing = seen
	p.tally.span = time.Since(p.began)
	p.show(p)
	return nil
}

// remains is what stays to be read of a half that is over. On a live screen its events went with the picture.
func (p *phase) remains(live bool) []line {
	lines := []line{p.tally.summary()}
	if live {
		for _, e := range p.events {
			lines = append(lines, e.line())
		}
	}
	return lines
}

func (p *phase) note(text string) {
	e := event{time.Since(p.began), text}
	p.events = append(p.events, e)
	p.say(e)
}
