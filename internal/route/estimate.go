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

// add takes one sample. The first replaces nothing; later ones weigh 1 − 2^(−age/halfLife).
func (e *estimate) add(now time.Time, seconds float64, t Tuning) {
	defer func() { e.at = now; e.samples++ }()
	if e.samples == 0 {
		e.seconds = seconds
		return
	}
	age := max(now.Sub(e.at), 0)
	w := 1 - math.Exp2(-float64(age)/float64(t.HalfLife))
	if age >= t.ColdAfter {
		w *= coldDiscount
	}
	e.seconds += w * (seconds - e.seconds)
}

// newcomerSeconds is the expected TTFT of a deployment without samples beside these ones.
func newcomerSeconds(nodes []*node, scratch []float64) float64 {
	known := scratch[:0]
	for _, n := range nodes {
		if n.ttft.samples > 0 {
			known = append(known, n.ttft.seconds)
		}
	}
	if len(known) == 0 {
		return unknownTTFT
	}
	slices.Sort(known)
	mid := len(known) / 2
	median := known[mid]
	if len(known)%2 == 0 {
		median = (known[mid-1] + known[mid]) / 2
	}
	return newcomerFactor * median
}

// What is assumed about a model before anything was learned.
const (
	priorOutputTokens  = 200 // tokens of an answer whose request names no limit
	priorBytesPerToken = 3.8 // English prose and code measure 3.6 to 4.1 bytes per token (o200k_base)
	statsMemory        = 100 // samples after which the running means become exponential
)

// modelStats is what was learned about one model over all its deployments. Guarded by Router.mu.
type modelStats struct {
	output        mean
	bytesPerToken mean
}

type mean struct {
	value float64
	n     int
}

func (m *mean) add(x float64) {
	if m.n < statsMemory {
		m.n++
	}
	m.value += (x - m.value) / float64(m.n)
}

// promptTokens estimates the prompt of a request from the bytes of its text.
func (s *modelStats) promptTokens(f *Facts) int {
	ratio := priorBytesPerToken
	if s.bytesPerToken.n > 0 {
		ratio = s.bytesPerToken.value
	}
	return int(math.Ceil(float64(f.PromptBytes) / ratio))
}

// outputTokens is what a request is expected to produce: its own limit, else the learned mean.
func (s *modelStats) outputTokens(f *Facts) int {
	switch {
	case f.MaxOutput > 0:
		return f.MaxOutput
	case s.output.n > 0:
		return int(math.Ceil(s.output.value))
	}
	return priorOutputTokens
}

// settle learns from the usage that an engine reported.
func (s *modelStats) settle(f *Facts, o *Outcome) {
	if !o.Reported {
		return
	}
	if o.OutputTokens > 0 && o.Verdict == Success {
		s.output.add(float64(o.OutputTokens))
	}
	if o.InputTokens > 0 && f.PromptBytes > 0 {
		// Templates and images add tokens without text: keep the ratio within what text can be.
		ratio := float64(f.PromptBytes) / float64(o.InputTokens)
		s.bytesPerToken.add(min(max(ratio, 0.5), 16))
	}
}
