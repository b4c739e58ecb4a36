package strategy

import (
	"math"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/route"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func build(tb testing.TB, name string) route.Strategy {
	tb.Helper()
	s, err := New(name, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// deployment describes id with a scope for its endpoint.
func deployment(id string, weight float64) route.Deployment {
	endpoint, model, _ := strings.Cut(id, "/")
	url := "http://" + endpoint
	return route.Deployment{
		ID: id, Endpoint: endpoint, URL: url, Model: model, Weight: weight,
		Scopes: []route.Scope{{Kind: route.EndpointScope, Name: endpoint, URL: url}},
	}
}

func adopt(tb testing.TB, r *route.Router, specs ...route.PoolSpec) {
	tb.Helper()
	if _, err := r.Adopt(start, specs); err != nil {
		tb.Fatal(err)
	}
}

// build1 returns a Router with one model, m.
func build1(tb testing.TB, strategy string, deployments ...route.Deployment) *route.Router {
	tb.Helper()
	r := route.New(route.Options{})
	adopt(tb, r, route.PoolSpec{Model: "m", Strategy: build(tb, strategy), Deployments: deployments})
	return r
}

// equal describes n deployments e0/m, e1/m, ... of weight 1.
func equal(n int) (ds []route.Deployment) {
	for i := range n {
		ds = append(ds, deployment("e"+string(rune('0'+i))+"/m", 1))
	}
	return ds
}

// client asks one Router for model m, each time with another seed.
type client struct {
	tb  testing.TB
	r   *route.Router
	now time.Time
	n   uint64
}

func newClient(tb testing.TB, r *route.Router) *client { return &client{tb: tb, r: r, now: start} }

// pick asks for a small answer. Names are endpoints or deployments that may not serve.
func (c *client) pick(not ...string) *route.Lease {
	c.tb.Helper()
	return c.ask(route.Facts{PromptBytes: 380, MaxOutput: 100, ExcludeNames: not})
}

func (c *client) ask(f route.Facts) *route.Lease {
	c.tb.Helper()
	c.n++
	f.Model, f.Seed = "m", c.n
	l, refusal := c.r.Pick(c.now, route.Query{Facts: &f, Model: "m"})
	if l == nil {
		c.tb.Fatalf("refused as %v, cuts %v", refusal.Kind, refusal.Decision.CutCounts())
	}
	return l
}

func (c *client) success(l *route.Lease) { l.Done(c.now, route.Outcome{Verdict: route.Success}) }

// mustBeIdle fails if anything is still counted anywhere.
func mustBeIdle(tb testing.TB, r *route.Router) {
	tb.Helper()
	v := r.View(start)
	for _, d := range v.Deployments {
		if d.InFlight != 0 || d.Tokens != 0 || d.Work != 0 {
			tb.Errorf("%s still counts in-flight %d, tokens %d, work %d", d.ID, d.InFlight, d.Tokens, d.Work)
		}
	}
	for _, s := range v.Scopes {
		if s.InFlight != 0 || s.Tokens != 0 {
			tb.Errorf("%s still counts in-flight %d, tokens %d", s.Name, s.InFlight, s.Tokens)
		}
	}
}

// chiSquare compares counts with expected proportions.
func chiSquare(counts []int, proportions []float64) (x float64) {
	total, sum := 0, 0.0
	for i, c := range counts {
		total += c
		sum += proportions[i]
	}
	for i, c := range counts {
		want := float64(total) * proportions[i] / sum
		x += (float64(c) - want) * (float64(c) - want) / want
	}
	return x
}

// chiLimit is exceeded by chance once in a hundred thousand (Wilson and Hilferty's approximation).
func chiLimit(freedom int) float64 {
	k := float64(freedom)
	return k * math.Pow(1-2/(9*k)+4.265*math.Sqrt(2/(9*k)), 3)
}

func ones(n int) []float64 {
	s := make([]float64, n)
	for i := range s {
		s[i] = 1
	}
	return s
}
