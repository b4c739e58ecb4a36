//go:build !race

package strategy

import (
	"testing"
	"time"

	"evenkeel/internal/route"
)

// each calls f with strategies, sizes of fleets and seeds.
func each(t *testing.T, strategies []string, sizes []int, f func(t *testing.T, strategy string, n int, seed uint64)) {
	t.Helper()
	for _, strategy := range strategies {
		for _, n := range sizes {
			for seed := range uint64(4) {
				f(t, strategy, n, seed)
			}
		}
	}
}

// TestTenTimesSlower: one deployment that becomes ten times slower gets less than 2 % of the traffic from 30 s on, and its
// full share again within 60 s of its recovery.
func TestTenTimesSlower(t *testing.T) {
	each(t, []string{"round_robin", "least_tokens", "least_connections", "weighted"}, []int{4, 10}, func(t *testing.T, strategy string, n int, seed uint64) {
		f := newFarm(t, strategy, n, 1, 20, seed)
		f.run(time.Minute)
		slow := f.servers["e0/m"]
		slow.ttft = around(2 * time.Second)
		f.run(30 * time.Second)
		if b := f.breaker("e0/m"); b.State != route.Degraded || b.Reason != "slow" {
			t.Errorf("%s, %d deployments, seed %d: after 30 s it is %+v, want degraded", strategy, n, seed, b)
		}
		f.forget()
		f.run(time.Minute)
		if part := f.part("e0/m"); part >= 0.02 || slow.picks < 3 {
			t.Errorf("%s, %d deployments, seed %d: slow, it gets %.2f %% (%d requests), want less than 2 %% and some", strategy, n, seed, 100*part, slow.picks)
		}
		slow.ttft = around(200 * time.Millisecond)
		f.run(time.Minute)
		f.forget()
		f.run(time.Minute)
		if part := f.part("e0/m") * float64(n); part < 0.8 || part > 1.2 {
			t.Errorf("%s, %d deployments, seed %d: well again, it gets %.2f of its share, want all", strategy, n, seed, part)
		}
	})
}

// TestTenTimesSlowerByP2C is the same for a strategy that learns speeds itself, so that shares are never exactly even.
func TestTenTimesSlowerByP2C(t *testing.T) {
	each(t, []string{"p2c_ewma"}, []int{4, 10}, func(t *testing.T, strategy string, n int, seed uint64) {
		f := newFarm(t, strategy, n, 1, 20, seed)
		f.run(time.Minute)
		slow := f.servers["e0/m"]
		slow.ttft = around(2 * time.Second)
		f.run(30 * time.Second)
		f.forget()
		f.run(time.Minute)
		if part := f.part("e0/m"); part >= 0.02 || slow.picks < 1 {
			t.Errorf("%d deployments, seed %d: slow, it gets %.2f %% (%d requests), want less than 2 %% and some", n, seed, 100*part, slow.picks)
		}
		slow.ttft = around(200 * time.Millisecond)
		f.run(time.Minute)
		f.forget()
		f.run(2 * time.Minute)
		if part := f.part("e0/m") * float64(n); part < 0.4 || f.breaker("e0/m").State != route.Closed {
			t.Errorf("%d deployments, seed %d: well again, it gets %.2f of its share and is %v", n, seed, part, f.breaker("e0/m").State)
		}
	})
}

