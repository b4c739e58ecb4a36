package strategy

import (
	"testing"
	"time"

	"evenkeel/internal/route"
)

// health is a candidate that has been well for that long.
func health(id string, well time.Duration) route.Candidate {
	return route.Candidate{ID: id, Weight: 1, Healthy: well, Share: 1}
}

func TestFailoverKeepsToTheFirstThatIsWell(t *testing.T) {
	s := build(t, "failover")
	f := func(want string, candidates ...route.Candidate) {
		t.Helper()
		for seed := range uint64(20) {
			i := s.Pick(route.NewRound(start, &route.Facts{Seed: seed}, 0, candidates, 0))
			if candidates[i].ID != want {
				t.Fatalf("picked %s, want %s", candidates[i].ID, want)
			}
		}
	}
	f("a", health("a", route.Always), health("b", route.Always))
	f("b", health("b", route.Always), health("c", route.Always)) // a is not eligible
	f("b", health("a", 59*time.Second), health("b", route.Always))
	f("a", health("a", time.Minute), health("b", route.Always))
	f("a", health("a", time.Second), health("b", 2*time.Second)) // nobody has been well for long
	f("c", health("a", time.Second), health("b", 2*time.Second), health("c", time.Hour))
}

// TestFailoverAndBack through a Router: the second takes over when the first fails, and the first takes back after
// back_after, all at once; slow start does not split the requests between the two.
func TestFailoverAndBack(t *testing.T) {
	s, err := New("failover", func(o any) error {
		o.(*failoverOptions).BackAfter = 10 * time.Second
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r := route.New(route.Options{Health: route.Health{ResetAfter: 5 * time.Second}})
	adopt(t, r, route.PoolSpec{Model: "m", Strategy: s, Deployments: equal(2)})
	c := newClient(t, r)
	end := func(l *route.Lease, v route.Verdict) {
		l.Done(c.now, route.Outcome{Verdict: v, Answered: true, Class: "server_error"})
	}
	expect := func(d time.Duration, want string) {
		t.Helper()
		c.now = start.Add(d)
		for range 50 {
			l := c.pick()
			if l.Deployment().ID != want {
				t.Fatalf("after %v: %s, want %s", d, l.Deployment().ID, want)
			}
			end(l, route.Success)
		}
	}
	expect(0, "e0/m")
	for range 5 {
		end(c.pick(), route.DeploymentFault)
	}
	expect(time.Second, "e1/m")
	c.now = start.Add(6 * time.Second) // the time out is over: one trial
	if l := c.pick(); l.Deployment().ID != "e0/m" || !l.Decision().Trial {
		t.Fatalf("after the time out: %s, trial %v", l.Deployment().ID, l.Decision().Trial)
	} else {
		end(l, route.Success)
	}
	expect(7*time.Second, "e1/m")
	expect(15900*time.Millisecond, "e1/m")
	expect(16*time.Second, "e0/m")
}

func TestFailoverRefusesANegativeTime(t *testing.T) {
	if _, err := New("failover", func(o any) error {
		o.(*failoverOptions).BackAfter = -1
		return nil
	}); err == nil {
		t.Error("back_after -1ns was accepted")
	}
}
