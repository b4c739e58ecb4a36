//go:build !race

package strategy

import (
	"testing"
	"time"
)

// queues gives every server so many slots, and as many requests as keep them busy for 70 % of the time.
func (f *farm) queues(slots int) {
	for _, s := range f.servers {
		s.slots = make([]time.Time, slots)
	}
	f.perSec = 0.7 * float64(slots*len(f.servers)) / meanWork.Seconds()
}

// measure runs some ten thousand requests and returns their mean time to the first token in seconds, and the work of the
// busiest server in multiples of the mean.
func (f *farm) measure() (ttft, imbalance float64) {
	f.run(time.Minute)
	f.forget()
	f.run(time.Duration(10_000 / f.perSec * float64(time.Second)))
	picks, busy, most := 0, 0.0, 0.0
	for _, s := range f.servers {
		picks, ttft, busy, most = picks+s.picks, ttft+s.waited, busy+s.busy, max(most, s.busy)
	}
	return ttft / float64(picks), most / busy * float64(len(f.servers))
}

// TestTwoBalancers before one fleet at a load of 0.7, each of which sees only its own requests: they do not herd, and
// engines that run several requests at once answer about as soon as behind one balancer.
func TestTwoBalancers(t *testing.T) {
	f := func(strategy string, slots int, mostTTFT float64) {
		t.Helper()
		const seeds = 3
		var one, two float64
		for seed := range uint64(seeds) {
			for balancers, sum := range []*float64{&one, &two} {
				f := newFarm(t, strategy, 8, balancers+1, 1, seed)
				f.queues(slots)
				ttft, imbalance := f.measure()
				*sum += ttft / seeds
				if imbalance > 1.5 {
					t.Errorf("%s, %d slots, seed %d, %d balancers: the busiest of 8 has %.2f times the mean work", strategy, slots, seed, balancers+1, imbalance)
				}
			}
		}
		if two > mostTTFT*one {
			t.Errorf("%s, %d slots: mean TTFT %.3f s behind two balancers, %.3f s behind one, want at most %v times that", strategy, slots, two, one, mostTTFT)
		}
	}
	f("least_tokens", 16, 1.1)
	f("least_tokens", 4, 1.1)
	f("predicted_wait", 16, 1.1)
	f("predicted_wait", 4, 1.6)
	f("p2c_ewma", 16, 1.1)
	f("p2c_ewma", 4, 1.4)
	// An engine that serves one after the other makes a request wait for the one that the other balancer has sent there,
	// which nobody could see.
	f("least_tokens", 1, 2.1)
	f("p2c_ewma", 1, 1.5)
	f("predicted_wait", 1, 2.1)
}

// TestQueueIsNotSlow: behind one balancer the wait for a turn, which is many times what a first token takes alone, must not
// pass for slowness. Join-the-shortest-queue at this load waits about 0.2 of the mean work.
func TestQueueIsNotSlow(t *testing.T) {
	for _, strategy := range []string{"least_tokens", "least_connections", "predicted_wait"} {
		for seed := range uint64(3) {
			f := newFarm(t, strategy, 8, 1, 1, seed)
			f.queues(1)
			if ttft, _ := f.measure(); ttft > (prefill + 3*meanWork/10).Seconds() {
				t.Errorf("%s, seed %d: mean TTFT %.3f s", strategy, seed, ttft)
			}
		}
	}
}
