//go:build !race

package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"evenkeel/internal/engine"
	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// conversation is a strategy that keeps to one deployment for each conversation, or goes anywhere.
type conversation struct{ sticky bool }

func (c conversation) Pick(r *route.Round) int {
	if c.sticky {
		return int(r.Facts.Prefix[0] % uint64(len(r.Candidates)))
	}
	return r.IntN(len(r.Candidates))
}

// first brings the requests of the first sessions, left of them in all.
type first struct {
	*Sessions
	sessions, left uint64
}

func (f *first) Next(r *Request) bool {
	for f.left > 0 {
		if f.Sessions.Next(r); r.Session <= f.sessions {
			f.left--
			return true
		}
	}
	return false
}

// TestTurns: the share of tokens that caches hold of conversations of eight equal turns, if nothing is ever evicted. A turn
// finds what the last turn that went to the same one of R deployments left.
func TestTurns(t *testing.T) {
	const turns, turn = 8, 1024
	f := func(name string, deployments int, s conversation, want, tolerance float64) {
		t.Helper()
		c, err := engine.Preset("vllm-8192")
		if err != nil {
			t.Fatal(err)
		}
		c.Blocks = 64 << 20 / c.BlockTokens
		var servers []Server
		for range deployments {
			e, err := NewEngine(c)
			if err != nil {
				t.Fatal(err)
			}
			servers = append(servers, e)
		}
		n := uint64(2000)
		if *full {
			n *= 20
		}
		sessions := mustSessions(t, 2, SessionOptions{Rate: .5, Turns: Law{turns, 0}, Question: Law{turn, 0}, Answer: Law{1, 0}, Gap: Law{100, 0}, Block: c.BlockTokens})
		r := run(t, Options{
			Seed: 2, Servers: servers, Strategy: s, Plan: onlyOnce, Stream: true, Source: &first{sessions, n, n * turns},
		}, 1<<62)
		row(t, name, float64(r.Counts.CachedTokens)/float64(r.Counts.PromptTokens), 0, want, tolerance)
	}
	for _, deployments := range []int{2, 4, 8, 16} {
		found, asked := 0.0, 0.0
		for k := 1; k <= turns; k++ {
			asked += float64(k)
			for j := 1; j < k; j++ {
				found += float64(j) / float64(deployments) * math.Pow(1-1/float64(deployments), float64(k-1-j))
			}
		}
		tolerance := .005
		if !*full {
			tolerance = .03
		}
		f(fmt.Sprintf("S25 eight turns, each to a random one of %d: share of tokens found", deployments), deployments, conversation{}, found/asked, tolerance)
	}
	f("S26 eight turns, all to the same one of 8: share of tokens found", 8, conversation{sticky: true}, 28.0/36, .002)
}

// TestHalfLife: after its half-life without news, what was learned of a deployment's speed weighs one half.
func TestHalfLife(t *testing.T) {
	s := newSolo(t, "p2c_ewma", route.Health{}, 1)
	answer := func(ttft time.Duration) {
		s.seed++
		l, refusal := s.r.Pick(s.now, route.Query{Model: model, Facts: &route.Facts{Seed: s.seed, Model: model, Stream: true}})
		if refusal != nil {
			t.Fatal(refusal.Kind)
		}
		begun := s.now
		s.now = s.now.Add(ttft)
		l.FirstToken(s.now)
		l.Done(s.now, route.Outcome{Verdict: route.Success, Answered: true, Status: 200, TTFT: s.now.Sub(begun), OutputTokens: 1})
	}
	answer(time.Second)
	s.now = s.now.Add(route.DefaultTuning.HalfLife - 3*time.Second)
	answer(3 * time.Second)
	old := (3 - s.r.View(s.now).Deployments[0].TTFT.Seconds()) / (3 - 1)
	row(t, "S39 weight of an estimate after its half-life", old, 0, .5, 1e-8)
}

// TestAvailability: each of four deployments fails every request for a hundredth of the time. One failover makes two nines
// four if they fail apart, and adds nothing if they fail together.
func TestAvailability(t *testing.T) {
	length := 20_000 * time.Second
	if *full {
		length *= 4
	}
	f := func(together bool) float64 {
		var faults []Fault
		rng := stream(3, forService)
		for d := range 4 {
			if together {
				rng = stream(3, forService)
			}
			for at := time.Duration(0); ; {
				at += seconds(9.9 * rng.ExpFloat64())
				mended := at + seconds(rng.ExpFloat64()/10)
				if mended > length {
					break
				}
				faults = append(faults, Fault{At: at, Deployment: d, Kind: Erring}, Fault{At: mended, Deployment: d})
				at = mended
			}
		}
		fleet := mustFleet(t, Options{
			Seed: 1, Servers: alone(t, 4), Strategy: drawn(1), Source: jobs(t, 1, 20), Faults: faults,
			Plan: exchange.Plan{MaxAttempts: 2, Repeatable: true}, Budget: Budget{Ratio: 1, Smallest: 1000},
			Router: route.Options{Health: route.Health{TripAfter: math.MaxInt, ErrorRate: 2}}, // breakers would do better than independent tries
		})
		if err := fleet.Finish(length); err != nil {
			t.Fatal(err)
		}
		c := fleet.Result().Counts
		return float64(c.Done) / float64(c.Arrived)
	}
	apart, together := f(false), f(true)
	tolerance := 5e-5
	if *full {
		tolerance = 2e-5
	}
	relation(t, "S44 availability 0.99 and one failover: of failures apart, and together", "0.9999, 0.99", fmt.Sprintf("%.5f, %.4f", apart, together),
		math.Abs(apart-.9999) < tolerance && math.Abs(together-.99) < 20*tolerance)
}
