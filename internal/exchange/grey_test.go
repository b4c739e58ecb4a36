//go:build !race

package exchange

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// grey simulates a fleet in which a part of the attempts takes ten times as long to the first token, in virtual time, with
// the real Router and exchange.
type grey struct {
	*bench
	random *rand.Rand
	events greyEvents
	seq    int
	hedge  bool
	ttft   []float64 // seconds, of each request
	hedges int
	waits  int // requests that waited for room
}

const (
	greyRate  = 20.0 // requests per second
	greyShare = 0.02 // of attempts that are slow
	greyTimes = 10.0 // how much slower
)

type greyEvent struct {
	at  time.Time
	seq int
	do  func()
}

type greyEvents []greyEvent

func (h greyEvents) Len() int { return len(h) }
func (h greyEvents) Less(i, j int) bool {
	return h[i].at.Before(h[j].at) || h[i].at.Equal(h[j].at) && h[i].seq < h[j].seq
}
func (h greyEvents) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *greyEvents) Push(v any)   { *h = append(*h, v.(greyEvent)) }
func (h *greyEvents) Pop() any     { v := (*h)[len(*h)-1]; *h = (*h)[:len(*h)-1]; return v }

func (g *grey) in(d time.Duration, do func()) {
	g.seq++
	heap.Push(&g.events, greyEvent{g.now.Add(d), g.seq, do})
}

func (g *grey) run(requests int) {
	at := time.Duration(0)
	for range requests {
		at += time.Duration(g.random.ExpFloat64() / greyRate * float64(time.Second))
		g.in(at, g.arrive)
	}
	for len(g.events) > 0 {
		e := heap.Pop(&g.events).(greyEvent)
		g.now = e.at
		e.do()
	}
}

// greyFlight is one attempt; over once it was cancelled or has ended.
type greyFlight struct{ over bool }

func (g *grey) arrive() {
	x := g.exchange(Plan{Hedge: g.hedge, Repeatable: true}, route.Facts{Stream: true, Seed: g.random.Uint64(), PromptBytes: 2000})
	flights := [lanes]*greyFlight{}
	var tell func(e Event)
	var wake time.Time
	tell = func(e Event) {
		for _, a := range slices.Clone(x.Next(g.now, e)) {
			switch a.Kind {
			case Dispatch:
				f := &greyFlight{}
				flights[a.Lane] = f
				if a.Lane == Hedge {
					g.hedges++
				}
				g.attempt(f, a.Lane, tell)
			case Cancel:
				f := flights[a.Lane]
				f.over = true
				g.in(5*time.Millisecond, func() { tell(of(a.Lane, ended(llm.Reset))) })
			case Wait:
				g.waits++
			case Finish, Fail:
				g.ttft = append(g.ttft, x.Record().Content.Sub(x.Record().Started).Seconds())
			}
		}
		if at := x.Wake(); !at.IsZero() && (wake.IsZero() || at.Before(wake) || !wake.After(g.now)) {
			wake = at
			g.in(max(0, at.Sub(g.now)), func() { tell(Event{Kind: Timer}) })
		}
	}
	tell(Event{Kind: Started})
}

func (g *grey) attempt(f *greyFlight, lane Lane, tell func(Event)) {
	first := 0.3 * math.Exp(0.3*g.random.NormFloat64())
	if g.random.Float64() < greyShare {
		first *= greyTimes
	}
	g.in(time.Duration(first*float64(time.Second)), func() {
		if f.over {
			return
		}
		tell(Event{Kind: Content, Lane: lane})
		g.in(2*time.Second, func() {
			if !f.over {
				tell(of(lane, ended(llm.None, func(e *End) { e.Outcome.OutputTokens = 100 })))
			}
		})
	})
}

// TestGreyFailure: 2 % of the attempts take ten times as long. Hedging at least halves the 99th percentile of the time to the
// first token, at no more than 5 % more attempts, also once what is usual has been learned under hedging for long.
func TestGreyFailure(t *testing.T) {
	const requests = 10_000
	for _, seed := range []uint64{1, 2, 3} {
		p99 := map[bool]float64{}
		for _, hedge := range []bool{false, true} {
			b := newBench(t, Plan{}, route.Facts{}, pool(t, "m", 4, route.Limits{}))
			b.budget.Hedges(0.05)
			g := &grey{bench: b, random: rand.New(rand.NewPCG(seed, 67)), hedge: hedge}
			g.run(requests)
			if len(g.ttft) != requests || g.waits > 0 {
				t.Fatalf("%d of %d ended, %d waited", len(g.ttft), requests, g.waits)
			}
			half := slices.Clone(g.ttft[requests/2:])
			slices.Sort(half)
			p99[hedge] = half[len(half)*99/100]
			t.Logf("seed %d, hedging %v: p50 %.3f s, p99 %.3f s, %d hedges of %d requests (%.2f %%)",
				seed, hedge, half[len(half)/2], p99[hedge], g.hedges, requests, 100*float64(g.hedges)/requests)
			if g.hedges > requests*5/100 {
				t.Errorf("%d hedges of %d requests are more than 5 %%", g.hedges, requests)
			}
			b.idle()
		}
		if p99[true] > p99[false]/2 {
			t.Errorf("seed %d: p99 is %.3f s with hedging, %.3f s without", seed, p99[true], p99[false])
		}
	}
}
