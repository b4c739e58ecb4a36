package route

import (
	"math"
	"slices"
	"time"
)

const (
	// coldDiscount scales the weight of a sample that came after a long silence: it carries the cost of
	// connecting or of loading a model, which the next request does not pay.
	coldDiscount = 0.25
	// newcomerFactor makes a deployment without samples look a little worse than the fleet's median, so
	// that it is tried but does not attract everything.
	newcomerFactor = 1.2
	// unknownTTFT stands in where nothing is known about any deployment, in seconds. Only ratios matter then.
	unknownTTFT = 1.0
)

// estimate is an exponentially weighted mean that forgets with time, not per sample: a busy deployment
// does not forget faster than an idle one (Eckner's form for irregular samples).
type estimate struct {
	seconds float64
	at      time.Time
	samples int
}

// weight is how much the old value still counts: half after each half-life without news.
func (e *estimate) weight(now time.Time, halfLife time.Duration) float64 {
	if e.samples == 0 {
		return 0
	}
	return math.Exp2(-float64(max(now.Sub(e.at), 0)) / float64(halfLife))
}

// expect is what to expect now. Whatever the old value no longer says is taken from newcomer, so that one
// bad sample does not keep a deployment from ever being tried again.
func (e *estimate) expect(now time.Time, newcomer float64, t Tuning) float64 {
	return newcomer + e.weight(now, t.HalfLife)*(e.seconds-newcomer)
}

// add takes one sample. fleet is the fleet's median, 0 if nothing is known. Of a cold sample only
// coldDiscount counts, and the fleet stands in for the rest.
func (e *estimate) add(now time.Time, seconds, fleet float64, t Tuning) {
	switch {
	case fleet == 0: // nothing to hold it against
	case e.samples == 0:
		seconds = coldDiscount*seconds + (1-coldDiscount)*newcomerFactor*fleet
	case now.Sub(e.at) >= t.ColdAfter:
		seconds = coldDiscount*seconds + (1-coldDiscount)*fleet
	}
	w := e.weight(now, t.HalfLife)
	e.seconds = w*e.seconds + (1-w)*seconds
	if now.After(e.at) {
		e.at = now
	}
	e.samples++
}

// fleetMedian is the median of the members' learned TTFTs. Sorting a thousand of them for every pick would
// cost more than the pick, so it is kept for medianAge.
type fleetMedian struct {
	seconds float64 // 0 = nothing known
	at      time.Time
	scratch []float64
}

const medianAge = 250 * time.Millisecond

// medianTTFT is the median of the members heard of within cold_after; of all if there are none; 0 if nothing
// is known at all.
func (p *pool) medianTTFT(now time.Time) float64 {
	f := &p.fleet
	if age := now.Sub(f.at); f.seconds > 0 && age >= 0 && age < medianAge {
		return f.seconds
	}
	known := f.scratch[:0]
	for _, warm := range [...]bool{true, false} {
		for i := range p.members {
			e := &p.members[i].node.ttft
			if e.samples > 0 && (!warm || now.Sub(e.at) < p.tuning.ColdAfter) {
				known = append(known, e.seconds)
			}
		}
		if len(known) > 0 {
			break
		}
	}
	f.scratch, f.at, f.seconds = known, now, median(known)
	return f.seconds
}

// newcomerTTFT is what to expect, in seconds, of a deployment without samples.
func (p *pool) newcomerTTFT(now time.Time) float64 {
	if m := p.medianTTFT(now); m > 0 {
		return newcomerFactor * m
	}
	return unknownTTFT
}

// median sorts values and returns their median, 0 if there are none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// What is assumed about a model before anything was learned.
const (
	priorOutputTokens  = 200 // tokens of an answer whose request names no limit
	priorBytesPerToken = 3.8 // English prose and code measure 3.6 to 4.1 bytes per token (o200k_base)
	longAnswer         = 32 << 10
	tooLong            = 10  // an answer beyond longAnswer counts for this many times the mean at most: one false report must not make all wait for room
	statsMemory        = 100 // samples after which the running means become exponential
)

// mostTokens bounds every count of tokens that a client or an engine names. It is more than any context
// window, and keeps sums of what may be in flight from overflowing.
const mostTokens = 1 << 24

func bounded(tokens int) int { return min(max(tokens, 0), mostTokens) }

// modelStats is what was learned about one model over all its deployments. Guarded by Router.mu.
type modelStats struct {
	output        mean
	bytesPerToken mean
	speeds        [sizeClasses]recent // times to first token by size
	overload      overload
	speed         speed // of all, as in node
	decode        speed
	outlook       outlook
	held          heldLine
	sessions      sessions // by Facts.Session
	begun         uint32   // first prompts of conversations so far
	ends          sessions // by Turns.End
}

type mean struct {
	value float64
	n     int
}

func (m *mean) add(x float64) { m.addOf(x, statsMemory) }

// addOf adds x to the mean of about the last so many.
func (m *mean) addOf(x float64, memory int) {
	m.n = min(m.n+1, memory)
	m.value += (x - m.value) / float64(m.n)
}

// promptTokens estimates the prompt of a request from the bytes of its text.
func (s *modelStats) promptTokens(f *Facts) int {
	return bounded(int(math.Ceil(float64(f.PromptBytes) / s.textPerToken())))
}

// textPerToken is how many bytes of text a token of a prompt is.
func (s *modelStats) textPerToken() float64 {
	if s.bytesPerToken.n > 0 {
		return s.bytesPerToken.value
	}
	return priorBytesPerToken
}

// prefixPerToken is how many bytes of the text that Facts.Prefix stands for a token of a prompt of so many is. There is less of it than
// textPerToken tells of: names of members and brackets do not count.
func (s *modelStats) prefixPerToken(f *Facts, prompt int) float64 {
	if f.Turns.Text > 0 && prompt > 0 {
		return float64(f.Turns.Text) / float64(prompt)
	}
	return s.textPerToken()
}

// outputTokens is what a request is expected to produce: its own limit, else the learned mean.
func (s *modelStats) outputTokens(f *Facts) int {
	switch {
	case f.MaxOutput > 0:
		return bounded(f.MaxOutput)
	case s.output.n > 0:
		return int(math.Ceil(s.output.value))
	}
	return priorOutputTokens
}

// answerTokens is what a request is likely to produce: the learned mean, as far as its own limit lets it. Room is kept for outputTokens,
// but hardly any answer is as long as its limit.
func (s *modelStats) answerTokens(f *Facts) int {
	likely := priorOutputTokens
	if s.output.n > 0 {
		likely = int(math.Ceil(s.output.value))
	}
	if f.MaxOutput > 0 {
		likely = min(likely, f.MaxOutput)
	}
	return likely
}

// settle learns from the usage that an engine reported.
func (s *modelStats) settle(f *Facts, o *Outcome) {
	if !o.Reported {
		return
	}
	if o.OutputTokens > 0 && o.Verdict == Success {
		s.output.add(min(float64(bounded(o.OutputTokens)), max(longAnswer, tooLong*s.output.value)))
	}
	if o.InputTokens > 0 && f.PromptBytes > 0 {
		// Templates and images add tokens without text: keep the ratio within what text can be.
		ratio := float64(f.PromptBytes) / float64(o.InputTokens)
		s.bytesPerToken.add(min(max(ratio, 0.5), 16))
	}
}
