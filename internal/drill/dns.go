package drill

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsServer answers for every name with the same addresses.
type dnsServer struct {
	conn net.PacketConn

	mu     sync.Mutex
	addrs  []netip.Addr
	code   dnsmessage.RCode
	silent bool
}

// dnsTTL is what it says of how long its records hold, in seconds.
const dnsTTL = 1

// dns starts a server on loopback.
func (b *Bench) dns(addrs ...netip.Addr) *dnsServer {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	b.must(err)
	d := &dnsServer{conn: conn, addrs: addrs}
	var running sync.WaitGroup
	running.Go(func() {
		query := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(query)
			if err != nil {
				return // closed with the row
			}
			if answer := d.answer(query[:n]); answer != nil {
				_, _ = conn.WriteTo(answer, from) // a lost datagram is asked for again
			}
		}
	})
	b.later(func() {
		conn.Close()
		running.Wait()
	})
	return d
}

func (d *dnsServer) addr() string { return d.conn.LocalAddr().String() }

// say changes what is answered from now on.
func (d *dnsServer) say(code dnsmessage.RCode, silent bool, addrs ...netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.code, d.silent, d.addrs = code, silent, addrs
}

func (d *dnsServer) answer(query []byte) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil || d.silent {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: head.ID, Response: true, RecursionDesired: head.RecursionDesired, RecursionAvailable: true, RCode: d.code},
		Questions: []dnsmessage.Question{q},
	}
	for _, a := range d.addrs {
		if q.Type == dnsmessage.TypeA && a.Is4() {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: dnsTTL},
				Body:   &dnsmessage.AResource{A: a.As4()},
			})
		}
	}
	text, err := m.Pack()
	if err != nil {
		return nil
	}
	return text
}
