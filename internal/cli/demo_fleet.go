package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"evenkeel/internal/app"
	"evenkeel/internal/config"
	"evenkeel/internal/engine"
	"evenkeel/internal/mock"
)

const demoModel = "demo-model"

// demoEngines are the engines of the demo, as in a fleet that grew over years: batching engines, each of which takes longer for all it
// does than the one before. For its traffic (a request is 440 tokens of prompt and 42 of output in the mean) they serve about 60, 18
// and 6 requests per second: together three times what comes, but the slow one less than its third of it.
func demoEngines() []mock.Config {
	of := func(name string, base, token, sequence float64, most int) mock.Config {
		return mock.Config{Name: name, Engine: &engine.Config{
			Timing: engine.Timing{Base: base, Token: token, Sequence: sequence}, Scheduler: engine.Mixed,
			StepTokens: 2048, MaxSequences: most, BlockTokens: 16, Blocks: 8192, Watermark: 0.01,
		}}
	}
	return []mock.Config{
		of("fast", 6e-3, 1.5e-5, 5e-5, 32),
		of("medium", 14e-3, 4e-5, 2e-4, 20),
		of("slow", 30e-3, 1e-4, 5e-4, 14),
	}
}

// demoVictim is the engine that is killed.
const demoVictim = "medium"

// demoFleet is what the demo runs: the engines and a balancer in front of them.
type demoFleet struct {
	engines []*mock.Engine
	app     *app.App
	data    string // URL of the balancer's listener for clients
	admin   string // and of its admin listener
	http    *http.Client

	stop func()
	done chan error // what the balancer ended with
}

// startFleet starts the engines, and a balancer with the default strategy. close ends them.
func startFleet(o app.Options) (*demoFleet, error) {
	f := &demoFleet{http: &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}}
	for i, c := range demoEngines() {
		c.Models, c.OutputTokens, c.Seed = []string{demoModel}, 1000, demoSeed+uint64(i)
		e, err := mock.New(c)
		if err == nil {
			err = e.Start()
		}
		if err != nil {
			f.closeEngines()
			return nil, err
		}
		f.engines = append(f.engines, e)
	}
	if err := f.startBalancer(o); err != nil {
		f.closeEngines()
		return nil, err
	}
	return f, nil
}

func (f *demoFleet) startBalancer(o app.Options) error {
	c, err := f.config(config.Default().Strategy.Name)
	if err != nil {
		return err
	}
	if f.app, err = app.New(c, o); err != nil {
		return err
	}
	listeners, err := f.app.Listen()
	if err != nil {
		return err
	}
	f.data, f.admin = "http://"+listeners.Data.Addr().String(), "http://"+listeners.Admin.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	f.stop, f.done = stop, make(chan error, 1)
	go func() { f.done <- f.app.Run(ctx, listeners) }() // ends with close
	return nil
}

// config is the configuration of the balancer, as a file would have it.
func (f *demoFleet) config(strategy string) (*config.Config, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nstrategy: %s\n", strategy)
	b.WriteString("expose_headers: [deployment, attempts, decision]\nendpoints:\n")
	for _, e := range f.engines {
		fmt.Fprintf(&b, "  %s: {url: %s}\n", e.Name(), e.URL())
	}
	c, _, err := config.Load([]config.File{{Name: "the demo's configuration", Data: []byte(b.String())}}, func(string) (string, bool) { return "", false })
	if err != nil {
		return nil, err
	}
	return c, c.Validate(app.CheckStrategy)
}

// use changes the strategy while the balancer runs.
func (f *demoFleet) use(strategy string) error {
	c, err := f.config(strategy)
	if err != nil {
		return err
	}
	return f.app.Reload(c)
}

func (f *demoFleet) engine(name string) *mock.Engine {
	for _, e := range f.engines {
		if e.Name() == name {
			return e
		}
	}
	panic("BUG: cli: the demo has no engine " + name)
}

// close ends everything and waits for it.
func (f *demoFleet) close() error {
	f.stop()
	err := <-f.done
	f.http.CloseIdleConnections()
	f.closeEngines()
	return err
}

func (f *demoFleet) closeEngines() {
	for _, e := range f.engines {
		e.Close()
	}
}

// standing is how the balancer sees one engine.
type standing struct {
	state    string // of the breaker: closed, half_open, open
	reason   string
	since    time.Time // when it went out, zero if it serves
	inFlight int
	picks    uint64
}

func (s *standing) serves() bool { return s.state == "closed" }

// look asks the admin listener how all engines stand.
func (f *demoFleet) look(ctx context.Context) (map[string]standing, error) {
	type breaker struct {
		State  string    `json:"state"`
		Reason string    `json:"reason"`
		Since  time.Time `json:"since"`
	}
	var view struct {
		Deployments []struct {
			Endpoint string  `json:"endpoint"`
			Member   bool    `json:"member"`
			InFlight int     `json:"in_flight"`
			Breaker  breaker `json:"breaker"`
			Totals   struct {
				Picks uint64 `json:"picks"`
			} `json:"totals"`
		} `json:"deployments"`
		Scopes []struct {
			Name    string  `json:"name"`
			Breaker breaker `json:"breaker"`
		} `json:"scopes"`
	}
	if err := f.get(ctx, "/deployments", &view); err != nil {
		return nil, err
	}
	seen := map[string]standing{}
	for _, d := range view.Deployments {
		if d.Member {
			seen[d.Endpoint] = standing{d.Breaker.State, d.Breaker.Reason, d.Breaker.Since, d.InFlight, d.Totals.Picks}
		}
	}
	for _, u := range view.Scopes { // an engine is out with its endpoint
		if s, ok := seen[u.Name]; ok && u.Breaker.State != "closed" {
			s.state, s.reason, s.since = u.Breaker.State, u.Breaker.Reason, u.Breaker.Since
			seen[u.Name] = s
		}
	}
	return seen, nil
}

func (f *demoFleet) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.admin+path, nil)
	if err != nil {
		return err
	}
	res, err := f.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %s", f.admin+path, res.Status)
	}
	return json.NewDecoder(res.Body).Decode(into)
}

// ready waits until the balancer can choose every engine.
func (f *demoFleet) ready(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		seen, err := f.look(ctx)
		usable := 0
		for _, s := range seen {
			if s.state != "open" { // half-open waits for a request: it comes with the traffic
				usable++
			}
		}
		if err == nil && usable == len(f.engines) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("only %d of %d engines can be used after %v: %w", usable, len(f.engines), patience, ctx.Err())
		case err := <-f.done:
			f.done <- err // for close
			return fmt.Errorf("the balancer ended: %w", err)
		case <-again.C:
		}
	}
}
