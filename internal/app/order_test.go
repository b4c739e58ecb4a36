package app

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/discovery"
	"evenkeel/internal/route"
	"evenkeel/internal/secret"
)

// ordered is an App that was never run, with two endpoints of one provider that share a key.
func ordered(t *testing.T, key string) (*App, *config.Config, *logBuffer) {
	t.Helper()
	c := config.Default()
	c.Endpoints = []config.Endpoint{
		{Name: "one", URL: "http://10.0.0.1:8000", Kind: "openai", APIKey: secret.New(key), Weight: 1, Models: []string{"m"}},
		{Name: "two", URL: "http://10.0.0.1:8001", Kind: "openai", APIKey: secret.New(key), Weight: 1, Models: []string{"m"}},
		{Name: "far", URL: "http://10.0.0.2:8000", APIKey: secret.New(key), Weight: 1, Models: []string{"m"}},
	}
	logger, log := linesLogger(slog.LevelInfo)
	a, err := New(&c, Options{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.closeEndpoints)
	return a, &c, log
}

// TestOrdersLeaveAnAuditLine: who said what about whom, also if it could not be done; never a key.
func TestOrdersLeaveAnAuditLine(t *testing.T) {
	a, _, log := ordered(t, "sk-secret")
	log.taken()
	if err := a.order("endpoint", "one", route.Drain, "127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	if err := a.order("endpoint", "nobody", route.Drain, "127.0.0.1:1"); err == nil {
		t.Error("an order about nobody was carried out")
	}
	want := "level=WARN msg=order endpoint=one order=drain by=127.0.0.1:1\n" +
		"level=WARN msg=\"order refused\" endpoint=nobody order=drain by=127.0.0.1:1 error=\"no endpoint is called \\\"nobody\\\"\""
	if got := log.taken(); got != want || strings.Contains(got, "sk-") {
		t.Errorf("logged\n%s\nwant\n%s", got, want)
	}
	for range 20 {
		f := route.Facts{Model: "m"}
		l, refusal := a.router.Pick(time.Now(), route.Query{Facts: &f, Model: "m"})
		if refusal != nil || l.Deployment().Endpoint == "one" {
			t.Fatalf("the drained endpoint was picked, or nobody: %+v", refusal)
		}
		l.Done(time.Now(), route.Outcome{Verdict: route.Success})
	}
}

// TestANewKeyIsTriedAtOnce: a credential that was refused is out for minutes; one that the operator replaced is not the
// same.
func TestANewKeyIsTriedAtOnce(t *testing.T) {
	a, c, _ := ordered(t, "old")
	f := route.Facts{Model: "m", Pin: "one"}
	ask := func() (*route.Lease, *route.Refusal) {
		return a.router.Pick(time.Now(), route.Query{Facts: &f, Model: "m"})
	}
	l, _ := ask()
	l.Done(time.Now(), route.Outcome{Verdict: route.DeploymentFault, Fault: route.BadCredential, Class: "auth", Answered: true})
	if _, refusal := ask(); refusal == nil {
		t.Fatal("a refused credential is used on")
	}
	f.Pin = "two" // the same key at the same host
	if _, refusal := ask(); refusal == nil {
		t.Error("the same credential is used on at another port")
	}
	f.Pin = "far" // another host may know it
	if l, refusal := ask(); refusal != nil {
		t.Error("a credential is out at a host that never saw it")
	} else {
		l.Done(time.Now(), route.Outcome{})
	}
	f.Pin = "one"
	same := *c
	if err := a.Reload(&same); err != nil {
		t.Fatal(err)
	}
	if _, refusal := ask(); refusal == nil {
		t.Error("a reload without a new key forgave the old one")
	}
	renewed := *c
	renewed.Endpoints = append([]config.Endpoint(nil), c.Endpoints...)
	renewed.Endpoints[0].APIKey, renewed.Endpoints[1].APIKey = secret.New("new"), secret.New("new")
	if err := a.Reload(&renewed); err != nil {
		t.Fatal(err)
	}
	l, refusal := ask()
	if refusal != nil {
		t.Fatalf("the new key is not tried: %v", refusal.Decision.CutCounts())
	}
	l.Done(time.Now(), route.Outcome{})

	if err := a.order("credential", "one", route.Disable, "me"); err != nil {
		t.Fatal(err)
	}
	again := renewed
	again.Endpoints = append([]config.Endpoint(nil), c.Endpoints...)
	again.Endpoints[0].APIKey, again.Endpoints[1].APIKey = secret.New("newer"), secret.New("newer")
	if err := a.Reload(&again); err != nil {
		t.Fatal(err)
	}
	if _, refusal := ask(); refusal == nil {
		t.Error("a new key lifted the operator's order")
	}
}

// TestWhoSharesACredential: an account is one at all addresses of its provider; engines that were given the same key check it
// each for itself, so that what one of them refuses says nothing about the next, and a hedge may go there.
func TestWhoSharesACredential(t *testing.T) {
	f := func(a, b config.Endpoint, shared bool) {
		t.Helper()
		a.APIKey, b.APIKey = secret.New("key"), secret.New(cmp.Or(b.Name, "key"))
		a.Name, b.Name = cmp.Or(a.Address, "a"), cmp.Or(b.Address, "b")
		builder := &builder{config: &config.Config{Endpoints: []config.Endpoint{a, b}}}
		if got := builder.credential(&a) == builder.credential(&b); got != shared {
			t.Errorf("%+v and %+v: %v, want %v", builder.credential(&a), builder.credential(&b), got, shared)
		}
	}
	at := func(kind, url string) config.Endpoint { return config.Endpoint{Kind: kind, URL: url} }
	member := func(kind, address string) config.Endpoint {
		return config.Endpoint{Kind: kind, URL: "https://fleet.example/v1", Address: address}
	}
	f(at("openai", "https://api.openai.com"), at("openai", "https://api.openai.com/v1"), true)
	f(at("openai", "https://api.openai.com"), at("openai", "https://eu.api.openai.com"), false)
	f(at("vllm", "http://10.0.0.1:8000"), at("vllm", "http://10.0.0.1:8001"), false)
	f(at("", "https://router.example/a"), at("openai-compatible", "https://router.example/b"), true)
	f(member("vllm", "10.0.0.1:8000"), member("vllm", "10.0.0.2:8000"), false)
	f(member("openai", "10.0.0.1:8000"), member("openai", "10.0.0.2:8000"), true)
	other := at("openai", "https://api.openai.com")
	other.Name = "other key"
	f(at("openai", "https://api.openai.com"), other, false)
}

// TestANewKeyOfAPool is tried at once, by all its members.
func TestANewKeyOfAPool(t *testing.T) {
	for _, kind := range []string{"openai", "vllm"} {
		c := config.Default()
		c.Endpoints = []config.Endpoint{{
			Name: "fleet", URL: "dns+http://fleet.example", Kind: kind, APIKey: secret.New("old"), Weight: 1, Models: []string{"m"},
		}}
		logger, _ := linesLogger(slog.LevelInfo)
		a, err := New(&c, Options{Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.closeEndpoints)
		a.resolve("fleet.example", discovery.Addresses{List: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})
		q := route.Query{Facts: &route.Facts{Model: "m"}, Model: "m"}
		l, _ := a.router.Pick(time.Now(), q)
		l.Done(time.Now(), route.Outcome{Verdict: route.DeploymentFault, Fault: route.BadCredential, Class: "auth", Answered: true})
		if _, refusal := a.router.Pick(time.Now(), q); refusal == nil {
			t.Fatalf("%s: a refused credential is used on", kind)
		}
		renewed := c
		renewed.Endpoints = slices.Clone(c.Endpoints)
		renewed.Endpoints[0].APIKey = secret.New("new")
		if err := a.Reload(&renewed); err != nil {
			t.Fatal(err)
		}
		l, refusal := a.router.Pick(time.Now(), q)
		if refusal != nil {
			t.Fatalf("%s: the new key is not tried: %v", kind, refusal.Decision.CutCounts())
		}
		l.Done(time.Now(), route.Outcome{})
	}
}
