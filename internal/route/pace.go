package route

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

// sizeClasses and loadClasses are powers of four: of uncached prompt tokens from 64 on, and of requests in flight with the
// one at hand.
const (
	sizeClasses = 6 // up to 64, 256, 1024, 4096, 16384, and more
	loadClasses = 7 // no prompt ahead, up to 1024 tokens, 4096, ... 262144, more
)

func sizeClass(tokens int) int { return min(powersOfFour(tokens, 64), sizeClasses-1) }
func loadClass(others int) int {
	if others <= 0 {
		return 0
	}
	return min(1+powersOfFour(others, 1024), loadClasses-1)
}

// powersOfFour is how often first must be multiplied by four to reach n.
func powersOfFour(n, first int) int {
	q := (max(n, 1) - 1) / first
	return (bits.Len(uint(q)) + 1) / 2
}

// smallPrompt is the most tokens whose first token may be held against a limit in seconds: larger prompts take long
// because they are large.
const smallPrompt = 1000

// What is slow, in multiples of the yardstick (Health.TTFTThreshold for small requests, else a deployment's own usual
// time for that size and load).
const (
	slowOwn       = 3.0
	slowRow       = 10  // so many answers in a row that are slow by its own usual time make it so: some of those that only wait long are quick
	lateRow       = 3   // and so many above a limit in seconds
	calmThreshold = 0.8 // below this part of the threshold all is well again
	calmOwn       = 0.5 // and below this part of slowOwn
	slowHalfLife  = 10 * time.Second
	slowest       = 10.0  // times the yardstick; the share is the smallest then, and more would only take longer to forget
	mostWeight    = 0.5   // of one answer
	mostStrain    = 100.0 // times its own usual time
)

// slowness is how a deployment's first tokens come, held against its yardstick. The zero value is as usual.
type slowness struct {
	own, threshold gauge
	strain         gauge // multiples of its own usual time, whatever others take
	down           int   // answers in a row above Health.TTFTOpen
}

// gauge is an exponentially weighted mean of ratios to a limit, with hysteresis.
type gauge struct {
	ratio float64
	at    time.Time
	row   int // ratios above 1 in a row
	slow  bool
}

func (g *gauge) add(now time.Time, ratio, calm float64, row int) {
	w := mostWeight
	if !g.at.IsZero() {
		w = min(w, 1-math.Exp2(-float64(max(now.Sub(g.at), 0))/float64(slowHalfLife)))
	}
	g.ratio += w * (ratio - g.ratio)
	g.at = now
	if ratio > 1 {
		g.row++
	} else {
		g.row = 0
	}
	switch {
	case g.ratio > 1 && g.row >= row:
		g.slow = true
	case g.ratio < calm:
		g.slow = false
	}
}

// share is the part of its traffic that a deployment gets for how slow it is: the square of how fast it still is, so that
// one that is ten times slower gets a hundredth.
func (s *slowness) share() float64 {
	share := 1.0
	if s.own.slow {
		share = min(share, square(1/(slowOwn*s.own.ratio)))
	}
	if s.threshold.slow {
		share = min(share, square(1/s.threshold.ratio))
	}
	return min(1, max(smallestShare, share))
}

func square(x float64) float64 { return x * x }

// judge holds a time to first token against the yardsticks. usual is what the deployment takes for this size and load in
// seconds, 0 if that is not known. It reports whether the deployment is as good as down.
func (s *slowness) judge(now time.Time, h *Health, seconds, usual, strain float64, uncached int) (down bool) {
	small := uncached <= smallPrompt
	late := seconds > h.TTFTOpen.Seconds()
	switch {
	case small && h.TTFTThreshold > 0:
		s.threshold.add(now, min(seconds/h.TTFTThreshold.Seconds(), slowest), calmThreshold, lateRow)
	case usual > 0:
		s.strain.add(now, min(seconds/usual, mostStrain), 0, slowRow)
		s.own.add(now, min(seconds/(usual*strain), slowest)/slowOwn, calmOwn, slowRow)
		late = late && (small || seconds > slowOwn*usual)
	default:
		late = late && small
	}
	if !late {
		s.down = 0
		return false
	}
	s.down++
	return s.down >= lateRow
}

// pace is what a deployment usually takes to its first token, in seconds, by size and load.
type pace [sizeClasses][loadClasses]usual

type usual struct {
	seconds float64
	n       int
	row     int // outliers in a row
	at      time.Time
}

