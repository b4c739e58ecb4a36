package app

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/discovery"
	"evenkeel/internal/mock"
)

const (
	poolHost = "vllm.example"
	poolTTL  = time.Second // the shortest there is
)

// poolWorld is a world with a pool whose name a DNS server of ours knows, and engines at several addresses of one port.
type poolWorld struct {
	*world
	dns     *mock.DNS
	engines map[string]*mock.Engine // by address
}

// startPool starts an engine like c at each address, named after it. DNS names those in first.
func startPool(t *testing.T, c mock.Config, first string, at ...string) *poolWorld {
	t.Helper()
	d, err := mock.NewDNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	_, port, err := net.SplitHostPort(freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &poolWorld{dns: d, engines: map[string]*mock.Engine{}}
	for _, address := range at {
		c.Listen, c.Name = net.JoinHostPort(address, port), "at-"+strings.ReplaceAll(address, ":", "_")
		p.engines[address] = engine(t, c)
	}
	p.names(first)
	p.world = start(t, parse(t, fmt.Sprintf("dns_server: %s\nendpoints:\n  pool: {url: \"dns+http://%s:%s\"}\n", d.Addr(), poolHost, port)))
	return p
}

// names makes DNS name these addresses.
func (p *poolWorld) names(addresses string) {
	a := mock.DNSAnswer{TTL: poolTTL}
	for _, s := range strings.Fields(addresses) {
		a.Addresses = append(a.Addresses, netip.MustParseAddr(s))
	}
	p.dns.Set(poolHost, a)
}

// members lists the addresses that serve the model.
func (p *poolWorld) members() string {
	var list []string
	for _, pool := range p.app.current.Load().pools {
		for _, d := range pool.Deployments {
			if _, at, ok := strings.Cut(d.Endpoint, "@"); ok && d.Model == "m" {
				host, _, _ := net.SplitHostPort(at)
				list = append(list, host)
			}
		}
	}
	return strings.Join(list, " ")
}

func (p *poolWorld) awaitMembers(want string) {
	p.t.Helper()
	p.await("the pool's members are "+want, func() bool { return p.members() == want })
}

// takes makes DNS name these addresses and returns how long it took until they were those that serve.
func (p *poolWorld) takes(addresses string) time.Duration {
	p.t.Helper()
	p.names(addresses)
	begin := time.Now()
	p.awaitMembers(addresses)
	return time.Since(begin)
}

// asks sends requests until holds, and demands that each is answered. It returns who answered.
func (p *poolWorld) asks(holds func() bool) map[string]int {
	p.t.Helper()
	by := map[string]int{}
	p.await("it has asked", func() bool {
		a := p.chat("m")
		if a.status != http.StatusOK {
			p.t.Fatalf("a request failed: %d %s %v", a.status, a.body, a.err)
		}
		by[answered(a)]++
		return holds()
	})
	return by
}

// Each address is an endpoint. One that is new serves within the TTL and a second; one that is no more gets nothing new,
// and what runs there finishes. No request fails.
func TestPoolFollowsDNS(t *testing.T) {
	p := startPool(t, mock.Config{Models: []string{"m"}, InterToken: 20 * time.Millisecond, OutputTokens: 150}, "127.0.0.2", "127.0.0.2", "127.0.0.3")
	p.awaitMembers("127.0.0.2")
	streams := p.streams(5, "m")

	joins, leaves := time.Hour, time.Hour // the best of some, since the machine has other work
	for try := 0; try < 5 && max(joins, leaves) > poolTTL+time.Second; try++ {
		joins = min(joins, p.takes("127.0.0.2 127.0.0.3"))
		leaves = min(leaves, p.takes("127.0.0.2"))
	}
	if max(joins, leaves) > poolTTL+time.Second {
		t.Errorf("a new address served after %v, one that was no more was left after %v", joins, leaves)
	}
	p.takes("127.0.0.2 127.0.0.3")
	both := map[string]bool{}
	p.await("both answer", func() bool {
		for _, s := range p.streams(4, "m") {
			both[s.res.Header.Get("X-Mock-Engine")] = true
			streams = append(streams, s)
		}
		return len(both) == 2
	})

	p.takes("127.0.0.3")
	for range 5 {
		if s := p.stream("m"); s.res.Header.Get("X-Mock-Engine") != "at-127.0.0.3" {
			t.Errorf("a new request went to %s", s.res.Header.Get("X-Mock-Engine"))
		}
	}
	p.allWhole(streams)
	p.logged("a pool changes", "127.0.0.2", "removed")
}

// What the engine sees is the name, whatever its address.
func TestPoolKeepsTheName(t *testing.T) {
	p := startPool(t, mock.Config{Models: []string{"m"}}, "127.0.0.2 127.0.0.3", "127.0.0.2", "127.0.0.3")
	p.awaitMembers("127.0.0.2 127.0.0.3")
	for range 4 {
		if a := p.get(p.url + "/v1/files"); a.status != http.StatusNotFound || !strings.Contains(a.body, "nothing at /v1/files") {
			t.Fatalf("%d %s, want an engine's own 404: one endpoint is configured, so that no model need be named", a.status, a.body)
		}
	}
	v := p.app.router.View(time.Now())
	for _, d := range v.Deployments {
		host, _, _ := strings.Cut(strings.TrimPrefix(d.URL, "http://"), ":")
		if host != poolHost {
			t.Errorf("deployment %s has the URL %s", d.ID, d.URL)
		}
	}
}

// While DNS fails, in whatever way, the last addresses serve; and nothing is lost when it comes back.
func TestPoolWhileDNSFails(t *testing.T) {
	p := startPool(t, mock.Config{Models: []string{"m"}}, "127.0.0.2 127.0.0.3", "127.0.0.2", "127.0.0.3")
	p.awaitMembers("127.0.0.2 127.0.0.3")
	f := func(title string, fail func()) {
		t.Helper()
		fail()
		asked := p.dns.Asked()
		by := p.asks(func() bool { return p.dns.Asked() >= asked+4 }) // both families, again
		if len(by) != 2 || p.members() != "127.0.0.2 127.0.0.3" {
			t.Errorf("%s: %v answered, members %s", title, by, p.members())
		}
		p.names("127.0.0.2 127.0.0.3")
		p.await("DNS is well again", func() bool { return p.app.failureOf(poolHost) == "" })
	}
	f("it fails", func() { p.dns.Set(poolHost, mock.DNSAnswer{Fails: true}) })
	f("it has no address", func() { p.names("") })
	f("it does not know the name", func() { p.dns.Remove(poolHost) })
	p.logged("a pool's name cannot be resolved; the addresses it had stay", "no address")
	p.logged("a pool's name can be resolved again")

	p.names("") // Whoever neither has a name nor answers is gone.
	p.engines["127.0.0.2"].Close()
	p.asks(func() bool { return p.members() == "127.0.0.3" })
}

func (a *App) failureOf(host string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hosts[host].failure
}

// A DNS server that says nothing holds up neither requests nor the end.
func TestPoolWhileDNSIsSilent(t *testing.T) {
	p := startPool(t, mock.Config{Models: []string{"m"}}, "127.0.0.2", "127.0.0.2")
	p.awaitMembers("127.0.0.2")
	p.dns.Set(poolHost, mock.DNSAnswer{Silent: true})
	asked := p.dns.Asked()
	p.asks(func() bool { return p.dns.Asked() > asked })
}

// A pool without addresses is not a model that does not exist.
func TestPoolWithoutAddressesAtFirst(t *testing.T) {
	p := startPool(t, mock.Config{Models: []string{"m"}}, "", "127.0.0.2")
	if a := p.chat("m"); a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "evenkeel_model_not_ready") || !strings.Contains(a.body, "1 of 1 endpoints") {
		t.Errorf("got %d %s", a.status, a.body)
	}
	p.names("127.0.0.2")
	p.awaitMembers("127.0.0.2")
	p.asks(func() bool { return true })
}

