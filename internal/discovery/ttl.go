package discovery

import (
	"net"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// ttl is the shortest time for which the answers hold that came over some connections to DNS servers. Safe for
// concurrent use.
type ttl struct {
	mu    sync.Mutex
	heard bool
	least time.Duration
}

// shortest returns it; 0 if no answer was heard. What must not be kept at all holds for a nanosecond.
func (t *ttl) shortest() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.heard {
		return 0
	}
	return max(t.least, 1)
}

func (t *ttl) message(m []byte) {
	d, ok := answerTTL(m)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.heard || d < t.least {
		t.heard, t.least = true, d
	}
}

// answerTTL returns the shortest TTL of the records in a DNS message's answer; false if it has none, or is none.
func answerTTL(m []byte) (least time.Duration, ok bool) {
	var p dnsmessage.Parser
	h, err := p.Start(m)
	if err != nil || !h.Response || h.RCode != dnsmessage.RCodeSuccess || h.Truncated || p.SkipAllQuestions() != nil {
		return 0, false
	}
	for {
		r, err := p.AnswerHeader()
		if err == dnsmessage.ErrSectionDone {
			return least, ok
		}
		if err != nil || p.SkipAnswer() != nil {
			return 0, false
		}
		seconds := r.TTL
		if seconds > 1<<31-1 { // as zero (RFC 2181 §8)
			seconds = 0
		}
		if d := time.Duration(seconds) * time.Second; !ok || d < least {
			least, ok = d, true
		}
	}
}

// on returns c with somebody who listens to what is read.
func (t *ttl) on(c net.Conn) net.Conn {
	if p, ok := c.(net.PacketConn); ok { // the resolver tells by it that messages come one by one
		return overheardPackets{c, p, t}
	}
	return &overheardStream{Conn: c, ttl: t}
}

type overheardPackets struct {
	net.Conn
	packets net.PacketConn
	ttl     *ttl
}

// Read implements net.Conn.
func (o overheardPackets) Read(b []byte) (int, error) {
	n, err := o.Conn.Read(b)
	if err == nil {
		o.ttl.message(b[:n])
	}
	return n, err
}

// ReadFrom implements net.PacketConn.
func (o overheardPackets) ReadFrom(b []byte) (int, net.Addr, error) { return o.packets.ReadFrom(b) }

// WriteTo implements net.PacketConn.
func (o overheardPackets) WriteTo(b []byte, to net.Addr) (int, error) {
	return o.packets.WriteTo(b, to)
}

// overheardStream carries messages with their length in front (RFC 1035 §4.2.2).
type overheardStream struct {
	net.Conn
	ttl  *ttl
	read []byte // and not a whole message yet
}

// Read implements net.Conn.
func (o *overheardStream) Read(b []byte) (int, error) {
	n, err := o.Conn.Read(b)
	o.read = append(o.read, b[:n]...)
	for len(o.read) >= 2 {
		end := 2 + int(o.read[0])<<8 + int(o.read[1])
		if len(o.read) < end {
			break
		}
		o.ttl.message(o.read[2:end])
		o.read = o.read[end:]
	}
	return n, err
}
