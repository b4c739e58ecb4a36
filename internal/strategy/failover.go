package strategy

import (
	"fmt"
	"time"

	"evenkeel/internal/route"
)

// failover keeps to the first deployment of the list while it is in use, and goes to the next when it is not: caches,
// behaviour and bills stay where they are. It goes back once the first has been well for a while.
type failover struct{ backAfter time.Duration }

// failoverOptions are the options of failover.
type failoverOptions struct {
	BackAfter time.Duration `yaml:"back_after"` // how long an earlier deployment must have been well before requests go back to it
}

func newFailover(decode func(any) error) (route.Strategy, error) {
	o := failoverOptions{BackAfter: time.Minute}
	if err := decode(&o); err != nil {
		return nil, err
	}
	if o.BackAfter < 0 {
		return nil, fmt.Errorf("back_after %v must not be negative", o.BackAfter)
	}
	return failover{o.BackAfter}, nil
}

func (failover) String() string { return "failover" }

// Steady implements route.Steady.
func (failover) Steady() bool { return true }

func (s failover) Pick(r *route.Round) int {
	first, settled := 0, -1
	for i := range r.Candidates {
		c := &r.Candidates[i]
		r.Note(i, "order", float64(i))
		if c.Healthy >= s.backAfter {
			if settled < 0 {
				settled = i
			}
		} else {
			r.Note(i, "just_back", float64(len(r.Candidates)))
		}
	}
	if settled >= 0 {
		return settled
	}
	return first
}