// Members of both families, with brackets where an address has a port beside it.
func TestCase75PoolOfBothFamilies(t *testing.T) {
	p := startPool(t, mock.Config{Models: []string{"m"}}, "::1 127.0.0.2", "::1", "127.0.0.2")
	p.awaitMembers("127.0.0.2 ::1")
	for range 20 {
		p.allWhole(p.streams(2, "m"))
	}
	_, port, _ := net.SplitHostPort(p.engines["::1"].Addr())
	for _, name := range []string{"pool@[::1]:" + port, "pool@127.0.0.2:" + port} {
		if n, series := p.series("evenkeel_attempts_total", fmt.Sprintf("deployment=%q", name+"/m")); series == 0 || n == 0 {
			t.Errorf("%s answered nothing, or metrics call it otherwise", name)
		}
	}
}

// A reload keeps what is known of a pool, and takes it out with its members.
func TestPoolOverReload(t *testing.T) {
	p := startPool(t, mock.Config{Models: []string{"m"}}, "127.0.0.2", "127.0.0.2")
	p.awaitMembers("127.0.0.2")
	other := engine(t, mock.Config{Models: []string{"m"}, Name: "other"})
	_, port, _ := net.SplitHostPort(p.engines["127.0.0.2"].Addr())
	pool := fmt.Sprintf("dns_server: %s\nendpoints:\n  other: {url: %q}\n", p.dns.Addr(), other.URL())
	with := pool + fmt.Sprintf("  pool: {url: \"dns+http://%s:%s\", weight: 3}\n", poolHost, port)
	p.dns.Set(poolHost, mock.DNSAnswer{Fails: true}) // so that it must be known from before
	p.reload(with)
	if got := p.members(); got != "127.0.0.2" {
		t.Errorf("members after a reload: %q", got)
	}
	p.await("both serve", func() bool { return len(p.app.router.View(time.Now()).Deployments) == 2 })
	p.reload(pool)
	p.awaitMembers("")
	asked := p.dns.Asked()
	for range 20 {
		if a := p.chat("m"); answered(a) != "other" {
			t.Errorf("got %d from %s", a.status, answered(a))
		}
	}
	if n := p.dns.Asked(); n > asked+8 { // a look-up that was under way
		t.Errorf("the name was asked for %d times after it had left", n-asked)
	}
}

