package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// engines is how many mock engines serve each model.
const engines = 3

// place is where a model can be asked for.
type place struct {
	engines  []string // addresses
	nginx    string
	evenkeel string
}

// target is one way to the engines.
type target string

// The targets.
const (
	direct   target = "direct"
	nginx    target = "nginx"
	evenkeel target = "evenkeel"
)

var targets = []target{direct, nginx, evenkeel}

// addresses returns where the connections of a target go, in turn.
func (p place) addresses(t target) []string {
	switch t {
	case nginx:
		return []string{p.nginx}
	case evenkeel:
		return []string{p.evenkeel}
	}
	return p.engines
}

// bed is everything that runs beside the load.
type bed struct {
	dir       string
	processes []*process
	proxies   map[target]*process
	places    map[string]place // by model
	admin     string           // base URL of evenkeel's admin listener
}

// newBed builds and starts everything, and returns when it serves. For profiles there is no nginx, and evenkeel keeps
// its symbols.
func newBed(ctx context.Context, profiles bool) (*bed, error) {
	if _, err := exec.LookPath("nginx"); err != nil && !profiles {
		return nil, fmt.Errorf("nginx is not installed: run `make setup` (Debian package nginx-light): %w", err)
	}
	dir, err := os.MkdirTemp("", "evenkeel-bench-")
	if err != nil {
		return nil, err
	}
	b := &bed{dir: dir, proxies: map[target]*process{}, places: map[string]place{}}
	if err := b.start(ctx, profiles); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bed) binary() string { return filepath.Join(b.dir, "evenkeel") }

func (b *bed) start(ctx context.Context, profiles bool) error {
	binary, flags := b.binary(), "-s -w"
	if profiles {
		flags = ""
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", flags, "-o", binary, "evenkeel/cmd/evenkeel")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", errors.Join(err, ctx.Err()), out)
	}
	for _, m := range models {
		if err := b.startEngines(ctx, binary, m); err != nil {
			return err
		}
	}
	if err := b.startEvenkeel(ctx, binary); err != nil || profiles {
		return err
	}
	p, err := startNginx(b.dir, b.places)
	if err != nil {
		return err
	}
	b.processes, b.proxies[nginx] = append(b.processes, p), p
	for _, place := range b.places {
		if err := eventually(ctx, p, func() bool { return newConn(place.nginx).listening() }); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) listening() bool {
	defer c.close()
	return c.dial() == nil
}

// model is a model of the mock engines; how fast they are is a matter of the model here.
type model struct {
	name       string
	interToken time.Duration
}

var models = []model{{name: "fast"}, {name: "paced", interToken: 10 * time.Millisecond}}

var engineLine = regexp.MustCompile(`(?m)^engine +http://(\S+)`)

func (b *bed) startEngines(ctx context.Context, binary string, m model) error {
	ports := strings.TrimSuffix(strings.Repeat("0,", engines), ",")
	p, err := start(b.dir, "mock-"+m.name, binary, "mock", "--ports", ports, "--model", m.name,
		"--inter-token", m.interToken.String(), "--output-tokens", "1000")
	if err != nil {
		return err
	}
	b.processes = append(b.processes, p)
	lines, err := p.await(ctx, engineLine, engines)
	if err != nil {
		return err
	}
	var at place
	for _, line := range lines {
		at.engines = append(at.engines, line[1])
	}
	b.places[m.name] = at
	return nil
}

var listenLine = regexp.MustCompile(`\bmsg=listening for=(\w+) addr=(\S+)`)

// startEvenkeel runs evenkeel as it is without configuration: metrics, the ring for explain and the log are on.
func (b *bed) startEvenkeel(ctx context.Context, binary string) error {
	args := []string{binary, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	for _, m := range models {
		for _, engine := range b.places[m.name].engines {
			args = append(args, "http://"+engine)
		}
	}
	p, err := start(b.dir, "evenkeel", args...)
	if err != nil {
		return err
	}
	b.processes, b.proxies[evenkeel] = append(b.processes, p), p
	lines, err := p.await(ctx, listenLine, 2)
	if err != nil {
		return err
	}
	for _, line := range lines {
		switch line[1] {
		case "admin":
			b.admin = "http://" + line[2]
		case "data":
			for name, place := range b.places {
				place.evenkeel = line[2]
				b.places[name] = place
			}
		}
	}
	return eventually(ctx, p, func() bool {
		d, err := b.deployments()
		return err == nil && len(d) == engines*len(models)
	})
}

// deployment is what is used of the admin listener's /deployments.
type deployment struct {
	ID       string `json:"id"`
	InFlight int    `json:"in_flight"`
	Totals   struct {
		Faults uint64 `json:"faults"`
	} `json:"totals"`
}

func (b *bed) deployments() ([]deployment, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(b.admin + "/deployments")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	var all struct {
		Deployments []deployment `json:"deployments"`
	}
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("%s/deployments: %w: %.200s", b.admin, err, body)
	}
	return all.Deployments, nil
}

// settled reports what evenkeel holds on to or complains of although nothing was wrong and all is over.
func (b *bed) settled() error {
	all, err := b.deployments()
	if err != nil {
		return err
	}
	for _, d := range all {
		if d.InFlight != 0 || d.Totals.Faults != 0 {
			return fmt.Errorf("evenkeel counts %d requests in flight and %d faults at %s after the run, want none", d.InFlight, d.Totals.Faults, d.ID)
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
