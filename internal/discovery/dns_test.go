package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"evenkeel/internal/mock"
)

func ips(text string) []netip.Addr {
	var list []netip.Addr
	for _, s := range strings.Fields(text) {
		list = append(list, netip.MustParseAddr(s))
	}
	return list
}

var (
	errNone    = fmt.Errorf("lookup: %w", &net.DNSError{Err: "no such host", IsNotFound: true})
	errServer  = &net.DNSError{Err: "server misbehaving", IsTemporary: true}
	errTimeout = &net.DNSError{Err: "i/o timeout", IsTimeout: true}
)

// What a name's addresses are after a series of look-ups; each is the records of IPv4 and of IPv6.
func TestAddressesAfterLookups(t *testing.T) {
	four := func(list string) records { return records{list: ips(list), ttl: 20 * time.Second} }
	none := records{err: errNone}
	f := func(title, want string, looks ...[2]records) {
		t.Helper()
		var n name
		var a Addresses
		for _, l := range looks {
			a = n.take(l)
		}
		got := fmt.Sprint(a.List, " next ", a.Next)
		if a.Gone {
			got += " gone"
		}
		if a.Err != nil {
			got += " " + a.Err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", title, got, want)
		}
	}
	f("both families, sorted, once each", "[10.0.0.1 10.0.0.2 fd00::1] next 20s", [2]records{four("10.0.0.2 10.0.0.1 10.0.0.2"), {list: ips("fd00::1")}})
	f("the shorter TTL counts", "[10.0.0.1 fd00::1] next 5s", [2]records{four("10.0.0.1"), {list: ips("fd00::1"), ttl: 5 * time.Second}})
	f("no TTL", "[10.0.0.1] next 30s", [2]records{{list: ips("10.0.0.1")}, none})
	f("a TTL of 0", "[10.0.0.1] next 1s", [2]records{{list: ips("10.0.0.1"), ttl: 1}, none})
	f("a TTL of a day", "[10.0.0.1] next 5m0s", [2]records{{list: ips("10.0.0.1"), ttl: 24 * time.Hour}, none})
	f("one left", "[10.0.0.2] next 20s", [2]records{four("10.0.0.1 10.0.0.2"), none}, [2]records{four("10.0.0.2"), none})
	f("the server fails", "[10.0.0.1] next 1s "+errServer.Error(), [2]records{four("10.0.0.1"), none}, [2]records{{err: errServer}, {err: errServer}})
	f("nobody answers", "[10.0.0.1] next 1s "+errTimeout.Error(), [2]records{four("10.0.0.1"), none}, [2]records{{err: errTimeout}, none}, [2]records{four("10.0.0.1"), none}, [2]records{{err: errTimeout}, {err: errTimeout}})
	f("one family fails, the other moves", "[10.0.0.2 fd00::1] next 1s "+errServer.Error(), [2]records{four("10.0.0.1"), {list: ips("fd00::1")}}, [2]records{four("10.0.0.2"), {err: errServer}})
	f("one family fails from the start", "[10.0.0.1] next 1s "+errServer.Error(), [2]records{four("10.0.0.1"), {err: errServer}})
	f("one family is left", "[fd00::1] next 20s", [2]records{four("10.0.0.1"), {list: ips("fd00::1")}}, [2]records{none, {list: ips("fd00::1"), ttl: 20 * time.Second}})
	f("one gone, of the other nothing is known", "[10.0.0.1] next 1s "+errServer.Error(), [2]records{four("10.0.0.1"), none}, [2]records{none, {err: errServer}})
	f("the name is gone", "[10.0.0.1] next 1s gone", [2]records{four("10.0.0.1"), none}, [2]records{none, none})
	f("it was never there", "[] next 1s gone", [2]records{none, none})
	f("failures are farther and farther apart", "[] next 4s gone", [2]records{none, none}, [2]records{none, none}, [2]records{none, none})
	f("but not for ever", "[] next 5s gone", slices.Repeat([][2]records{{none, none}}, 9)...)
	f("a success starts anew", "[10.0.0.1] next 1s gone", slices.Concat(slices.Repeat([][2]records{{none, none}}, 9), [][2]records{{four("10.0.0.1"), none}, {none, none}})...)
}

