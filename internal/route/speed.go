package route

import (
	"math"
	"time"
)

// What a deployment needs for a prompt alone, from the moment it begins with it to the first token, is learned as
//
//	seconds = θ0 + θ1·n + θ2·n·(L − n/2) + θ3·B·max(1, n/chunk)
//
// of n tokens that no cache holds, of a prompt of L, while B answers are being produced: a fixed part, the work of each token, its
// attention to what stands before, and the steps that it shares with those answers (facts of batching engines: one step holds a
// chunk of prompts and a token of each answer). All four are ≥ 0. θ is the least squares of weighted samples that fade, with the
// fleet's standing in for what a deployment has not shown yet.
const (
	speedFeatures = 4
	speedChunk    = 4096 // tokens of a step
	speedMemory   = 300  // samples of one deployment after which old ones have faded
	fleetMemory   = 2000
	fleetCounts   = 300 // samples that the fleet's count as, for each deployment
	levelMemory   = 20  // samples after which all is faster or slower than the least squares say
	levelPrior    = 4   // samples that say it is as before
	levelHalfLife = 20  // seconds without news
	besideOthers  = 0.1 // weight of a prompt that was not alone: engines batch, so that it looks cheaper the longer the line is
	sampleFloor   = 0.02
	outlierAfter  = 30  // samples
	outlier       = 8.0 // times what was expected: counts as that
	leastSeconds  = 1e-4
)

type features [speedFeatures]float64

// featuresOf a prompt of L tokens of which n are not cached, beside B answers.
func featuresOf(n, l, b int) features {
	x, y := float64(n)/1e3, float64(l)/1e3
	return features{1, x, x * (y - x/2) / 10, float64(b) * max(1, float64(n)/speedChunk) / 10}
}

// samples are sums over weighted samples.
type samples struct {
	xx [speedFeatures]features
	xy features
	n  float64
}

func (s *samples) add(x *features, y, weight, part, keep float64) {
	for i := range x {
		for j := range x {
			s.xx[i][j] = keep*s.xx[i][j] + weight*x[i]*x[j]
		}
		s.xy[i] = keep*s.xy[i] + weight*x[i]*y
	}
	s.n = keep*s.n + part
}

// prior is what is assumed before anything is known: 5,000 tokens a second and 50 ms.
var prior = func() (s samples) {
	for _, p := range []struct {
		n int
		y float64
	}{{1, 0.05}, {1000, 0.25}, {8000, 1.65}} {
		x := featuresOf(p.n, p.n, 0)
		s.add(&x, p.y, 1/p.y, 1, 1)
	}
	for i := range s.xx {
		s.xx[i][i] += 0.01 // what was never seen is 0
	}
	s.n = 1
	return s
}()

// priorTheta are the least squares of prior.
var priorTheta = func() features {
	var s speed
	for range 100 {
		s.solve(&prior, 1)
	}
	return s.theta
}()

// speed is what was learned about one deployment, or about all of a model. Guarded by Router.mu.
type speed struct {
	seen          samples
	theta         features
	actual, hoped float64 // of late, in seconds of the least squares
	count         int
	at            time.Time // of the last sample
}

// begin gives a deployment what is known of the fleet.
func (s *speed) begin(fleet *speed) {
	if fleet.count == 0 {
		fleet.theta = priorTheta
	}
	if s.count == 0 {
		s.theta = fleet.theta
	}
}

// raw is what the least squares say.
func (s *speed) raw(x *features) float64 {
	sum := 0.0
	for i := range x {
		sum += s.theta[i] * x[i]
	}
	return max(sum, leastSeconds)
}

// of is how many seconds a prompt takes.
func (s *speed) of(now time.Time, x *features) float64 { return s.raw(x) * s.level(now) }

// level is how much slower the deployment is of late than the least squares say. Without news that is forgotten: who is not asked
// cannot show that it is well again.
func (s *speed) level(now time.Time) float64 {
	if s.hoped == 0 {
		return 1
	}
	ratio := min(max(s.actual/s.hoped, 0.1), 100)
	return math.Pow(ratio, math.Exp2(-max(now.Sub(s.at).Seconds(), 0)/levelHalfLife))
}

// learn takes what a prompt took.
func (s *speed) learn(now time.Time, fleet *speed, x *features, seconds float64, alone bool) {
	s.begin(fleet)
	expected := s.of(now, x)
	if s.count >= outlierAfter {
		seconds = min(seconds, outlier*max(expected, sampleFloor))
	}
	part := 1.0
	if !alone {
		part = besideOthers
	}
	weight := part / max(fleet.raw(x), sampleFloor)
	s.count++
	s.seen.add(x, seconds, weight, part, 1-part/speedMemory)
	fleet.count++
	fleet.seen.add(x, seconds, weight, part, 1-part/fleetMemory)
	keep := 1 - part/levelMemory
	fleet.solve(&prior, 1)
	if s.count == 1 {
		s.actual, s.hoped = levelPrior*expected, levelPrior*expected
	}
	s.actual, s.hoped, s.at = keep*s.actual+part*seconds, keep*s.hoped+part*s.raw(x), now
	s.solve(&fleet.seen, fleetCounts/max(fleet.seen.n, fleetCounts))
}

// solve makes the least squares anew: a sweep of coordinate descent, which begins where the last one ended.
func (s *speed) solve(other *samples, weight float64) {
	for i := range s.theta {
		xx := s.seen.xx[i][i] + weight*other.xx[i][i] + weight*prior.xx[i][i]/100
		xy := s.seen.xy[i] + weight*other.xy[i] + weight*prior.xy[i]/100
		if xx <= 0 {
			continue
		}
		for j := range s.theta {
			if j != i {
				xy -= (s.seen.xx[i][j] + weight*other.xx[i][j] + weight*prior.xx[i][j]/100) * s.theta[j]
			}
		}
		s.theta[i] = max(0, xy/xx)
	}
}
