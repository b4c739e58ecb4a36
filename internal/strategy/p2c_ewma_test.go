package strategy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// noted returns the candidates that were compared.
func noted(cs []route.Candidate) (at []int) {
	for i := range cs {
		if len(cs[i].Noted()) > 0 {
			at = append(at, i)
		}
	}
	return at
}

// TestP2CComparesTwoDistinctRandomOnes, all pairs equally often, and takes the lower.
func TestP2CComparesTwoDistinctRandomOnes(t *testing.T) {
	s := build(t, "p2c_ewma")
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{2, 3, 5} {
		pairs := map[string]int{}
		for seed := range uint64(1000 * n) {
			cs := make([]route.Candidate, n)
			for i := range cs {
				cs[i] = route.Candidate{Weight: 1, InFlight: rng.IntN(5), TTFT: 0.1 + rng.Float64()}
			}
			i := s.Pick(route.NewRound(start, &route.Facts{Seed: seed}, 0, cs, 0))
			two := noted(cs)
			if len(two) != 2 || !slices.Contains(two, i) {
				t.Fatalf("of %d compared %v and took %d", n, two, i)
			}
			pairs[fmt.Sprint(two)]++
			j := two[0] + two[1] - i
			if score := func(k int) float64 { return float64(cs[k].InFlight+1) * cs[k].TTFT }; score(i) > score(j) {
				t.Fatalf("took score %v, the other has %v", score(i), score(j))
			}
		}
		var counts []int
		for _, c := range pairs {
			counts = append(counts, c)
		}
		if len(counts) != n*(n-1)/2 {
			t.Fatalf("of %d only pairs %v were compared", n, pairs)
		}
		if len(counts) > 1 {
			if x := chiSquare(counts, ones(len(counts))); x > chiLimit(len(counts)-1) {
				t.Errorf("chi-square %.1f of pairs %v", x, pairs)
			}
		}
	}
}

func TestP2CTiesAreACoin(t *testing.T) {
	s := build(t, "p2c_ewma")
	counts := make([]int, 4)
	for seed := range uint64(8000) {
		cs := make([]route.Candidate, 4)
		for i := range cs {
			cs[i] = route.Candidate{Weight: 1, TTFT: 1}
		}
		counts[s.Pick(route.NewRound(start, &route.Facts{Seed: seed}, 0, cs, 0))]++
	}
	if x := chiSquare(counts, ones(4)); x > chiLimit(3) {
		t.Errorf("chi-square %.1f of ties %v", x, counts)
	}
}

func TestP2COptions(t *testing.T) {
	f := func(set p2cOptions, want string) {
		t.Helper()
		s, err := New("p2c_ewma", func(into any) error {
			o := into.(*p2cOptions)
			if o.HalfLife != 10*time.Second || o.ColdAfter != time.Minute {
				t.Errorf("defaults %+v, want 10s and 1m", *o)
			}
			*o = set
			return nil
		})
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: error %v, want %q", set, err, want)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := s.(route.Tuner).Tuning(); got != route.Tuning(set) {
			t.Errorf("tuning %+v, want %+v", got, set)
		}
	}
	f(p2cOptions{HalfLife: 3 * time.Second, ColdAfter: time.Hour}, "")
	f(p2cOptions{HalfLife: 0, ColdAfter: time.Hour}, "half_life 0s must be positive")
	f(p2cOptions{HalfLife: time.Second, ColdAfter: -time.Second}, "cold_after -1s must be positive")
}

// fleet serves requests in virtual time: each takes its deployment's TTFT, which grows with load.
type fleet struct {
	*client
	ttft    map[string]func(now time.Time) time.Duration
	running []serving
	picks   map[string]int
}

type serving struct {
	lease *route.Lease
	ttft  time.Duration
	until time.Time
}

// serve starts a request every gap for a time.
func (f *fleet) serve(gap, length time.Duration) {
	f.picks = map[string]int{}
	for end := f.now.Add(length); f.now.Before(end); f.now = f.now.Add(gap) {
		f.finish(f.now)
		l := f.pick()
		f.picks[l.Deployment().ID]++
		ttft := f.ttft[l.Deployment().ID](f.now)
		f.running = append(f.running, serving{l, ttft, f.now.Add(ttft)})
	}
}