func TestManyAddresses(t *testing.T) {
	var list []netip.Addr
	for i := range 3000 {
		list = append(list, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	var n name
	if a := n.take([2]records{{list: list}, {err: errNone}}); len(a.List) != maxAddresses || a.List[0] != list[0] {
		t.Errorf("%d addresses, want %d", len(a.List), maxAddresses)
	}
}

// Look-ups come at the TTL of what was found.
func TestResolveTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		n := &name{lookup: func(_ context.Context, network, _ string) records {
			switch since := time.Since(start); {
			case network == "ip6":
				return records{err: errNone}
			case since >= 20*time.Second && since < 22*time.Second:
				return records{err: errTimeout}
			case since >= 40*time.Second:
				return records{err: errors.New("over")}
			}
			return records{list: ips("10.0.0.1"), ttl: 10 * time.Second}
		}}
		var at []string
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			n.watch(ctx, func(a Addresses) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, fmt.Sprint(time.Since(start), " ", len(a.List), " ", a.Err == nil))
			})
		}()
		time.Sleep(45 * time.Second)
		cancel()
		<-done
		want := []string{"0s 1 true", "10s 1 true", "20s 1 false", "21s 1 false", "23s 1 true", "33s 1 true", "43s 1 false", "44s 1 false"}
		if !slices.Equal(at, want) {
			t.Errorf("got  %v\nwant %v", at, want)
		}
	})
}

func dnsServer(t *testing.T) *mock.DNS {
	t.Helper()
	d, err := mock.NewDNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// The system's resolver against a real server, over UDP and TCP.
func TestLookup(t *testing.T) {
	d := dnsServer(t)
	const host = "pool.example"
	f := func(title string, a mock.DNSAnswer, want string) {
		t.Helper()
		d.Set(host, a)
		n := name{host: host, lookup: ResolveOptions{Server: d.Addr()}.lookup}
		got := n.look(t.Context())
		text := fmt.Sprint(got.List, " ", got.Next, " ", got.Gone, " ", got.Err != nil)
		if text != want {
			t.Errorf("%s: got %s (%v), want %s", title, text, got.Err, want)
		}
	}
	f("both families", mock.DNSAnswer{Addresses: ips("10.0.0.2 10.0.0.1 fd00::1"), TTL: 7 * time.Second}, "[10.0.0.1 10.0.0.2 fd00::1] 7s false false")
	f("one family", mock.DNSAnswer{Addresses: ips("10.0.0.1"), TTL: 30 * time.Second}, "[10.0.0.1] 30s false false")
	f("IPv6 alone", mock.DNSAnswer{Addresses: ips("fd00::1"), TTL: 30 * time.Second}, "[fd00::1] 30s false false")
	f("a TTL of 0", mock.DNSAnswer{Addresses: ips("10.0.0.1")}, "[10.0.0.1] 1s false false")
	f("no address", mock.DNSAnswer{}, "[] 1s true false")
	f("a failing server", mock.DNSAnswer{Fails: true}, "[] 1s false true")
	f("a server that fails for one family", mock.DNSAnswer{Addresses: ips("10.0.0.1"), FailsFor: "AAAA"}, "[10.0.0.1] 1s false true")
	var many []netip.Addr
	for i := range 300 {
		many = append(many, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))
	}
	f("over TCP", mock.DNSAnswer{Addresses: many, TTL: 12 * time.Second, Truncate: true}, fmt.Sprint(many, " 12s false false"))

	n := name{host: "unknown.example", lookup: ResolveOptions{Server: d.Addr()}.lookup}
	if got := n.look(t.Context()); !got.Gone {
		t.Errorf("an unknown name: %+v", got)
	}
}

// TestFailedLookupNamesWhomItAsked: the server of the options, not one of the system's.
func TestFailedLookupNamesWhomItAsked(t *testing.T) {
	d := dnsServer(t)
	d.Set("pool.example", mock.DNSAnswer{Fails: true})
	n := name{host: "pool.example", lookup: ResolveOptions{Server: d.Addr()}.lookup}
	if got := n.look(t.Context()); got.Err == nil || !strings.Contains(got.Err.Error(), " on "+d.Addr()+":") {
		t.Errorf("got %v, want it to name %s", got.Err, d.Addr())
	}
}

