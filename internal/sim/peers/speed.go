package peers

import (
	"math"
	"slices"
)

// speed is how fast an engine prefills, as the vLLM router's smetric measures it: of the last 64 requests, cost per second to the first
// token. That time has waiting in it, so the fast ones come near to what the engine can do: it is their 90th percentile, known from
// 8 of them on. The zero value knows nothing.
type speed struct {
	samples []float64 // the oldest is at next, once there are speedWindow
	next    int
	perSec  float64 // 0 = not known
	sorted  []float64
}

const (
	speedWindow   = 64
	speedFew      = 8
	speedQuantile = 0.9
)

func (s *speed) add(cost, seconds float64) {
	if cost <= 0 || seconds <= 0 {
		return
	}
	if len(s.samples) < speedWindow {
		s.samples = append(s.samples, cost/seconds)
	} else {
		s.samples[s.next] = cost / seconds
		s.next = (s.next + 1) % speedWindow
	}
	if n := len(s.samples); n >= speedFew {
		s.sorted = append(s.sorted[:0], s.samples...)
		slices.Sort(s.sorted)
		s.perSec = s.sorted[int(math.Round(speedQuantile*float64(n-1)))]
	}
}

// takes is how many seconds so much takes, 0 if that is not known.
func (s *speed) takes(cost float64) float64 {
	if s.perSec == 0 {
		return 0
	}
	return cost / s.perSec
}
