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
// fleet's standing in for what a deployment has not shown yet, and what is assumed, as fast as the fleet is, for what nobody has. What a
// token of an answer takes is learned in the same way, as θ0 + θ1·B.
const (
	speedFeatures = 4
	speedChunk    = 4096 // tokens of a step
	speedMemory   = 300  // samples of one deployment after which old ones have faded
	fleetMemory   = 2000
	levelMemory   = 20  // samples after which all is faster or slower than the least squares say
	levelPrior    = 4   // samples that say it is as before
	levelHalfLife = 20  // seconds without news
	seenHalfLife  = 30  // seconds without news, after which a deployment's samples count half against the fleet's
	newsEvery     = 5   // seconds: who is asked as often forgets nothing
	besideOthers  = 0.1 // weight of a prompt that was not alone: engines batch, so that it looks cheaper the longer the line is
	sampleFloor   = 0.02
	outlierAfter  = 30  // samples
	outlier       = 8.0 // times what was expected: counts as that
	leastSeconds  = 1e-4
	scaleMemory   = 100
	refreshAfter  = 50 // samples of the fleet after which a deployment's least squares are made anew
	sweeps        = 4  // of coordinate descent for each sample
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

// law is what is assumed before anything is known: a few samples.
type law struct {
	samples
	theta features // their least squares
	fleet float64  // samples that the fleet's count as, for each deployment
}

type example struct {
	features
	seconds float64
}

func assume(fleet float64, examples ...example) *law {
	l := law{fleet: fleet}
	for _, e := range examples {
		l.add(&e.features, e.seconds, 1/e.seconds, 1, 1)
	}
	for i := range l.xx {
		l.xx[i][i] += 0.01 // what was never seen is 0
	}
	var s speed
	for range 100 {
		s.solve(&l, 1, &s.seen, 0, 1)
	}
	l.theta = s.theta
	return &l
}

var (
	// prefill is of a prompt: 5,000 tokens a second and 50 ms. Prompts of all sizes are needed to know a deployment.
	prefill = assume(300, example{featuresOf(1, 1, 0), 0.05}, example{featuresOf(1000, 1000, 0), 0.25}, example{featuresOf(8000, 8000, 0), 1.65})
	// decode is of a token of an answer: 20 ms, and twice that beside 60 others.
	decode = assume(10, example{beside(0), 0.02}, example{beside(60), 0.04})
)

// beside are the features of a token of an answer, while so many other requests run.
func beside(others int) features { return features{1, float64(others) / 10} }

// slope is by how many seconds one more request beside it makes a token's time longer.
func (f *features) slope() float64 { return f[1] / 10 }

// speed is what was learned about one deployment, or about all of a model, which begins with what a law assumes. Guarded by Router.mu.
type speed struct {
	seen          samples
	theta         features
	actual, hoped float64 // of late, in seconds of the least squares
	count         int
	last          int       // of a deployment: the fleet's count when it was heard of last
	known         int       // of a deployment: the fleet's count when its theta was made
	scale         mean      // of a fleet: the logarithm of what was seen over what is assumed
	at            time.Time // of the last sample
	lately        struct {  // level at a time, which is asked for again and again
		now   time.Time
		level float64
	}
}

// begin gives a deployment what is known of the fleet.
func (s *speed) begin(now time.Time, l *law, fleet *speed) {
	if fleet.count == 0 {
		fleet.theta = l.theta
	}
	switch {
	case s.count == 0:
		s.theta = fleet.theta
	case fleet.count-s.known > min(refreshAfter, fleet.count/4): // of who is hardly ever asked, it knows more by now
		s.follow(now, l, fleet)
	}
}

// follow makes the least squares of a deployment anew, with what the fleet knows now.
func (s *speed) follow(now time.Time, l *law, fleet *speed) {
	s.known = fleet.count
	own := 1.0
	if fleet.count-s.last >= refreshAfter { // else who was slow once would not be asked again
		own = math.Exp2(-max(now.Sub(s.at).Seconds()-newsEvery, 0) / seenHalfLife)
	}
	s.solve(l, own, &fleet.seen, l.fleet/max(fleet.seen.n, l.fleet), fleet.scaled())
}

// scaled is how much slower than assumed a fleet is.
func (s *speed) scaled() float64 {
	return math.Exp(s.scale.value * float64(s.scale.n) / float64(s.scale.n+1))
}

// raw is what the least squares say.
func (s *speed) raw(x *features) float64 { return s.theta.times(x) }

func (f *features) times(x *features) float64 {
	sum := 0.0
	for i := range x {
		sum += f[i] * x[i]
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
	if now != s.lately.now {
		ratio := min(max(s.actual/s.hoped, 0.1), 100)
		s.lately.now, s.lately.level = now, math.Pow(ratio, math.Exp2(-max(now.Sub(s.at).Seconds(), 0)/levelHalfLife))
	}
	return s.lately.level
}

// learn takes what a prompt took.
func (s *speed) learn(now time.Time, l *law, fleet *speed, x *features, seconds float64, alone bool) {
	s.fade(now, fleet)
	s.begin(now, l, fleet)
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
	fleet.scale.addOf(math.Log(seconds/l.theta.times(x)), scaleMemory)
	fleet.solve(l, 1, &fleet.seen, 0, fleet.scaled())
	if s.count == 1 {
		s.actual, s.hoped = levelPrior*expected, levelPrior*expected
	}
	s.actual, s.hoped, s.at = keep*s.actual+part*seconds, keep*s.hoped+part*s.raw(x), now
	s.lately.now = time.Time{}
	s.follow(now, l, fleet)
}

// fade forgets what is old once news comes: without that, one answer from who was slow long ago would make all of it true again.
// Where all are asked rarely, nothing is.
func (s *speed) fade(now time.Time, fleet *speed) {
	asked := fleet.count - s.last
	s.last = fleet.count + 1
	age := now.Sub(s.at).Seconds() - newsEvery
	if s.count == 0 || age <= 0 || asked < refreshAfter {
		return
	}
	if s.hoped > 0 {
		keep := math.Exp2(-age / levelHalfLife)
		ratio := s.level(now)
		s.hoped *= keep
		s.actual = ratio * s.hoped
	}
	keep := math.Exp2(-age / seenHalfLife)
	for i := range s.seen.xx {
		for j := range s.seen.xx[i] {
			s.seen.xx[i][j] *= keep
		}
		s.seen.xy[i] *= keep
	}
	s.seen.n *= keep
}

// solve makes the least squares anew, of its samples and those of the others, each with a weight, and those of the law, whose seconds are
// scaled: sweeps of coordinate descent, which begin where the last ones ended.
func (s *speed) solve(l *law, own float64, other *samples, weight, scale float64) {
	for range sweeps {
		for i := range s.theta {
			xy := own*s.seen.xy[i] + weight*other.xy[i] + scale*l.xy[i]
			for j := range s.theta {
				if j != i {
					xy -= (own*s.seen.xx[i][j] + weight*other.xx[i][j] + l.xx[i][j]) * s.theta[j]
				}
			}
			s.theta[i] = max(0, xy/(own*s.seen.xx[i][i]+weight*other.xx[i][i]+l.xx[i][i]))
		}
	}
}
