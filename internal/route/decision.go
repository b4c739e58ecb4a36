package route

import (
	"slices"
	"time"
)

// Above fullRecord candidates a Decision keeps the chosen one and the bestKept best, and counts the rest.
const (
	fullRecord = 32
	bestKept   = 16
)

// Decision is one answer of the Router with its reasons and the numbers it used. Up to 32 candidates it
// can be recomputed from itself alone (see Recompute). It is immutable once returned.
type Decision struct {
	At       time.Time
	Epoch    uint64 // of the fleet
	Seed     uint64
	Draw     int
	Model    string
	Strategy string
	Chosen   string // ID of the deployment, "" if none
	Trial    bool   // it was chosen without the strategy, to see whether it is well again or as its part of the traffic until then
	Panic    bool   // so few were in use that breakers were passed over
	Eligible int    // how many candidates were eligible; they come first in Candidates
	RunTotal int64
	Outlook  Outlook
	Opening  uint64 // Round.Opening
	Home     Home
	Prompt   int // tokens the prompt was estimated at
	Output   int // tokens that room is kept for: the request's own limit, else the mean that was learned
	Answer   int // tokens that the answer is likely to have: that mean, as far as the limit lets it

	Candidates []Candidate // eligible ones in fleet order, then the cut ones
	Omitted    []CutCount  // candidates left out of Candidates, counted by reason ("" = eligible)
}

// CutCount counts candidates by the reason they were cut.
type CutCount struct {
	Cut   Cut
	Count int
}

// Recompute asks strategy for its choice from the record alone and returns the ID it chooses. It is exact
// for records that omit nothing.
func (d *Decision) Recompute(strategy Strategy, f *Facts) string {
	if d.Eligible == 0 || d.Trial {
		return d.Chosen
	}
	eligible := slices.Clone(d.Candidates[:min(d.Eligible, len(d.Candidates))])
	for i := range eligible {
		eligible[i].Terms, eligible[i].terms = [MaxTerms]Term{}, 0
	}
	facts := *f
	facts.Seed = d.Seed
	round := NewRound(d.At, &facts, d.Draw, eligible, d.RunTotal)
	round.Prompt, round.Output, round.Answer, round.Outlook = d.Prompt, d.Output, d.Answer, d.Outlook
	round.Opening = d.Opening
	return eligible[strategy.Pick(round)].ID
}

// CutCounts counts the candidates that were not eligible, by reason, in order of appearance.
func (d *Decision) CutCounts() []CutCount {
	var counts []CutCount
	add := func(c Cut, n int) {
		for i := range counts {
			if counts[i].Cut == c {
				counts[i].Count += n
				return
			}
		}
		counts = append(counts, CutCount{c, n})
	}
	for i := range d.Candidates {
		if c := d.Candidates[i].Cut; c != CutNone {
			add(c, 1)
		}
	}
	for _, o := range d.Omitted {
		if o.Cut != CutNone {
			add(o.Cut, o.Count)
		}
	}
	return counts
}

// record copies the candidates of a ranking into d: all of them, or the chosen one (-1 = none), then the best
// of the others, and a count of the rest. Those with a score come first, those who were cut last.
func (d *Decision) record(all []Candidate, eligible, chosen int) {
	d.Eligible = eligible
	if len(all) <= fullRecord {
		d.Candidates = append(d.Candidates, all...)
		return
	}
	var best [bestKept]standing // best first
	kept := 0
	for i := range all {
		if i == chosen {
			continue
		}
		c := standing{index: i}
		if all[i].Cut == CutNone {
			c.score, c.scored = all[i].Score()
		}
		at := kept
		for at > 0 && c.before(&best[at-1]) {
			at--
		}
		if kept == bestKept {
			if at == bestKept {
				d.omit(all[i].Cut)
				continue
			}
			d.omit(all[best[kept-1].index].Cut)
			kept--
		}
		copy(best[at+1:kept+1], best[at:kept])
		best[at] = c
		kept++
	}
	d.Candidates = slices.Grow(d.Candidates, bestKept+1)
	if chosen >= 0 {
		d.Candidates = append(d.Candidates, all[chosen])
	}
	for _, b := range best[:kept] {
		d.Candidates = append(d.Candidates, all[b.index])
	}
}

// standing is where a candidate stands among those that a record may keep.
type standing struct {
	index  int
	scored bool // those who were cut have no score
	score  float64
}

// before reports whether s belongs before o, which comes before it in the ranking, in the record.
func (s *standing) before(o *standing) bool {
	if s.scored != o.scored {
		return s.scored
	}
	return s.scored && s.score < o.score
}

func (d *Decision) omit(c Cut) {
	for i := range d.Omitted {
		if d.Omitted[i].Cut == c {
			d.Omitted[i].Count++
			return
		}
	}
	d.Omitted = append(d.Omitted, CutCount{c, 1})
}