func (f *fleet) finish(now time.Time) {
	slices.SortFunc(f.running, func(a, b serving) int { return a.until.Compare(b.until) })
	for len(f.running) > 0 && !f.running[0].until.After(now) {
		s := f.running[0]
		s.lease.Done(s.until, route.Outcome{Verdict: route.Success, Answered: true, TTFT: s.ttft})
		f.running = f.running[1:]
	}
}

func constant(d time.Duration) func(time.Time) time.Duration {
	return func(time.Time) time.Duration { return d }
}

func (f *fleet) share(id string) float64 {
	total := 0
	for _, n := range f.picks {
		total += n
	}
	return 100 * float64(f.picks[id]) / float64(total)
}

// TestP2CFollowsSpeed: a deployment that is four times slower gets clearly less, but not nothing.
func TestP2CFollowsSpeed(t *testing.T) {
	f := &fleet{client: newClient(t, build1(t, "p2c_ewma", equal(3)...)), ttft: map[string]func(time.Time) time.Duration{
		"e0/m": constant(100 * time.Millisecond), "e1/m": constant(100 * time.Millisecond), "e2/m": constant(400 * time.Millisecond),
	}}
	f.serve(10*time.Millisecond, 30*time.Second)
	f.serve(10*time.Millisecond, 30*time.Second)
	if slow := f.share("e2/m"); slow < 1 || slow > 15 {
		t.Errorf("the slow one gets %.1f %%, want between 1 and 15: %v", slow, f.picks)
	}
	f.finish(f.now.Add(time.Minute))
	mustBeIdle(t, f.r)
}

// TestP2COneColdStartIsNoLifeSentence: a deployment whose first answer took 30 s, because it loaded its model,
// is back to a fair share within two minutes.
func TestP2COneColdStartIsNoLifeSentence(t *testing.T) {
	loaded := false
	f := &fleet{client: newClient(t, build1(t, "p2c_ewma", equal(2)...)), ttft: map[string]func(time.Time) time.Duration{
		"e0/m": constant(200 * time.Millisecond),
		"e1/m": func(time.Time) time.Duration {
			if !loaded {
				loaded = true
				return 30 * time.Second
			}
			return 200 * time.Millisecond
		},
	}}
	f.serve(50*time.Millisecond, 150*time.Second)
	f.serve(50*time.Millisecond, 30*time.Second)
	if got := f.share("e1/m"); got < 30 {
		t.Errorf("gets %.1f %%, want a fair share: %v", got, f.picks)
	}
}

// TestP2CNewcomerIsTriedButNotFlooded: beside three deployments under load it begins with a part of its share, and has
// all of it after the slow start.
func TestP2CNewcomerIsTriedButNotFlooded(t *testing.T) {
	ds := equal(4)
	f := &fleet{client: newClient(t, build1(t, "p2c_ewma", ds[:3]...)), ttft: map[string]func(time.Time) time.Duration{}}
	for _, d := range ds {
		f.ttft[d.ID] = constant(200 * time.Millisecond)
	}
	f.serve(10*time.Millisecond, 10*time.Second)
	adopt(t, f.r, route.PoolSpec{Model: "m", Strategy: build(t, "p2c_ewma"), Deployments: ds})
	f.serve(10*time.Millisecond, time.Second)
	if got := f.share("e3/m"); got == 0 || got > 15 {
		t.Errorf("in its first second the newcomer gets %.1f %%, want some, and at most 15: %v", got, f.picks)
	}
	f.serve(10*time.Millisecond, time.Minute)
	f.serve(10*time.Millisecond, 10*time.Second)
	if got := f.share("e3/m"); got < 15 || got > 40 {
		t.Errorf("after the slow start the newcomer gets %.1f %%, want 15 to 40: %v", got, f.picks)
	}
}