const (
	paceMemory   = 100              // answers after which the mean becomes exponential
	paceBorrowed = 20               // answers that what another load took counts as, and the least that one outlier is held against
	paceOutlier  = 2.0              // multiples of the mean that make an outlier
	paceOutliers = 2                // so many in a row are part of what is usual; more say something about now
	paceHalfLife = 10 * time.Minute // in which those become usual
	paceMostStep = 0.1              // the most that one of them counts
)

// of returns what is usual, 0 if that is not known: for this load, else for the nearest that was seen.
func (p *pace) of(uncached, others int) float64 {
	return p.nearest(uncached, others).seconds
}

func (p *pace) nearest(uncached, others int) usual {
	row := &p[sizeClass(uncached)]
	load := loadClass(others)
	for l := load; l >= 0; l-- {
		if row[l].n > 0 {
			return row[l]
		}
	}
	for l := load + 1; l < loadClasses; l++ {
		if row[l].n > 0 {
			return row[l]
		}
	}
	return usual{}
}

func (p *pace) add(now time.Time, seconds float64, uncached, others int) {
	u := &p[sizeClass(uncached)][loadClass(others)]
	if u.n == 0 { // who is slow has more in flight than ever: what that takes is held against what less took
		*u = p.nearest(uncached, others)
		u.n = min(u.n, paceBorrowed)
	}
	u.n = min(u.n+1, paceMemory)
	w := 1 / float64(u.n)
	if u.n == 1 || seconds <= paceOutlier*u.seconds {
		u.row = 0
	} else if u.row++; u.row <= paceOutliers {
		w = min(w, 1.0/paceBorrowed)
	} else {
		w = min(paceMostStep, 1-math.Exp2(-float64(max(now.Sub(u.at), 0))/float64(paceHalfLife)))
	}
	u.seconds += w * (seconds - u.seconds)
	u.at = now
}

// recent keeps the last times to first token, in seconds, and their 95th percentile.
type recent struct {
	seconds []float32 // a ring once it is full
	next    int
	p95     float64
	stale   bool
	at      time.Time // when p95 was computed
}

const (
	recentKept    = 100
	recentLeast   = 20 // with fewer, a 95th percentile is only the largest
	recentRenewal = 250 * time.Millisecond
)

func (r *recent) add(seconds float64) {
	if len(r.seconds) < recentKept {
		r.seconds = append(r.seconds, float32(seconds))
	} else {
		r.seconds[r.next] = float32(seconds)
		r.next = (r.next + 1) % recentKept
	}
	r.stale = true
}

// quantile returns the 95th percentile, 0 if least values are not there yet. It is computed anew at most every
// recentRenewal.
func (r *recent) quantile(now time.Time, least int) float64 {
	if len(r.seconds) < least {
		return 0
	}
	if r.stale && (r.p95 == 0 || now.Sub(r.at) >= recentRenewal) {
		r.p95 = float64(percentile95(r.seconds))
		r.stale, r.at = false, now
	}
	return r.p95
}

// percentile95 returns the 95th percentile of up to recentKept values. The few above it are all that it sorts.
func percentile95(values []float32) float32 {
	var largest [recentKept - (recentKept*95-1)/100]float32 // descending
	n := len(values) - (len(values)*95-1)/100
	kept := 0
	for _, x := range values {
		at := kept
		for at > 0 && x > largest[at-1] {
			at--
		}
		if at == n {
			continue
		}
		kept = min(kept+1, n)
		copy(largest[at+1:kept], largest[at:])
		largest[at] = x
	}
	return largest[n-1]
}

// strain is what a pool's deployments take to the first token, in multiples of what is usual for each: the median, and 1 at least.
type strain struct {
	value   float64
	at      time.Time
	scratch []float64
}

// strainMemory is how long what a deployment took says something about now.
const strainMemory = time.Minute

// strained returns the pool's strain, computed anew at most every medianAge. When all take longer than usual, it is the load.
func (p *pool) strained(now time.Time) float64 {
	s := &p.strain
	if age := now.Sub(s.at); s.value > 0 && age >= 0 && age < medianAge {
		return s.value
	}
	known := s.scratch[:0]
	for i := range p.members {
		ratio := 1.0
		if g := &p.members[i].node.breaker.slow.strain; !g.at.IsZero() && now.Sub(g.at) < strainMemory {
			ratio = g.ratio
		}
		known = append(known, ratio)
	}
	s.scratch, s.at, s.value = known, now, 1
	if n := len(known); n > 1 { // one alone has nobody to be held against
		slices.Sort(known)
		s.value = max(1, known[(n-1)/2]) // of two the lower one: the other may be ill
	}
	return s.value
}
