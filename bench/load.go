package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// cell is one kind of load.
type cell struct {
	name        string
	about       string
	model       string
	concurrency int
	tokens      int // of each answer
	stream      bool
	timed       bool    // run for a window of time; else for a number of streams
	unit        string  // what CPU time is counted per
	bound       float64 // the most CPU time per unit, as a multiple of nginx's; 0 = none is set
}

var cells = []cell{
	{name: "small", about: "answers of 16 tokens, not streamed, 64 connections that ask again at once", model: "fast",
		concurrency: 64, tokens: 16, timed: true, unit: "request", bound: 4.5},
	{name: "paced", about: "200 streams of 100 tokens at a time, 10 ms between tokens", model: "paced",
		concurrency: 200, tokens: 100, stream: true, timed: true, unit: "event", bound: 1.6},
	{name: "burst", about: "streams of 20 tokens as fast as possible, 32 at a time", model: "fast",
		concurrency: 32, tokens: 20, stream: true, unit: "event"},
}

func cellNames() []string {
	var names []string
	for _, c := range cells {
		names = append(names, c.name)
	}
	return names
}

// request is the request of a cell, as it goes over the wire.
func (c cell) request() []byte {
	stream := ""
	if c.stream {
		stream = `,"stream":true,"stream_options":{"include_usage":true}`
	}
	body := fmt.Sprintf(`{"model":%q,"max_tokens":%d%s,"temperature":0.7,"messages":[`+
		`{"role":"system","content":"You are a helpful assistant. Answer briefly."},`+
		`{"role":"user","content":"Which way does the wind blow at the harbour today, and should we set sail?"}]}`, c.model, c.tokens, stream)
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nAccept: application/json\r\n"+
		"Authorization: Bearer sk-bench\r\nContent-Type: application/json\r\nUser-Agent: evenkeel-bench\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body)
}

// events is how many events a stream has: the role, the tokens, the finish, the usage, the end marker.
func (c cell) events() int { return c.tokens + 4 }

// units is how many units an answer counts for once it is complete.
func (c cell) units() int {
	if c.stream {
		return c.events()
	}
	return 1
}

// answers are the bodies that the engines give to the request of a cell; they give the same each time.
type answers [][]byte

// ask learns what each engine answers.
func ask(c cell, p place) (answers, error) {
	var all answers
	for _, engine := range p.engines {
		conn := newConn(engine)
		err := conn.do(c.request(), nil)
		conn.close()
		if err != nil {
			return nil, fmt.Errorf("cell %s: engine %s: %w", c.name, engine, err)
		}
		if n := bytes.Count(conn.body, []byte("\n\n")); c.stream && (n != c.events() || !bytes.HasSuffix(conn.body, []byte("data: [DONE]\n\n"))) {
			return nil, fmt.Errorf("cell %s: engine %s: a stream of %d events, want %d and [DONE]", c.name, engine, n, c.events())
		}
		all = append(all, conn.body)
	}
	return all, nil
}

// find returns which engine gave an answer, −1 if none did.
func (a answers) find(body []byte) int {
	for i, want := range a {
		if bytes.Equal(body, want) {
			return i
		}
	}
	return -1
}

// tally is what became of the requests of one target in one cell.
type tally struct {
	complete int
	lost     int // with an error that the client could see
	changed  int // that looked complete and were not what an engine said
	byEngine [engines]int
	examples []string // of what was lost or changed
}

func (t *tally) add(o tally) {
	t.complete += o.complete
	t.lost += o.lost
	t.changed += o.changed
	for i, n := range o.byEngine {
		t.byEngine[i] += n
	}
	t.examples = append(t.examples, o.examples...)
	t.examples = t.examples[:min(len(t.examples), mostExamples)]
}

const mostExamples = 5

func (t *tally) wrong() int { return t.lost + t.changed }

// load is the clients of one target in one cell.
type load struct {
	cell    cell
	request []byte
	want    answers
	clients []*client
	record  atomic.Bool // take times
}

func newLoad(c cell, addresses []string, want answers) *load {
	l := &load{cell: c, request: c.request(), want: want}
	for i := range c.concurrency {
		l.clients = append(l.clients, &client{load: l, conn: newConn(addresses[i%len(addresses)])})
	}
	return l
}

// run lets every client make requests for as long as next says so, starting them evenly over the time given, and
// waits for all answers. When ctx ends, running requests are broken off.
func (l *load) run(ctx context.Context, over time.Duration, next func() bool) {
	ctx, end := context.WithCancel(ctx)
	defer end()
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

// times returns the times to first token and the gaps between tokens that were recorded. The clients must not run.
func (l *load) times() (ttft, gaps []time.Duration) {
	for _, c := range l.clients {
		ttft, gaps = append(ttft, c.ttft...), append(gaps, c.gaps...)
	}
	return ttft, gaps
}

// client is one connection that makes one request after another.
type client struct {
	load     *load
	conn     *conn
	tally    tally
	received atomic.Int64 // units
	_        [64]byte     // keeps the counters of two clients apart

	asked, last time.Time
	ttft, gaps  []time.Duration
}

func (c *client) run(ctx context.Context, next func() bool) {
	var each watch
	if c.load.cell.timed && c.load.cell.stream {
		each = c.saw // a stream may be longer than the window: its events count as they come
	}
	for ctx.Err() == nil && next() {
		if c.conn.nc == nil {
			if err := c.conn.dial(); err != nil {
				c.lose(err)
				return
			}
		}
		nc := c.conn.nc
		stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
		c.asked = time.Now()
		err := c.conn.do(c.load.request, each)
		stop()
		if ctx.Err() != nil {
			return
		}
		c.judge(err)
		if each == nil && err == nil {
			c.received.Add(int64(c.load.cell.units()))
		}
	}
}

func (c *client) judge(err error) {
	if err != nil {
		c.lose(err)
		return
	}
	engine := c.load.want.find(c.conn.body)
	if engine < 0 {
		c.tally.changed++
		c.example(fmt.Sprintf("an answer of %d bytes that no engine gave, ending in %q", len(c.conn.body), c.conn.body[max(0, len(c.conn.body)-120):]))
		return
	}
	c.tally.complete++
	c.tally.byEngine[engine]++
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
