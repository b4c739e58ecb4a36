package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// engines is how many mock engines serve each model.
const engines = 3

// target is one way to the engines.
type target string

// The targets.
const (
	direct   target = "direct"
	nginx    target = "nginx"
	evenkeel target = "evenkeel"
)

var targets = []target{direct, nginx, evenkeel}

// way is how the engines of a model are reached by one target.
type way struct {
	addresses []string    // where connections go, in turn
	tls       *tls.Config // for clients; nil = none
	proxy     *process    // nil for direct
	balancer  *balancer   // nil but for evenkeel
	fields    string      // of requests, beside the usual ones; each with its line end
	recodes   bool        // answers say what an engine says, in other bytes
}

// place is the ways to one model.
type place map[target]way

// bed is everything that runs beside the load.
type bed struct {
	dir       string
	certs     certs
	processes []*process // in the order in which they were started
	targets   []target
	guests    []guest // peers, if any
	places    map[string]place
	mocks     map[string]string // by model, the base URL of the engines' control listener
	balancers []*balancer       // that run from the beginning to the end
}

// newBed builds and starts everything that the cells need, and returns when it serves. For profiles there is no nginx,
// and evenkeel keeps its symbols.
func newBed(ctx context.Context, cells []cell, profiles bool) (*bed, error) {
	if _, err := exec.LookPath("nginx"); err != nil && !profiles {
		return nil, fmt.Errorf("nginx is not installed: run `make setup` (Debian package nginx-light): %w", err)
	}
	dir, err := os.MkdirTemp("", "evenkeel-bench-")
	if err != nil {
		return nil, err
	}
	b := &bed{dir: dir, targets: targets, places: map[string]place{}, mocks: map[string]string{}}
	if err := b.start(ctx, modelsOf(cells), profiles); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bed) binary() string { return filepath.Join(b.dir, "evenkeel") }

func (b *bed) start(ctx context.Context, used []model, profiles bool) (err error) {
	flags := "-s -w"
	if profiles {
		flags = ""
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", flags, "-o", b.binary(), "evenkeel/cmd/evenkeel")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", errors.Join(err, ctx.Err()), out)
	}
	if b.certs, err = newCerts(b.dir); err != nil {
		return err
	}
	for _, m := range used {
		if err := b.startEngines(ctx, m); err != nil {
			return err
		}
	}
	// What is held is measured on proxies of its own: see hold.
	used = slices.DeleteFunc(slices.Clone(used), func(m model) bool { return m.name == held.name })
	for _, secure := range []bool{false, true} { // a listener has TLS or not
		name := "evenkeel"
		if secure {
			name += "-tls"
		}
		served := slices.DeleteFunc(slices.Clone(used), func(m model) bool { return m.clientTLS != secure })
		if len(served) == 0 {
			continue
		}
		e, err := b.startEvenkeel(ctx, served, name)
		if err != nil {
			return err
		}
		b.balancers = append(b.balancers, e)
	}
	if profiles || len(used) == 0 {
		return nil
	}
	_, err = b.startNginx(ctx, used, "nginx", workerConnections)
	return err
}

// launch starts a program whose end close sees to.
func (b *bed) launch(name string, args ...string) (*process, error) {
	p, err := start(b.dir, name, args...)
	if err == nil {
		b.processes = append(b.processes, p)
	}
	return p, err
}

// end ends a program before the bed is closed.
func (b *bed) end(p *process) error {
	b.processes = slices.DeleteFunc(b.processes, func(other *process) bool { return other == p })
	return p.stop()
}

var (
	engineLine  = regexp.MustCompile(`(?m)^engine +https?://(\S+)`)
	controlLine = regexp.MustCompile(`(?m)^control (\S+)/engines`)
)

func (b *bed) startEngines(ctx context.Context, m model) error {
	ports := strings.TrimSuffix(strings.Repeat("0,", engines), ",")
	args := []string{b.binary(), "mock", "--ports", ports, "--model", m.name, "--inter-token", m.interToken.String(), "--output-tokens", "1000"}
	to := way{}
	if m.engineTLS {
		args = append(args, "--tls-cert", b.certs.cert, "--tls-key", b.certs.key)
		to.tls = b.certs.client
	}
	p, err := b.launch("mock-"+m.name, args...)
	if err != nil {
		return err
	}
	control, err := p.await(ctx, controlLine, 1) // the last line
	if err != nil {
		return err
	}
	lines, err := p.await(ctx, engineLine, engines)
	if err != nil {
		return err
	}
	for _, line := range lines {
		to.addresses = append(to.addresses, line[1])
	}
	b.places[m.name] = place{direct: to}
	b.mocks[m.name] = control[0][1]
	return nil
}

// settled reports what evenkeel holds on to or complains of although nothing was wrong and all is over.
func (b *bed) settled() error {
	for _, e := range b.balancers {
		all, err := e.deployments()
		if err != nil {
			return err
		}
		for _, d := range all {
			if d.InFlight != 0 || d.Totals.Faults != 0 {
				return fmt.Errorf("evenkeel counts %d requests in flight and %d faults at %s after the run, want none", d.InFlight, d.Totals.Faults, d.ID)
			}
		}
	}
	return nil
}

// close ends everything that was started, the proxies before the engines, and removes what it left.
func (b *bed) close() error {
	var problems []error
	for i := len(b.processes) - 1; i >= 0; i-- {
		problems = append(problems, b.processes[i].stop())
	}
	return errors.Join(append(problems, os.RemoveAll(b.dir))...)
}
