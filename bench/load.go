package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// tally is what became of the requests of one target in one cell.
type tally struct {
	complete int
	lost     int // with an error that the client could see
	changed  int // that looked complete and were not what an engine said
	late     int // sent more than tooLate after their time on a schedule
	byEngine [engines]int
	examples []string // of what was lost or changed
}

func (t *tally) add(o tally) {
	t.complete += o.complete
	t.lost += o.lost
	t.changed += o.changed
	t.late += o.late
	for i, n := range o.byEngine {
		t.byEngine[i] += n
	}
	t.examples = append(t.examples, o.examples...)
	t.examples = t.examples[:min(len(t.examples), mostExamples)]
}

const mostExamples = 5

func (t *tally) wrong() int { return t.lost + t.changed }
func (t *tally) asked() int { return t.complete + t.wrong() }

// load is the clients of one target in one cell.
type load struct {
	cell    cell
	want    answers
	says    []gist // the same, where answers come in other bytes; nil = they come as they are
	clients []*client
	record  atomic.Bool            // take times
	latest  atomic.Pointer[string] // ID of an answer that has just come
}

func newLoad(c cell, to way, want answers) *load {
	l := &load{cell: c, want: want}
	if to.recodes {
		l.says = want.gists()
	}
	request, body := c.request(to.fields), c.body()
	var shared [h2Clients]*http.Transport
	for i := range c.concurrency {
		address := to.addresses[i%len(to.addresses)]
		var conn asker
		if c.h2 && to.proxy != nil {
			t := &shared[i%h2Clients]
			if *t == nil {
				*t = newTransport(to.tls)
			}
			conn = &h2stream{transport: *t, url: "https://" + address + path, request: body}
		} else {
			conn = newConn(address, to.tls, request)
		}
		l.clients = append(l.clients, &client{load: l, conn: conn})
	}
	return l
}

// run makes requests for as long as next says so and waits for all answers: on the cell's schedule, or each client one
// after another, the clients starting evenly over the time given. When ctx ends, running requests are broken off.
func (l *load) run(ctx context.Context, over time.Duration, next func() bool) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	if l.cell.rate > 0 {
		l.keepRate(ctx, next)
		return
	}
	var all sync.WaitGroup
	for i, c := range l.clients {
		delay := over * time.Duration(i) / time.Duration(len(l.clients))
		all.Go(func() {
			select {
			case <-time.After(delay):
				c.run(ctx, next)
			case <-ctx.Done():
			}
		})
	}
	all.Wait()
}

func (l *load) close() {
	for _, c := range l.clients {
		c.conn.close()
	}
}

// units is how many units the clients have received so far.
func (l *load) units() int64 {
	var n int64
	for _, c := range l.clients {
		n += c.received.Load()
	}
	return n
}

// tally sums up what the clients saw. They must not run.
func (l *load) tally() tally {
	var sum tally
	for _, c := range l.clients {
		sum.add(c.tally)
	}
	return sum
}

// tallyAfter is tally for callers that have an error to pass on.
func (l *load) tallyAfter(err error) (tally, error) {
	if err != nil {
		return tally{}, err
	}
	return l.tally(), nil
}

// times returns the times to first token and the gaps between tokens that were recorded. The clients must not run.
func (l *load) times() (ttft, gaps []time.Duration) {
	for _, c := range l.clients {
		ttft, gaps = append(ttft, c.ttft...), append(gaps, c.gaps...)
	}
	return ttft, gaps
}

// answered is an answer that explain must know of.
type answered struct {
	id string
	at time.Time // when it was complete
}

// client makes one request after another.
type client struct {
	load     *load
	conn     asker
	due      chan time.Time // when to send, for requests on a schedule
	tally    tally
	answered []answered
	received atomic.Int64 // units
	_        [64]byte     // keeps the counters of two clients apart

	asked, last time.Time
	ttft, gaps  []time.Duration
}

func (c *client) run(ctx context.Context, next func() bool) {
	for ctx.Err() == nil && next() {
		c.once(ctx)
	}
}

// once makes one request.
func (c *client) once(ctx context.Context) {
	var each watch
	if c.load.cell.paced || c.load.cell.stream && c.load.says != nil {
		each = c.saw // a stream with a pace, or from someone slow, may be longer than the window: its events count as they come
	}
	c.asked = time.Now()
	err := c.conn.ask(ctx, each)
	if ctx.Err() != nil {
		return
	}
	c.judge(err)
	if each == nil && err == nil {
		c.received.Add(int64(c.load.cell.units()))
	}
	if id := c.conn.id(); id != "" {
		c.answered = append(c.answered, answered{id, time.Now()})
		c.load.latest.Store(&id)
	}
}

func (c *client) judge(err error) {
	if err != nil {
		c.lose(err)
		return
	}
	body := c.conn.answer()
	engine := c.load.engine(body)
	if engine < 0 {
		c.tally.changed++
		c.example(fmt.Sprintf("an answer of %d bytes that no engine gave, ending in %q", len(body), body[max(0, len(body)-120):]))
		return
	}
	c.tally.complete++
	c.tally.byEngine[engine]++
}

// engine returns which engine gave an answer, −1 if none did.
func (l *load) engine(body []byte) int {
	if l.says != nil {
		return findGist(l.says, body)
	}
	return l.want.find(body)
}

func (c *client) lose(err error) {
	c.tally.lost++
	c.example(err.Error())
}

func (c *client) example(text string) {
	if len(c.tally.examples) < mostExamples {
		c.tally.examples = append(c.tally.examples, strings.ToValidUTF8(text, "?"))
	}
}

// saw counts an event of a stream and takes the times of its tokens: event 0 is the role, what follows the tokens is
// the end.
func (c *client) saw(n int, at time.Time) {
	c.received.Add(1)
	if c.load.record.Load() {
		switch {
		case n == 1:
			c.ttft = append(c.ttft, at.Sub(c.asked))
		case n > 1 && n <= c.load.cell.tokens:
			c.gaps = append(c.gaps, at.Sub(c.last))
		}
	}
	c.last = at
}