// TestPoolKeepsOrders: a drained address that DNS loses and names again is still drained, until the order is taken back.
func TestPoolKeepsOrders(t *testing.T) {
	p := startPool(t, mock.Config{Models: []string{"m"}}, "127.0.0.2 127.0.0.3", "127.0.0.2", "127.0.0.3")
	p.awaitMembers("127.0.0.2 127.0.0.3")
	name := "pool@" + p.engines["127.0.0.2"].Addr()
	order := func(o string) {
		t.Helper()
		if a := p.do(http.MethodPost, p.admin+"/admin/deployments?endpoint="+name+"&order="+o, ""); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	order("drain")
	p.takes("127.0.0.3")
	p.takes("127.0.0.2 127.0.0.3")
	p.logged("the order about one that is back holds on", name, "drain")
	for range 10 {
		if a := p.chat("m"); answered(a) != "at-127.0.0.3" {
			t.Fatalf("%d from %s, which was to be drained", a.status, answered(a))
		}
	}
	order("automatic")
	met := map[string]bool{}
	p.asks(func() bool {
		met[answered(p.chat("m"))] = true
		return len(met) == 2
	})
}

func TestFleet(t *testing.T) {
	c := parse(t, `
endpoints:
  pool: {url: "dns+http://vllm.example:8000", models: [m]}
  single: {url: http://10.0.0.9:8000}
models:
  alias:
    providers: [{name: single, weight: 2}, {name: pool, model: m, weight: 3}]
`)
	got := fleet(c, map[string]resolved{poolHost: {members: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}}})
	var text []string
	for _, e := range got.Endpoints {
		text = append(text, e.Name+" "+e.URL+" "+e.Address)
	}
	for _, p := range got.Models[0].Providers {
		text = append(text, p.Name+" "+strconv.Itoa(int(p.Weight)))
	}
	want := "pool@10.0.0.1:8000 http://vllm.example:8000 10.0.0.1:8000|pool@[fd00::1]:8000 http://vllm.example:8000 [fd00::1]:8000|" +
		"single http://10.0.0.9:8000 |single 2|pool@10.0.0.1:8000 3|pool@[fd00::1]:8000 3"
	if s := strings.Join(text, "|"); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	if len(c.Endpoints) != 2 || len(c.Models[0].Providers) != 2 {
		t.Error("the configuration itself was changed")
	}
	g, err := build(c, fleet(c, nil), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Proxy.Chains["alias"]) != 1 || g.Proxy.Unanswered != 2 {
		t.Errorf("a pool without members: chains %v, %d unanswered", g.Proxy.Chains, g.Proxy.Unanswered)
	}
	single := &config.Config{Endpoints: []config.Endpoint{{Name: "a", URL: "http://a"}}}
	if fleet(single, nil) != single {
		t.Error("a configuration without pools is copied")
	}
}

// A hundred changes of DNS leave nothing behind.
func TestPoolChurn(t *testing.T) {
	p := startPool(t, mock.Config{Models: []string{"m"}}, "127.0.0.2", "127.0.0.2", "127.0.0.3")
	p.awaitMembers("127.0.0.2")
	var work sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		work.Go(func() { // ends with stop
			for {
				select {
				case <-stop:
					return
				default:
				}
				if a := p.chat("m"); a.status != http.StatusOK {
					t.Errorf("a request failed: %d %s %v", a.status, a.body, a.err)
					return
				}
			}
		})
	}
	two, three := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")
	before := handles()
	for i := range 100 {
		list := []netip.Addr{two, three}
		if i%2 == 1 {
			list = list[:1]
		}
		p.app.resolve(poolHost, discovery.Addresses{List: list})
	}
	close(stop)
	work.Wait()
	p.client.CloseIdleConnections()
	p.await("connections and goroutines are as before", func() bool { return handles() <= before+20 })
}
