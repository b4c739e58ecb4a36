package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"evenkeel/internal/mock"
)

// model is what the clients of the drill ask for.
const model = "drill-model"

// settings are a part of a configuration, by key.
type settings = map[string]any

// merged lays over on top of base, map by map.
func merged(base, over settings) settings {
	out := maps.Clone(base)
	if out == nil {
		out = settings{}
	}
	for k, v := range over {
		inner, ok := v.(settings)
		if below, both := out[k].(settings); ok && both {
			v = merged(below, inner)
		}
		out[k] = v
	}
	return out
}

// Bench is the scene of one row: engines, what lies between, the balancer, its clients. Its methods belong to the row's
// goroutine unless they say otherwise. What cannot be set up ends the row at once (see must).
type Bench struct {
	ctx        context.Context
	program    string
	long       bool
	owned      *owned   // somebody's own configuration, nil for the row's own
	pin        string   // in it, the endpoint that clients ask for; "" = any
	over       settings // of a defence that is switched off
	undefended string   // and what is changed in the program for it

	dir       string
	base      settings // of the configuration, before endpoints
	endpoints settings
	engines   []*mock.Engine
	fakes     []*fake
	h2s       []*h2Server
	closers   []func()
	balancers []*balancer
	clients   *http.Client
	score     scoreboard

	expectAborted int  // requests that a row itself makes the balancer abort
	expectPanic   bool // the row makes it panic
}

// stopped ends a row that cannot go on; perform catches it.
type stopped struct{ error }

// must ends the row if something could not be set up.
func (b *Bench) must(err error) {
	if err != nil {
		panic(stopped{err})
	}
}

// stopf ends the row.
func (b *Bench) stopf(format string, args ...any) { panic(stopped{fmt.Errorf(format, args...)}) }

// later is called when the row is over, the last first.
func (b *Bench) later(f func()) { b.closers = append(b.closers, f) }

func (b *Bench) close() {
	if b.clients != nil {
		b.clients.CloseIdleConnections()
	}
	for _, x := range b.balancers {
		x.kill()
	}
	for i := len(b.closers) - 1; i >= 0; i-- {
		b.closers[i]()
	}
	if b.dir != "" {
		os.RemoveAll(b.dir)
	}
}

// scene is a bench of its own for a part of the row, which ends with the row. Its invariants are the caller's to check.
func (b *Bench) scene() *Bench {
	s := &Bench{ctx: b.ctx, program: b.program, long: b.long, over: b.over, undefended: b.undefended}
	b.later(s.close)
	return s
}

// times is how often something is done: more where there is time.
func (b *Bench) times(usual, long int) int {
	if b.long {
		return long
	}
	return usual
}

// folder is the row's own directory.
func (b *Bench) folder() string {
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "evenkeel-drill-")
		b.must(err)
		b.dir = dir
	}
	return b.dir
}

// set adds to the configuration.
func (b *Bench) set(s settings) { b.base = merged(b.base, s) }

// engine starts a mock engine that serves model, without putting it into the configuration.
func (b *Bench) engine(c mock.Config) *mock.Engine {
	if len(c.Models) == 0 {
		c.Models = []string{model}
	}
	if c.Name == "" {
		c.Name = engineName(len(b.engines))
	}
	if c.Seed == 0 {
		c.Seed = uint64(len(b.engines) + 1)
	}
	e, err := mock.New(c)
	b.must(err)
	b.must(e.Start())
	b.later(e.Kill)
	b.engines = append(b.engines, e)
	return e
}

// engineName is that of the nth engine, from 0: a to z, then a1 to z1, and so on.
func engineName(n int) string {
	name := string(rune('a' + n%26))
	if n >= 26 {
		name += strconv.Itoa(n / 26)
	}
	return name
}

// serveBy puts an endpoint into the configuration, with further settings.
func (b *Bench) serveBy(name, url string, more ...settings) {
	if b.endpoints == nil {
		b.endpoints = settings{}
	}
	e := settings{"url": url, "models": []string{model}, "kind": "openai-compatible"}
	for _, m := range more {
		e = merged(e, m)
	}
	b.endpoints[name] = e
}

// fleet starts n engines alike and puts them into the configuration. Where the user has a configuration of his own,
// they are its endpoints.
func (b *Bench) fleet(n int, c mock.Config, more ...settings) []*mock.Engine {
	if b.owned != nil {
		return b.adopt(n, c)
	}
	first := len(b.engines)
	for range n {
		c.Name = "" // the next one's
		e := b.engine(c)
		b.serveBy(e.Name(), e.URL(), more...)
	}
	return b.engines[first:]
}

func (b *Bench) fault(e *mock.Engine, f mock.Fault) { b.must(e.SetFault(f)) }
func (b *Bench) mend(e *mock.Engine)                { b.must(e.ClearFault()) }

// quiet are the settings of every row: ephemeral ports, and all that the clients look at.
func quiet() settings {
	return settings{"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "expose_headers": []string{"deployment", "attempts"}}
}

// configuration writes the present configuration to a file; JSON is YAML.
func (b *Bench) configuration(name string) string {
	c := merged(merged(quiet(), b.base), settings{"endpoints": b.endpoints})
	return b.write(name, merged(c, b.over))
}

func (b *Bench) write(name string, c settings) string {
	text, err := json.MarshalIndent(c, "", "  ")
	b.must(err)
	path := filepath.Join(b.folder(), name)
	b.must(os.WriteFile(path, text, 0o600))
	return path
}

// serve starts the balancer with the present configuration and returns when it is ready and knows all endpoints.
func (b *Bench) serve() *balancer {
	return b.serveAs(launch{config: b.configuration("evenkeel.yaml")})
}

// until asks every few milliseconds whether something holds, and reports whether it came to hold in time.
func (b *Bench) until(limit time.Duration, holds func() bool) bool {
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return holds()
		case <-tick.C:
		}
	}
	return true
}

// pass lets time pass while something runs: that is the row's subject, not a wait for something.
func (b *Bench) pass(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.ctx.Done():
		panic(stopped{errors.New("interrupted")})
	}
}

// listen opens a loopback listener that is closed with the row.
func (b *Bench) listen() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	b.later(func() { l.Close() })
	return l
}

// dial makes a TCP connection.
func (b *Bench) dial(addr string) net.Conn {
	nc, err := net.DialTimeout("tcp", addr, 5*time.Second)
	b.must(err)
	return nc
}
