package mock

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// DNS is a DNS server on loopback, over UDP and TCP, whose answers are set from outside. Safe for concurrent use.
type DNS struct {
	udp  net.PacketConn
	tcp  net.Listener
	work sync.WaitGroup

	mu    sync.Mutex
	names map[string]DNSAnswer
	open  map[net.Conn]bool
	asked int
}

// DNSAnswer is what a name has. The zero value is a name without addresses.
type DNSAnswer struct {
	Addresses []netip.Addr
	TTL       time.Duration // whole seconds
	// Fails makes both families, or those of FailsFor alone, fail as a server that cannot find out (SERVFAIL).
	Fails    bool
	FailsFor string // "A" or "AAAA"
	Silent   bool   // there is no answer at all
	Truncate bool   // UDP brings nothing but the word to come again over TCP
}

// NewDNS starts a server that knows no name: each is answered with NXDOMAIN until it is set.
func NewDNS() (*DNS, error) {
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	tcp, err := net.Listen("tcp", udp.LocalAddr().String())
	for try := 0; err != nil && try < 20; try++ { // another program has that port for TCP
		_ = udp.Close() // for another one
		if udp, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
		tcp, err = net.Listen("tcp", udp.LocalAddr().String())
	}
	if err != nil {
		_ = udp.Close() // nothing came of it
		return nil, err
	}
	d := &DNS{udp: udp, tcp: tcp, names: map[string]DNSAnswer{}, open: map[net.Conn]bool{}}
	d.work.Go(d.packets) // ends with udp
	d.work.Go(d.streams) // ends with tcp
	return d, nil
}

// Addr is where it listens.
func (d *DNS) Addr() string { return d.udp.LocalAddr().String() }

// Set says what a name has from now on.
func (d *DNS) Set(name string, a DNSAnswer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[canonicalName(name)] = a
}

// Remove makes a name unknown.
func (d *DNS) Remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.names, canonicalName(name))
}

// Asked is the number of questions so far.
func (d *DNS) Asked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

// Close ends the server and waits for its goroutines.
func (d *DNS) Close() {
	_ = d.udp.Close()
	_ = d.tcp.Close()
	d.mu.Lock()
	for c := range d.open {
		_ = c.Close()
	}
	d.mu.Unlock()
	d.work.Wait()
}

func canonicalName(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") + "." }

func (d *DNS) packets() {
	b := make([]byte, 1500)
	for {
		n, from, err := d.udp.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if reply := d.reply(b[:n], true); reply != nil {
			_, _ = d.udp.WriteTo(reply, from) // who asked asks again
		}
	}
}

func (d *DNS) streams() {
	for {
		c, err := d.tcp.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.open[c] = true
		d.mu.Unlock()
		d.work.Go(func() { d.stream(c) }) // ends with c
	}
}

func (d *DNS) stream(c net.Conn) {
	defer func() {
		_ = c.Close()
		d.mu.Lock()
		delete(d.open, c)
		d.mu.Unlock()
	}()
	for {
		var length [2]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		reply := d.reply(b, false)
		if reply == nil {
			continue
		}
		if _, err := c.Write(binary.BigEndian.AppendUint16(nil, uint16(len(reply)))); err != nil {
			return
		}
		if _, err := c.Write(reply); err != nil {
			return
		}
	}
}

// reply returns the answer to a message; nil if there is none.
func (d *DNS) reply(m []byte, packet bool) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(m)
	if err != nil || h.Response {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	d.mu.Lock()
	d.asked++
	a, known := d.names[canonicalName(q.Name.String())]
	d.mu.Unlock()
	if a.Silent {
		return nil
	}
	r := dnsmessage.Message{Questions: []dnsmessage.Question{q}}
	r.Header = dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: h.RecursionDesired, RecursionAvailable: true}
	switch {
	case !known:
		r.RCode = dnsmessage.RCodeNameError
	case a.Fails || a.FailsFor != "" && q.Type.String() == "Type"+a.FailsFor:
		r.RCode = dnsmessage.RCodeServerFailure
	case packet && a.Truncate:
		r.Truncated = true
	default:
		r.Answers = a.records(q)
	}
	packed, err := r.Pack()
	if err != nil {
		panic("BUG: mock: a DNS answer that cannot be written: " + strconv.Quote(err.Error()))
	}
	return packed
}

// records are those of the type that is asked for.
func (a DNSAnswer) records(q dnsmessage.Question) []dnsmessage.Resource {
	var all []dnsmessage.Resource
	h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: uint32(a.TTL / time.Second)}
	for _, address := range a.Addresses {
		switch {
		case address.Is4() && q.Type == dnsmessage.TypeA:
			h.Type = dnsmessage.TypeA
			all = append(all, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: address.As4()}})
		case !address.Is4() && q.Type == dnsmessage.TypeAAAA:
			h.Type = dnsmessage.TypeAAAA
			all = append(all, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: address.As16()}})
		}
	}
	return all
}
