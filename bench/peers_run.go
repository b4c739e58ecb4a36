package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// peersFolder is where scripts/peers installs, seen from the root of the repository.
const peersFolder = ".cache/peers"

const (
	peerStartPatience = 5 * time.Minute // LiteLLM's workers start for a minute on slow machines
	peerStopPatience  = time.Minute
	restPatience      = 10 * time.Second       // after a load, for what a peer has put off
	restEvery         = 200 * time.Millisecond // how often it is looked at
	restful           = restEvery / 20         // CPU time in such an interval that is as good as none
)

// guest is a peer that was asked to take part in a run.
type guest struct {
	peer
	version string
	recodes bool   // its answers say what the engines say, in other bytes
	absent  string // why it does not take part; "" = it does
}

// installed returns the version of a peer, or why it is not there.
func installed(folder string, name target) (version, absent string) {
	text, err := os.ReadFile(filepath.Join(folder, string(name), "version"))
	if err == nil {
		return strings.TrimSpace(string(text)), ""
	}
	if text, failed := os.ReadFile(filepath.Join(folder, string(name), "failed")); failed == nil {
		return "", "it could not be installed: " + strings.TrimSpace(string(text))
	}
	return "", "it is not installed: run scripts/peers"
}

// startPeers starts the peers that are there, and notes of the others why they are not. It is an error if there is none.
func (b *bed) startPeers(ctx context.Context, folder string, asked []peer, used []model, w io.Writer) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	var problems []error
	for _, p := range asked {
		g := guest{peer: p}
		g.version, g.absent = installed(folder, p.name)
		if g.absent == "" {
			fmt.Fprintf(w, "starting %s (%s)\n", p.name, g.version)
			if err := b.startPeer(ctx, filepath.Join(folder, string(p.name)), &g, used); err != nil {
				if ctx.Err() != nil {
					return err
				}
				g.absent = err.Error()
			}
		}
		if g.absent == "" {
			b.targets = append(b.targets[:len(b.targets):len(b.targets)], p.name)
		} else {
			problems = append(problems, fmt.Errorf("%s is left out: %s", p.name, g.absent))
			fmt.Fprintln(w, problems[len(problems)-1])
		}
		b.guests = append(b.guests, g)
	}
	if len(problems) == len(asked) {
		return fmt.Errorf("no peer can be measured:\n%w", errors.Join(problems...))
	}
	return nil
}

// startPeer starts the processes of one peer, adds them to the places of the models, and waits until it serves and rests.
func (b *bed) startPeer(ctx context.Context, home string, g *guest, used []model) (err error) {
	groups := [][]model{used}
	if g.apart {
		groups = nil
		for i := range used {
			groups = append(groups, used[i:i+1])
		}
	}
	var started []*process
	defer func() {
		if err == nil {
			return
		}
		for _, p := range started {
			_ = b.end(p) // the error that there is says more
		}
	}()
	for _, group := range groups {
		s, err := b.site(home, g.name, group)
		if err != nil {
			return err
		}
		if g.config != nil {
			if err := os.WriteFile(s.file, []byte(g.config(s)), 0o600); err != nil {
				return err
			}
		}
		name := strings.TrimSuffix(filepath.Base(s.file), ".conf")
		p, err := b.launch(name, g.command(s)...)
		if err != nil {
			return err
		}
		p.startPatience, p.stopPatience = peerStartPatience, peerStopPatience
		started = append(started, p)
		for i, m := range group {
			to := way{addresses: []string{s.address()}, proxy: p}
			if g.fields != nil {
				to.fields = g.fields(s.models[i])
			}
			if to.recodes, err = b.greet(ctx, m, to); err != nil {
				return err
			}
			if err := b.exercise(ctx, m, to); err != nil {
				return err
			}
			g.recodes = g.recodes || to.recodes
			b.places[m.name][g.name] = to
		}
		if err := rest(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// site chooses what a process of a peer for these models is told.
func (b *bed) site(home string, name target, served []model) (site, error) {
	free, err := freeAddresses(2)
	if err != nil {
		return site{}, err
	}
	s := site{home: home, file: filepath.Join(b.dir, string(name)+"-"+served[0].name+".conf")}
	if s.host, s.port, err = net.SplitHostPort(free[0]); err != nil {
		return s, err
	}
	if _, s.spare, err = net.SplitHostPort(free[1]); err != nil {
		return s, err
	}
	for _, m := range served {
		s.models = append(s.models, servedModel{m.name, b.places[m.name][direct].addresses})
	}
	return s, nil
}

// greet waits until a peer answers for a model, with a stream and without, and learns whether it passes the bytes of
// the engines. It is an error if what it answers is neither what an engine gives nor says the same.
func (b *bed) greet(ctx context.Context, m model, to way) (recodes bool, err error) {
	for _, stream := range []bool{false, true} {
		c := cell{name: "greeting", model: m.name, tokens: 4, stream: stream}
		want, err := b.ask(ctx, c)
		if err != nil {
			return false, err
		}
		conn := newConn(to.addresses[0], nil, c.request(to.fields))
		defer conn.close()
		var last error
		if err := eventually(ctx, to.proxy, func() bool {
			last = conn.ask(ctx, nil)
			return last == nil
		}); err != nil {
			return false, fmt.Errorf("it does not answer (%w): %w", last, err)
		}
		switch {
		case want.find(conn.body) >= 0:
		case findGist(want.gists(), conn.body) >= 0:
			recodes = true
		default:
			return false, fmt.Errorf("its answer is not what an engine says: %.2000q", conn.body)
		}
	}
	return recodes, nil
}

// exercise lets a peer do some work before it is measured: what is compiled, imported or opened at the first requests of
// each worker is no cost of each. It is an error if it gets nothing right.
func (b *bed) exercise(ctx context.Context, m model, to way) error {
	for _, stream := range []bool{false, true} {
		c := cell{name: "exercise", model: m.name, tokens: 4, stream: stream, concurrency: 16}
		want, err := b.ask(ctx, c)
		if err != nil {
			return err
		}
		l := newLoad(c, to, want)
		var left atomic.Int64
		left.Store(warmRequests)
		l.run(ctx, 0, func() bool { return left.Add(-1) >= 0 })
		l.close()
		if err := ctx.Err(); err != nil {
			return err
		}
		if sum := l.tally(); sum.complete == 0 {
			return fmt.Errorf("it answered none of %d requests before the measurement rightly: %s", sum.asked(), strings.Join(sum.examples, "; "))
		}
	}
	return nil
}

// rest waits until a peer does next to nothing, so that what it has put off falls on nobody else. It does not wait
// longer than restPatience.
func rest(ctx context.Context, p *process) error {
	before, err := p.usage()
	for until := time.Now().Add(restPatience); err == nil && time.Now().Before(until); {
		if err := sleep(ctx, restEvery); err != nil {
			return err
		}
		var after usage
		if after, err = p.usage(); after.cpu-before.cpu < restful {
			break
		}
		before = after
	}
	return err
}