// TestNameOfOneFamilyInHosts: that /etc/hosts has no IPv6 address for a name is no failure where it has one of IPv4.
func TestNameOfOneFamilyInHosts(t *testing.T) {
	n := name{host: "localhost", lookup: ResolveOptions{Server: dnsServer(t).Addr()}.lookup}
	if got := n.look(t.Context()); got.Err != nil || got.Gone || len(got.List) == 0 {
		t.Errorf("got %+v", got)
	}
	if !otherFamily(&net.AddrError{Err: "no suitable address found", Addr: "localhost"}) || otherFamily(&net.AddrError{Err: "missing port in address"}) || otherFamily(errTimeout) {
		t.Error("errors are mixed up")
	}
}

// A look-up ends with its context, also while nobody answers.
func TestLookupEnds(t *testing.T) {
	d := dnsServer(t)
	d.Set("pool.example", mock.DNSAnswer{Silent: true})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Resolve(ctx, "pool.example", ResolveOptions{Server: d.Addr()}, func(a Addresses) { t.Errorf("got %+v", a) })
	}()
	for deadline := time.Now().Add(20 * time.Second); d.Asked() == 0; time.Sleep(time.Millisecond) { // a real socket tells nobody
		if time.Now().After(deadline) {
			t.Fatal("the server was not asked within 20 s")
		}
	}
	cancel()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("Resolve did not end")
	}
}

// message packs a DNS answer.
func message(t testing.TB, h dnsmessage.Header, ttls ...uint32) []byte {
	t.Helper()
	host := dnsmessage.MustNewName("pool.example.")
	m := dnsmessage.Message{Header: h, Questions: []dnsmessage.Question{{Name: host, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	for _, s := range ttls {
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: host, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: s}, Body: &dnsmessage.AResource{},
		})
	}
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func TestAnswerTTL(t *testing.T) {
	f := func(m []byte, want time.Duration, wantOK bool) {
		t.Helper()
		if got, ok := answerTTL(m); got != want || ok != wantOK {
			t.Errorf("got %v %v, want %v %v", got, ok, want, wantOK)
		}
	}
	reply := dnsmessage.Header{Response: true}
	f(message(t, reply, 30, 10, 20), 10*time.Second, true)
	f(message(t, reply, 0), 0, true)
	f(message(t, reply, 1<<31), 0, true)
	f(message(t, reply), 0, false)
	f(message(t, dnsmessage.Header{}, 30), 0, false)
	f(message(t, dnsmessage.Header{Response: true, RCode: dnsmessage.RCodeServerFailure}, 30), 0, false)
	f(message(t, dnsmessage.Header{Response: true, Truncated: true}, 30), 0, false)
	f(message(t, reply, 30, 10)[:60], 0, false)
	f(nil, 0, false)
}

func FuzzAnswerTTL(f *testing.F) {
	reply := dnsmessage.Header{Response: true}
	f.Add(message(f, reply, 30, 10))
	f.Add(message(f, reply))
	f.Add(message(f, dnsmessage.Header{}, 1<<31))
	f.Add([]byte{0, 1, 0x80, 0, 0, 0, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, m []byte) {
		if d, ok := answerTTL(m); d < 0 || d > (1<<31)*time.Second || !ok && d != 0 {
			t.Errorf("got %v %v", d, ok)
		}
	})
}

// Messages of a stream are found however it is cut.
func TestOverheardStream(t *testing.T) {
	reply := dnsmessage.Header{Response: true}
	var wire []byte
	for _, s := range []uint32{30, 10, 20} {
		m := message(t, reply, s)
		wire = append(append(wire, byte(len(m)>>8), byte(len(m))), m...)
	}
	for size := 1; size <= len(wire); size++ {
		near, far := net.Pipe()
		go func() { // ends when all is read
			for b := wire; len(b) > 0; {
				n, err := far.Write(b[:min(size, len(b))])
				if err != nil {
					return
				}
				b = b[n:]
			}
			far.Close()
		}()
		var heard ttl
		c := heard.on(near)
		for b := make([]byte, 50); ; {
			if _, err := c.Read(b); err != nil {
				break
			}
		}
		if got := heard.shortest(); got != 10*time.Second {
			t.Fatalf("in pieces of %d bytes: %v", size, got)
		}
	}
}
