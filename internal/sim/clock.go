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
	progress                    // a client's answer has grown
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

	// What recurs is due progressEvery after it was planned, so it is in order as it comes. In the heap it would be nearly all, and
	// make each of the others slow.
	recurring []event // from head on
	head      int
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

// recur makes an event due progressEvery from now.
func (c *clock) recur(k eventKind, index int32, gen uint32) {
	c.seq++
	if 2*c.head > len(c.recurring) {
		n := copy(c.recurring, c.recurring[c.head:])
		c.recurring, c.head = c.recurring[:n], 0
	}
	c.recurring = append(c.recurring, event{c.now + progressEvery, c.seq, k, gen, index})
}

// next takes the event that is due first, if that is not after until, and lets time pass until then.
func (c *clock) next(until time.Duration) (e event, ok bool) {
	recurs := c.head < len(c.recurring)
	if recurs && (len(c.heap) == 0 || c.recurring[c.head].before(&c.heap[0])) {
		if e = c.recurring[c.head]; e.at > until {
			return e, false
		}
		c.head++
	} else {
		if len(c.heap) == 0 || c.heap[0].at > until {
			return e, false
		}
		e = c.pop()
	}
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
