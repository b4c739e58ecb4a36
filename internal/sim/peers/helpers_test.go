package peers

import (
	"fmt"
	"math"
	"testing"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// rig holds a policy before engines, tells it what happens and asks it.
type rig struct {
	t        *testing.T
	p        sim.Policy
	ids      []string
	engines  []*sim.Engine // FIFO, with blocks of 512 tokens
	asked    sim.Request
	seed     uint64
	attempts uint64
	out      map[uint64]sim.Notice // attempts that run
	now      time.Duration
	weights  []float64 // nil = all 1
	missing  map[int]bool
	stream   bool
}

func newRig(t *testing.T, id string, deployments int) *rig {
	t.Helper()
	c, err := engine.Preset("fifo")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, out: map[uint64]sim.Notice{}, missing: map[int]bool{}, stream: true}
	at := sim.Vantage{Seed: 1, Balancers: 1, Request: func(uint64) *sim.Request { return &r.asked }}
	for i := range deployments {
		e, err := sim.NewEngine(c)
		if err != nil {
			t.Fatal(err)
		}
		r.engines = append(r.engines, e)
		at.Servers = append(at.Servers, e)
		r.ids = append(r.ids, "e"+string(rune('0'+i))+"/m")
	}
	at.IDs = r.ids
	e, err := Find(id)
	if err != nil {
		t.Fatal(err)
	}
	if r.p, err = e.New(at); err != nil {
		t.Fatal(err)
	}
	return r
}

// prompt is a request of so many tokens, whose blocks of 512 are named by the chain.
func prompt(tokens int, chain ...uint64) sim.Request {
	return sim.Request{PromptTokens: tokens, OutputTokens: 10, BlockTokens: 512, Prompt: chain}
}

// send tells that a deployment was sent a request.
func (r *rig) send(deployment int, q sim.Request) uint64 {
	r.attempts++
	n := sim.Notice{Kind: sim.Sent, At: r.now, Deployment: deployment, Attempt: r.attempts, Request: &q}
	r.out[r.attempts] = n
	r.p.Learn(&n)
	return r.attempts
}

// sent is send, for each deployment so many requests that share nothing.
func (r *rig) sent(requests ...int) {
	for d, n := range requests {
		for range n {
			r.send(d, prompt(100))
		}
	}
}

// begin tells that the first token came, now.
func (r *rig) begin(attempt uint64) {
	n := r.out[attempt]
	n.Kind, n.TTFT, n.At = sim.Begun, r.now-n.At, r.now
	r.p.Learn(&n)
	n.At -= n.TTFT
	r.out[attempt] = n
}

// end tells that an attempt is over, now.
func (r *rig) end(attempt uint64, ok bool) {
	n := r.out[attempt]
	n.Kind, n.At, n.OK, n.Output = sim.Over, r.now, ok, n.Request.OutputTokens
	delete(r.out, attempt)
	r.p.Learn(&n)
}

// took lets a deployment answer a request of so many output tokens, whose first token comes after some seconds and whose end after more.
func (r *rig) took(deployment, output int, ttft, whole float64) {
	begun := r.now
	q := prompt(100)
	q.OutputTokens = output
	id := r.send(deployment, q)
	r.now = begun + seconds(ttft)
	r.begin(id)
	r.now = begun + seconds(whole)
	r.end(id, true)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (r *rig) scraped(deployment int, l engine.Load) {
	r.p.Learn(&sim.Notice{Kind: sim.Scraped, At: r.now, Deployment: deployment, Load: l})
}

// warm lets an engine compute a prompt, so that its cache has it.
func (r *rig) warm(deployment int, q sim.Request) {
	r.t.Helper()
	e := r.engines[deployment]
	r.attempts++
	if err := e.Submit(r.now, sim.Job{ID: r.attempts, Request: &q}); err != nil {
		r.t.Fatal(err)
	}
	for at, ok := e.Next(); ok; at, ok = e.Next() {
		e.Step(at)
		r.now = max(r.now, at)
	}
}

// pick returns which deployment the policy chooses for a request, with other random numbers each time.
func (r *rig) pick(q sim.Request) int {
	r.t.Helper()
	r.seed++
	q.Seed = r.seed
	r.asked = q
	var candidates []route.Candidate
	var who []int
	for d, id := range r.ids {
		if r.missing[d] {
			continue
		}
		c := route.Candidate{ID: id, Weight: 1}
		if r.weights != nil {
			c.Weight = r.weights[d]
		}
		candidates = append(candidates, c)
		who = append(who, d)
	}
	f := &route.Facts{Seed: q.Seed, Prefix: q.Prompt, PromptBytes: 4 * q.PromptTokens, Stream: r.stream}
	i := r.p.Pick(route.NewRound(sim.Epoch.Add(r.now), f, 0, candidates, 0))
	if i < 0 || i >= len(candidates) {
		r.t.Fatalf("picked candidate %d of %d", i, len(candidates))
	}
	return who[i]
}

// is demands that a request goes to a deployment, however the dice fall.
func (r *rig) is(what string, q sim.Request, want int) {
	r.t.Helper()
	for range 20 {
		if got := r.pick(q); got != want {
			r.t.Fatalf("%s: deployment %d, want %d", what, got, want)
		}
	}
}

// among demands that a request goes to each of some deployments at random, about alike, and to no other.
func (r *rig) among(what string, q sim.Request, want ...int) {
	r.t.Helper()
	const n = 400
	count := map[int]int{}
	for range n {
		count[r.pick(q)]++
	}
	for _, d := range want {
		if share := float64(count[d]) / n * float64(len(want)); share < .7 || share > 1.3 {
			r.t.Fatalf("%s: of %d picks %v, want alike of %v", what, n, count, want)
		}
		delete(count, d)
	}
	if len(count) > 0 {
		r.t.Fatalf("%s: also picked %v, want only of %v", what, count, want)
	}
}

func near(got, want float64) error {
	if math.Abs(got-want) > 1e-4 {
		return fmt.Errorf("%v, want %v", got, want)
	}
	return nil
}

// round is a ranking of nobody, for its random numbers.
func round(seed uint64) *route.Round {
	return route.NewRound(sim.Epoch, &route.Facts{Seed: seed}, 0, nil, 0)
}
