package drill

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"evenkeel/internal/mock"
)

// Connections that are not made, or break before an answer.
var connectRows = []Row{
	{
		ID: "R1", Needs: 2,
		Fault:   "an engine refuses connections",
		Promise: "another one answers: no client sees an error",
		run:     refuses,
		off:     off{defence: "retries", settings: settings{"retry": settings{"max_attempts": 1}}},
	},
	{
		ID:      "R2",
		Fault:   "an engine's host drops every packet",
		Promise: "the connect timeout (500 ms here) is all it costs, once",
		run:     dropped,
		off:     off{defence: "the connect timeout", settings: settings{"deadlines": settings{"connect": "20s"}}},
	},
	{
		ID:      "R3",
		Fault:   "connections are reset as soon as they are made",
		Promise: "no client sees an error; the deployment is charged",
		run:     resetAtOnce,
		off:     off{defence: "retries", settings: settings{"retry": settings{"max_attempts": 1}}},
	},
	{
		ID:      "R4",
		Fault:   "the connection is reset before the head of the answer",
		Promise: "one retry, with the same body to the byte",
		run:     resetBeforeHead,
		off:     off{defence: "retries", settings: settings{"retry": settings{"max_attempts": 1}}},
	},
	{
		ID:      "R62",
		Fault:   "engines close kept connections at the moment they are used",
		Promise: "no client sees an error",
		run:     stale,
		off:     off{defence: "the silent repeat over a stale connection", change: "stale"},
	},
}

func refuses(_ context.Context, b *Bench) (Measured, error) {
	es := b.fleet(2, mock.Config{})
	x := b.serve()
	n := b.times(2000, 10000)
	f := b.flow(x, 50, request{}) // so that there are requests at the very moment
	b.pass(200 * time.Millisecond)
	b.fault(es[0], mock.Fault{Kind: "refuse"})
	t := b.crowd(x, n, 16, request{})
	t.answers = append(t.answers, f.end().answers...)
	down := t.total() - t.of(complete)
	return measured("%d errors of %d", down, t.total()), check(down == 0, "%d of %d requests were not answered; the first: %s", down, t.total(), t.example())
}

func dropped(_ context.Context, b *Bench) (Measured, error) {
	const connect, slack = 500 * time.Millisecond, 250 * time.Millisecond
	b.set(settings{"deadlines": settings{"connect": connect.String()}, "strategy": "round_robin"})
	bad, good := b.engine(mock.Config{}), b.engine(mock.Config{})
	k := b.link(bad.Addr())
	b.serveBy("a", k.url())
	b.serveBy("b", good.URL())
	x := b.serve()
	b.crowd(x, 10, 1, request{})
	b.must(k.vanish())
	k.cut() // the kept connections
	t := b.crowd(x, 20, 1, request{limit: 2 * time.Second})
	slow := t.where(func(a *answer) bool { return a.took > connect/2 })
	worst := t.quantile(1, took)
	found := measured("%d of %d requests took longer, at most %v", slow, t.total(), worst.Round(time.Millisecond))
	if t.of(complete) < t.total() {
		return found, brokenf("not all requests were answered: %s", t.example())
	}
	return found, check(slow <= 2 && worst <= connect+slack, "%d of %d requests met the black hole, the slowest took %v: want at most 2, and %v", slow, t.total(), worst, connect+slack)
}

func resetAtOnce(_ context.Context, b *Bench) (Measured, error) {
	bad, good := b.engine(mock.Config{}), b.engine(mock.Config{})
	k := b.link(bad.Addr())
	b.serveBy("a", k.url())
	b.serveBy("b", good.URL())
	x := b.serve()
	f := b.flow(x, 200, request{})
	b.pass(300 * time.Millisecond)
	k.change(linkFault{resetAtOnce: true})
	k.cut()
	b.pass(2 * time.Second)
	t := f.end()
	down := t.total() - t.of(complete)
	charged := x.stands()["a"].faults
	found := measured("%d errors of %d, %d charged", down, t.total(), charged)
	if down > 0 {
		return found, brokenf("%d of %d requests were not answered; the first: %s", down, t.total(), t.example())
	}
	return found, check(charged > 0, "the deployment behind the resets was charged with no fault")
}

func resetBeforeHead(_ context.Context, b *Bench) (Measured, error) {
	b.set(settings{"strategy": "round_robin"})
	es := b.fleet(2, mock.Config{Record: 10})
	x := b.serve()
	b.fault(es[0], mock.Fault{Kind: "reset", Count: 1})
	r := request{model: b.asked()}
	r.body = r.text()
	t := b.crowd(x, 2, 1, r) // one of them meets it
	tries := 0
	for _, a := range t.answers {
		tries += a.attempts
	}
	found := measured("%d attempts for 2 requests and 1 reset, bodies equal", tries)
	if t.of(complete) < t.total() {
		return found, brokenf("a request was not answered: %s", t.example())
	}
	for _, e := range es {
		for _, got := range e.Requests() {
			if got.Method == http.MethodPost && !bytes.Equal(r.body, got.Body) {
				return found, brokenf("engine %s was sent other bytes than the client's: %.200q", e.Name(), got.Body)
			}
		}
	}
	return found, check(tries == 3, "%d attempts for 2 requests and 1 reset, want 3", tries)
}

// stale: each connection serves one request well and is closed as soon as the next one arrives on it.
func stale(_ context.Context, b *Bench) (Measured, error) {
	n := b.times(5000, 100000)
	for _, name := range []string{"a", "b"} {
		f := b.fake(name, nil)
		f.answer = func(c *fakeConn, n int) {
			if !f.first(c.Conn) {
				c.reset()
				return
			}
			c.json(200, chatAnswer)
		}
		b.serveBy(name, f.url())
	}
	x := b.serve()
	t := b.crowd(x, n, 8, request{})
	down := t.total() - t.of(complete)
	var closed int64
	for _, f := range b.fakes {
		closed += f.asked.Load()
	}
	closed -= int64(t.of(complete))
	found := measured("%d errors of %d, %d used connections closed", down, t.total(), closed)
	if closed < int64(n)/10 {
		b.stopf("only %d of %d requests met a closed connection: nothing was tried", closed, n)
	}
	return found, check(down == 0, "%d of %d requests were not answered; the first: %s", down, t.total(), t.example())
}
