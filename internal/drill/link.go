package drill

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// link is a TCP proxy between the balancer and an engine, with the faults of a network.
type link struct {
	to string
	l  net.Listener

	mu    sync.Mutex
	fault linkFault
	conns map[net.Conn]struct{}
	fill  []net.Conn    // connections that fill the backlog
	moved chan struct{} // closed and replaced when the fault changes
}

// linkFault is what a link does wrong.
type linkFault struct {
	resetAtOnce bool          // RST right after accept
	silent      bool          // nothing passes, in either direction, and nothing is said
	deaf        bool          // connections are not even accepted; see vanish
	delay       time.Duration // of every segment
	jitter      time.Duration // added to it, from 0 to this
	loss        float64       // share of segments that are lost, which TCP shows as a retransmission later
}

// retransmission is when Linux sends a lost segment again at the soonest (TCP_RTO_MIN); a lost SYN comes after
// synRetransmission (RFC 6298 §2.1).
const (
	retransmission    = 200 * time.Millisecond
	synRetransmission = time.Second
)

// link puts one before an address.
func (b *Bench) link(to string) *link {
	k := &link{to: to, l: b.listen(), conns: map[net.Conn]struct{}{}, moved: make(chan struct{})}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			nc, err := k.l.Accept()
			if err != nil {
				return // closed with the row
			}
			f, moved := k.now()
			for ; f.deaf; f, moved = k.now() {
				<-moved
			}
			running.Go(func() { k.carry(nc) })
		}
	})
	b.later(func() {
		k.l.Close()
		k.change(linkFault{})
		k.unfill()
		k.cut()
		running.Wait()
	})
	return k
}

func (k *link) url() string { return "http://" + k.l.Addr().String() }

// change puts a fault in force, for connections that are open too.
func (k *link) change(f linkFault) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fault = f
	close(k.moved)
	k.moved = make(chan struct{})
}

func (k *link) now() (linkFault, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fault, k.moved
}

// cut resets all connections that it carries.
func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for nc := range k.conns {
		hangUp(nc)
	}
}

// unfill gives the places in the backlog back.
func (k *link) unfill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, nc := range k.fill {
		nc.Close()
	}
	k.fill = nil
}

// hangUp closes a connection with a TCP RST.
func hangUp(nc net.Conn) {
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // else it would end politely
	}
	nc.Close()
}

func (k *link) track(nc net.Conn) {
	k.mu.Lock()
	k.conns[nc] = struct{}{}
	k.mu.Unlock()
}

func (k *link) untrack(nc net.Conn) {
	nc.Close()
	k.mu.Lock()
	delete(k.conns, nc)
	k.mu.Unlock()
}

// carry is one connection.
func (k *link) carry(from net.Conn) {
	k.track(from)
	defer k.untrack(from)
	f, _ := k.now()
	if f.resetAtOnce {
		hangUp(from)
		return
	}
	if f.loss > 0 && rand.Float64() < f.loss {
		time.Sleep(synRetransmission)
	}
	to, err := net.DialTimeout("tcp", k.to, 5*time.Second)
	if err != nil {
		hangUp(from)
		return
	}
	k.track(to)
	defer k.untrack(to)
	var both sync.WaitGroup
	both.Go(func() { k.copy(to, from) })
	k.copy(from, to)
	both.Wait()
}

// segment is what was read at one time.
type segment struct {
	text []byte
	due  time.Time
}

// copy carries one direction, in order: a late segment holds up those behind it, as TCP does.
func (k *link) copy(to, from net.Conn) {
	queue := make(chan segment, 1024)
	var writing sync.WaitGroup
	writing.Go(func() {
		for s := range queue {
			time.Sleep(time.Until(s.due))
			for f, moved := k.now(); f.silent; f, moved = k.now() {
				<-moved
			}
			if _, err := to.Write(s.text); err != nil {
				hangUp(from)
				for range queue { // so that the reader is not held up
				}
				return
			}
		}
	})
	b := make([]byte, 32<<10)
	var last time.Time
	for {
		n, err := from.Read(b)
		if n > 0 {
			f, _ := k.now()
			due := time.Now().Add(f.delay)
			if f.jitter > 0 {
				due = due.Add(rand.N(f.jitter))
			}
			for again := retransmission; f.loss > 0 && rand.Float64() < f.loss; again *= 2 {
				due = due.Add(again)
			}
			if due.Before(last) {
				due = last
			}
			last = due
			queue <- segment{append([]byte(nil), b[:n]...), due}
		}
		if err == nil {
			continue
		}
		close(queue)
		writing.Wait()
		if t, ok := to.(*net.TCPConn); ok && err == io.EOF {
			_ = t.CloseWrite() // fails if it is gone
		} else {
			hangUp(to)
		}
		return
	}
}
