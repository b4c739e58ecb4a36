package sim

import "time"

// Epoch is when every simulation begins. Router and exchange are given Epoch plus virtual time.
var Epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// eventKind says what an event is about, and so what its index and gen mean.
type eventKind uint8

const (
	arrival    eventKind = iota // the next request of the source comes
	step                        // a deployment's server has something to report
	alarm                       // a client's exchange is to be woken; gen is not looked at
	granted                     // a client's ticket has a result
	endedMain                   // a client's attempt on the main lane is over
	endedHedge                  // and on the other one
	tick                        // a balancer looks at who waits
	fault                       // something breaks, or is mended
	burnt                       // the burn-in is over
	scrape                      // a balancer reads metrics
	hearsay                     // balancers hear of what one of them did
)

// event is one thing that is due. An event whose gen is not its object's any more is void.
type event struct {
	at    time.Duration
	seq   uint64 // of those at one time, the one that was planned first comes first
	kind  eventKind
	gen   uint32
	index int32
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// clock holds virtual time and what is due. The zero value stands at 0.
type clock struct {
	now  time.Duration
	seq  uint64
	heap []event // a 4-ary heap

	// Looks at answers that grow are due progressEvery after they were planned, so they are in order as they come. In the heap they would
	// be nearly all, and make each of the others slow.
	looks []look // from head on
	head  int
}

// look is when a client's answer is looked at. It is void if gen is not the client's any more.
type look struct {
	at    time.Duration
	seq   uint64 // as of events
	index int32
	gen   uint32
}

// plan makes an event due, now at the soonest.
func (c *clock) plan(at time.Duration, k eventKind, index int32, gen uint32) {
	c.seq++
	e := event{max(at, c.now), c.seq, k, gen, index}
	c.heap = append(c.heap, e)
	i := len(c.heap) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&c.heap[parent]) {
			break
		}
		c.heap[i] = c.heap[parent]
		i = parent
	}
	c.heap[i] = e
}

// again plans a look at a client's answer.
func (c *clock) again(index int32, gen uint32) {
	c.seq++
	if 2*c.head > len(c.looks) {
		n := copy(c.looks, c.looks[c.head:])
		c.looks, c.head = c.looks[:n], 0
	}
	c.looks = append(c.looks, look{c.now + progressEvery, c.seq, index, gen})
}

// before takes the looks that are due before the next event, and not after until. The slice is valid until the next again.
func (c *clock) before(until time.Duration) []look {
	from := c.head
	for ; c.head < len(c.looks); c.head++ {
		l := &c.looks[c.head]
		if l.at > until || len(c.heap) > 0 && !(&event{at: l.at, seq: l.seq}).before(&c.heap[0]) {
			break
		}
	}
	return c.looks[from:c.head]
}

// next takes the event that is due first, if that is not after until, and lets time pass until then. What is due before it, before has taken.
func (c *clock) next(until time.Duration) (event, bool) {
	if len(c.heap) == 0 || c.heap[0].at > until {
		return event{}, false
	}
	e := c.pop()
	c.now = e.at
	return e, true
}

// pop takes the first event from the heap.
func (c *clock) pop() event {
	first := c.heap[0]
	n := len(c.heap) - 1
	last := c.heap[n]
	c.heap = c.heap[:n]
	i := 0
	for {
		least := 4*i + 1
		if least >= n {
			break
		}
		for j := least + 1; j < min(4*i+5, n); j++ {
			if c.heap[j].before(&c.heap[least]) {
				least = j
			}
		}
		if !c.heap[least].before(&last) {
			break
		}
		c.heap[i] = c.heap[least]
		i = least
	}
	if n > 0 {
		c.heap[i] = last
	}
	return first
}

// wall is what a balancer's clock shows at a time.
func wall(t time.Duration) time.Time { return Epoch.Add(t) }