// TestTenTimesSlowerByForecasts is the same for the default strategy: who was slow is forgotten to be, after a while without news.
func TestTenTimesSlowerByForecasts(t *testing.T) {
	for _, streamed := range []bool{true, false} {
		each(t, []string{"predicted_wait"}, []int{4, 10}, func(t *testing.T, strategy string, n int, seed uint64) {
			f := newFarm(t, strategy, n, 1, 20, seed)
			if streamed {
				f.prompt = func(f *farm) int { return 50 + f.rng.IntN(1000) }
			}
			f.run(time.Minute)
			slow := f.servers["e0/m"]
			slow.ttft = around(2 * time.Second)
			f.run(30 * time.Second)
			f.forget()
			f.run(3 * time.Minute)
			if part := f.part("e0/m"); part >= 0.02 {
				t.Errorf("%d deployments, streamed %v, seed %d: slow, it gets %.2f %%, want less than 2 %%", n, streamed, seed, 100*part)
			}
			slow.ttft = around(200 * time.Millisecond)
			f.run(3 * time.Minute)
			f.forget()
			f.run(2 * time.Minute)
			if part := f.part("e0/m") * float64(n); part < 0.4 {
				t.Errorf("%d deployments, streamed %v, seed %d: well again, it gets %.2f of its share", n, streamed, seed, part)
			}
		})
	}
}

// TestSlowTailDegradesNobody: one answer in fifty, anywhere, that takes ten times as long is a tail and no illness.
func TestSlowTailDegradesNobody(t *testing.T) {
	each(t, []string{"round_robin", "least_tokens", "predicted_wait"}, []int{4, 10}, func(t *testing.T, strategy string, n int, seed uint64) {
		f := newFarm(t, strategy, n, 1, 20, seed)
		usually, sometimes := around(200*time.Millisecond), around(2*time.Second)
		for _, s := range f.servers {
			s.ttft = func(f *farm) time.Duration {
				if f.rng.IntN(50) == 0 {
					return sometimes(f)
				}
				return usually(f)
			}
		}
		for range 600 {
			f.run(time.Second)
			for _, d := range f.routers[0].View(f.now).Deployments {
				if d.Breaker.State != route.Closed {
					t.Fatalf("%s, %d deployments, seed %d: %s is %+v", strategy, n, seed, d.ID, d.Breaker)
				}
			}
		}
	})
}

// TestAllSlow: when all become slower together, the load or the yardstick is ill, and traffic stays even.
func TestAllSlow(t *testing.T) {
	each(t, []string{"round_robin", "least_tokens", "predicted_wait"}, []int{2, 4}, func(t *testing.T, strategy string, n int, seed uint64) {
		f := newFarm(t, strategy, n, 1, 20, seed)
		f.run(time.Minute)
		for _, s := range f.servers {
			s.ttft = around(2 * time.Second)
		}
		f.run(30 * time.Second)
		f.forget()
		f.run(time.Minute)
		for id := range f.servers {
			if part := f.part(id) * float64(n); part < 0.8 || part > 1.2 {
				t.Errorf("%s, %d deployments, seed %d: %s gets %.2f of its share", strategy, n, seed, id, part)
			}
		}
	})
}

// TestSlowStartByStrategy: 15 s after its return of a slow start of 60 s a deployment gets a quarter of its share, and half
// at 30 s, whether the strategy favours the idle or not.
func TestSlowStartByStrategy(t *testing.T) {
	for _, e := range table {
		if s, ok := build(t, e.name).(route.Steady); ok && s.Steady() {
			continue
		}
		parts := map[time.Duration]float64{15 * time.Second: 0, 30 * time.Second: 0}
		const seeds, n, window = 12, 4, 4 * time.Second
		for seed := range uint64(seeds) {
			f := newFarm(t, e.name, n, 1, 100, seed)
			f.run(5 * time.Second)
			f.servers["e0/m"].failing = func(*farm) bool { return true }
			f.until("e0/m", route.Open)
			f.servers["e0/m"].failing = nil
			f.until("e0/m", route.SlowStart)
			back := f.breaker("e0/m").Since
			for _, after := range []time.Duration{15 * time.Second, 30 * time.Second} {
				f.run(back.Add(after - window/2).Sub(f.now))
				f.forget()
				f.run(window)
				parts[after] += f.part("e0/m") * n / seeds
			}
		}
		for after, part := range parts {
			if want := after.Minutes(); part < 0.85*want || part > 1.15*want {
				t.Errorf("%s: %v after its return it gets %.3f of its share, want %.2f", e.name, after, part, want)
			}
		}
	}
}
