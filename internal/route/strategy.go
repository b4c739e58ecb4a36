package route

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"time"
)

// Strategy ranks eligible candidates. Pick returns an index into Round.Candidates, which is never empty.
// It must not keep or change state: everything that a choice may depend on is in the Round, so that the
// same Round gives the same answer. It runs under the Router's mutex and must not block.
type Strategy interface {
	Pick(*Round) int
}

// Tuner is implemented by strategies that set time constants of the learned speeds.
type Tuner interface {
	Tuning() Tuning
}

// Foresighted is implemented by strategies that look at Candidate.Forecast, which is empty for the others.
type Foresighted interface {
	Foresees() bool
}

// Steady is implemented by strategies that keep to one deployment while it is in use: slow starts and degraded
// deployments do not divert a part of the requests from it.
type Steady interface {
	Steady() bool
}

// Exact is implemented by strategies that promise exact shares of requests, which an Affinity would break.
type Exact interface {
	Exact() bool
}

// Candidate is one deployment as a decision saw it.
type Candidate struct {
	ID       string
	Weight   float64
	InFlight int           // requests running there for us
	Tokens   int           // tokens reserved there
	Work     int           // outstanding token work
	TTFT     float64       // expected seconds to the first token; a newcomer's is derived from the fleet's
	P95      float64       // seconds to the first token, 95th percentile of the last 100 streamed successes, 0 = not known
	Penalty  float64       // failures of late, in requests: they count as load
	Share    float64       // part of its usual traffic that it is to get, 1 = all
	Healthy  time.Duration // since it was out last; Always if it never was
	Samples  int           // how many answers TTFT rests on
	LastPick uint64        // ordinal of the pick that last chose it for this model, 0 = never
	RunPicks int64         // times chosen while the same set of candidates was eligible
	Forecast Forecast
	Cut      Cut           // why it was not eligible, "" if it was
	CutBy    string        // the scope that caused the cut, "" if the deployment itself
	Until    time.Duration // for a cut that ends by time alone: how long from the decision
	Terms    [MaxTerms]Term
	terms    int
}

// Term is one part of a candidate's score. Lower totals are better; names carry the unit.
type Term struct {
	Name  string
	Value float64
}

// Always is the time for which a deployment that was never out is healthy.
const Always = time.Duration(math.MaxInt64)

// MaxTerms is the most terms one strategy may note per candidate.
const MaxTerms = 7

// Score is the sum of the terms, and whether there are any.
func (c *Candidate) Score() (float64, bool) {
	var sum float64
	for _, t := range c.Terms[:c.terms] {
		sum += t.Value
	}
	return sum, c.terms > 0
}

// Noted returns the terms in the order they were noted.
func (c *Candidate) Noted() []Term { return c.Terms[:c.terms] }

// Cut is the reason why a deployment was not eligible.
type Cut string

// The reasons. They are part of the interface: explain prints them.
const (
	CutNone     Cut = ""
	CutWeight   Cut = "weight_0"       // its weight is 0
	CutPinned   Cut = "not_pinned"     // the request names another one
	CutExcluded Cut = "excluded"       // the request excludes it
	CutTried    Cut = "already_tried"  // an earlier attempt of this request went there
	CutDrained  Cut = "drained"        // by order: nothing new
	CutDisabled Cut = "disabled"       // by order
	CutOpen     Cut = "open"           // its breaker is open
	CutCooling  Cut = "cooling"        // upstream asked to be left alone for a while
	CutTrial    Cut = "trial_running"  // its breaker lets one trial through, which is running
	CutInFlight Cut = "limit_inflight" // as many requests as its limit allows
	CutTokens   Cut = "limit_tokens"   // as many tokens as its limit allows
	CutQuota    Cut = "quota"          // as many requests or tokens per minute as its limit allows
	CutEarlier  Cut = "queued_before"  // the next room there belongs to a request that waits longer

	// Of those that are used only if nobody else is left.
	CutDomain    Cut = "same_failure_domain" // an earlier attempt failed in the same failure domain
	CutOnTrial   Cut = "on_trial"            // it may be ill yet, and this request has failed once already
	CutDegraded  Cut = "degraded"            // it gets a part of its traffic, and this request is not of it
	CutSlowStart Cut = "slow_start"          // it is just back, and gets a growing part of its traffic
	CutAffinity  Cut = "affinity"            // what the request continues is elsewhere
	CutLeft      Cut = "affinity_left"       // what the request continues is there, but it is too slow or busy
)

// capacity reports whether the cut ends when a running request ends, or soon by time alone: waiting helps.
func (c Cut) capacity() bool {
	return c == CutInFlight || c == CutTokens || c == CutEarlier || c == CutQuota
}

// Round is one ranking.
type Round struct {
	Now        time.Time
	Facts      *Facts
	Candidates []Candidate // the eligible ones, in fleet order
	RunTotal   int64       // sum of their RunPicks; 0 = no pick of this set is remembered
	Prompt     int         // tokens of the request, as estimated
	Output     int         // tokens that are kept for its answer
	Answer     int         // tokens that its answer is likely to have, at most Output
	Outlook    Outlook
	Opening    uint64 // of the conversation, by which equals are in order (Near); 0 = it is none, or one that was asked before
	pcg        rand.PCG
}

// NewRound prepares a ranking; seed and draw determine its random numbers.
func NewRound(now time.Time, f *Facts, draw int, eligible []Candidate, runTotal int64) *Round {
	r := &Round{Now: now, Facts: f, Candidates: eligible, RunTotal: runTotal}
	r.pcg.Seed(f.Seed, uint64(draw))
	return r
}

// IntN returns a seeded random number in [0, n). n must be positive.
func (r *Round) IntN(n int) int {
	if n <= 0 {
		panic("BUG: route: IntN of a number that is not positive")
	}
	// Multiply-shift (Lemire); its bias of n/2^64 is far below anything observable here.
	hi, _ := bits.Mul64(r.pcg.Uint64(), uint64(n))
	return int(hi)
}

// Float64 returns a seeded random number in [0, 1).
func (r *Round) Float64() float64 {
	return float64(r.pcg.Uint64()>>11) / (1 << 53)
}

// Note records one term of candidate i's score, for explain.
func (r *Round) Note(i int, term string, value float64) {
	c := &r.Candidates[i]
	if c.terms < MaxTerms {
		c.Terms[c.terms] = Term{term, value}
		c.terms++
	}
}

// Lowest returns the candidate with the lowest score. Ties are broken at random (seeded) in proportion to weight, never by
// position. score notes its terms itself.
func (r *Round) Lowest(score func(i int) float64) int {
	best, lowest, tied := -1, 0.0, 0.0
	for i := range r.Candidates {
		c, s := &r.Candidates[i], score(i)
		switch {
		case best < 0 || s < lowest:
			best, lowest, tied = i, s, c.Weight
		case s == lowest:
			// Reservoir sampling: of those tied so far, each is kept with a probability that is its share of weight.
			if tied += c.Weight; r.Float64()*tied < c.Weight {
				best = i
			}
		}
	}
	return best
}
