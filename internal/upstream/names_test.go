package upstream

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/internal/llm"
)

// Of a name with a dead and a living address, the dead one costs a new connection at most 300 ms.
func TestDeadAddressBesideALivingOne(t *testing.T) {
	server := newFake(t, answering(ok)) // at 127.0.0.1
	hole := fullAt(t, "127.0.0.2", server.Addr().(*net.TCPAddr).Port)
	least := time.Hour
	for range 5 { // the best of them, since the machine has other work
		e := named(t, server, Options{ConnectTimeout: time.Hour})
		e.pool.dialer.names.lookup = addresses(hole, "127.0.0.1")
		begin := time.Now()
		mustFetch(t, e, post("{}"))
		least = min(least, time.Since(begin))
	}
	if least < headStart || least > 300*time.Millisecond {
		t.Errorf("it took %v", least)
	}
}

// lookups answers from a list, and the last for ever.
type lookups struct {
	asked int
	list  []func(ctx context.Context) ([]netip.Addr, error)
}

func (l *lookups) lookup(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	l.asked++
	next := l.list[0]
	if len(l.list) > 1 {
		l.list = l.list[1:]
	}
	return next(ctx)
}

func brings(all ...string) func(context.Context) ([]netip.Addr, error) {
	return func(ctx context.Context) ([]netip.Addr, error) { return addresses(all...)(ctx, "", "") }
}

func fails(context.Context) ([]netip.Addr, error) {
	return nil, &net.DNSError{Err: "server misbehaving", IsTemporary: true}
}

func silent(ctx context.Context) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// While DNS fails, the last addresses serve; once it answers, those are new.
func TestNamesWhileDNSFails(t *testing.T) {
	f := func(title string, down func(context.Context) ([]netip.Addr, error), wait time.Duration) {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lookups{list: []func(context.Context) ([]netip.Addr, error){brings("10.0.0.1"), down, down, brings("10.0.0.2")}}
				n := names{lookup: l.lookup}
				find := func(want string, wantLate bool, took time.Duration, asked int) {
					t.Helper()
					begin := time.Now()
					found, late, err := n.find(t.Context(), "engine.example")
					if err != nil || len(found) != 1 || found[0].String() != want || late != wantLate || time.Since(begin) != took || l.asked != asked {
						t.Errorf("got %v %v %v after %v and %d look-ups; want %s %v after %v and %d", found, late, err, time.Since(begin), l.asked, want, wantLate, took, asked)
					}
				}
				find("10.0.0.1", false, 0, 1)
				find("10.0.0.1", true, wait, 2)
				find("10.0.0.1", false, 0, 2) // nobody waits again so soon
				time.Sleep(nameRest)
				find("10.0.0.1", true, wait, 3)
				time.Sleep(nameRest)
				find("10.0.0.2", false, 0, 4)
			})
		})
	}
	f("it fails", fails, 0)
	f("it says that there is none", brings(), 0)
	f("it is silent", silent, namePatience)
}

// Without addresses of last time there is nothing but to wait.
func TestNamesUnknownYet(t *testing.T) {
	n := names{lookup: (&lookups{list: []func(context.Context) ([]netip.Addr, error){fails, brings("10.0.0.1")}}).lookup}
	if _, _, err := n.find(t.Context(), "engine.example"); err == nil {
		t.Error("no error")
	}
	if found, _, err := n.find(t.Context(), "engine.example"); err != nil || len(found) != 1 {
		t.Errorf("got %v %v", found, err)
	}
}

// A caller that leaves says nothing about DNS.
func TestNamesCallerLeaves(t *testing.T) {
	l := &lookups{list: []func(context.Context) ([]netip.Addr, error){brings("10.0.0.1"), silent, brings("10.0.0.2")}}
	n := names{lookup: l.lookup}
	if _, _, err := n.find(t.Context(), "engine.example"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := n.find(ctx, "engine.example"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if found, late, err := n.find(t.Context(), "engine.example"); err != nil || late || found[0].String() != "10.0.0.2" {
		t.Errorf("got %v %v %v", found, late, err)
	}
}

// An endpoint that moved while DNS was slow is found all the same.
func TestNameMovesWhileDNSIsSlow(t *testing.T) {
	server := newFake(t, answering(ok))
	e := named(t, server, Options{ConnectTimeout: patience})
	e.pool.dialer.names.lookup = (&lookups{list: []func(context.Context) ([]netip.Addr, error){brings("127.0.0.3"), silent, brings("127.0.0.1")}}).lookup
	_, err := do(within(t), e, post("{}")) // nobody is at 127.0.0.3
	mustFail(t, err, llm.Connect, true, false)
	if _, body := mustFetch(t, e, post("{}")); body != "ok" {
		t.Errorf("body %q", body)
	}
}

// With an address, the URL says only what is asked for.
func TestEndpointAtAnAddress(t *testing.T) {
	hosts := make(chan string, 1)
	server := newFake(t, func(_ int64, p *peer) {
		if r, _ := p.request(); r != nil {
			hosts <- r.Host
			p.say(ok)
		}
	})
	e, err := New(Options{Name: "e", URL: "http://engine.example:8000", Address: server.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	mustFetch(t, e, post("{}"))
	if got := <-hosts; got != "engine.example:8000" {
		t.Errorf("Host: %s", got)
	}
}

// The certificate must be the name's, not the address's.
func TestTLSAtAnAddress(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.ServerName+" "+r.Host)
	}))
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(host string, works bool) {
		t.Helper()
		e, err := New(Options{Name: "e", URL: "https://" + host, Address: server.Listener.Addr().String(), TLS: TLS{CA: ca}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		_, body, err := fetch(within(t), e, post("{}"))
		if works && (err != nil || body != host+" "+host) || !works && err == nil {
			t.Errorf("%s: %q, %v", host, body, err)
		}
	}
	f("example.com", true) // as httptest's certificate says
	f("engine.example", false)
}
