package route

import (
	"slices"
	"time"
)

// Affinity keeps requests at deployments that have seen what came before them, as long as these are not much slower than others. It
// is a preference and never a veto. The zero value is none. Strategies that look at forecasts or keep to one deployment have no use for
// it (Foresighted, Steady).
type Affinity struct {
	Mode AffinityMode
	// SlowdownLimit is how many times slower, or busier, than the others a deployment may be that holds a whole prompt; of one that holds a
	// part, the same part of what is above 1. 0 = DefaultSlowdownLimit, else at least 1.
	SlowdownLimit float64
}

// AffinityMode says what keeps requests together.
type AffinityMode uint8

// The modes.
const (
	NoAffinity      AffinityMode = iota
	SessionAffinity              // what names their session (Facts.Session)
	PrefixAffinity               // that, else how their prompts begin
)

// DefaultSlowdownLimit is Affinity.SlowdownLimit where nobody says: what is found in a cache is worth that much.
const DefaultSlowdownLimit = 2.5

const (
	mostSessions  = 1 << 17 // that are remembered for a model; each takes 24 bytes
	sessionShare  = 0.5     // of a session's prompt that counts as held, if less of its text is: there may be more than text
	leastHeld     = 0.5     // of a prompt: less is not worth a choice
	slowerAtLeast = 0.05    // seconds to the first token: who is slower by less is not slow
	busierAtLeast = 2000    // tokens of work: who has less than that more is not busy, but has the one or two requests of the moment
)

// What a member is to a request.
const (
	noHome uint8 = iota
	atHome
	leftHome // and not well enough
)

const byAnswer = "answer" // Home.By

// Home is what a decision knew of where a request's session, or the beginning of its prompt, is.
type Home struct {
	By         string  // "session", "prefix", or "answer" if only who gave an answer can go on from it; "" = nothing was known
	Deployment string  // ID of where it is; of several that of the least slow one
	Share      float64 // of the prompt that is thought to be there
	Slowdown   float64 // how many times slower or busier than the others it was; 0 if it was not eligible
	Limit      float64 // up to which it is preferred
	Left       string  // why it was not preferred: "out", "slow", "busy"; "" = it was
}

// goOn cuts who could serve a request that goes on from an answer, but for the one that gave it, whatever the strategy: others know nothing of it.
// It reports whether it did.
func (r *Router) goOn(p *pool, q *Query) bool {
	n := p.stats.sessions.at(q.Facts.Previous)
	i := slices.IndexFunc(p.members, func(m member) bool { return n != nil && m.node == n })
	if i < 0 || r.verdicts[i].cut != CutNone {
		return false
	}
	r.home = Home{By: byAnswer, Deployment: p.members[i].dep.ID, Share: 1}
	r.verdicts[i].home = atHome
	r.cutOthers(p, CutAffinity, func(v *verdict) bool { return v.home == atHome })
	return true
}

// stay cuts who could serve a request but is not its home. Homes that are not well enough are cut instead, unless nobody else is left. It
// reports whether it kept the request.
func (r *Router) stay(now time.Time, p *pool, q *Query, prompt, output int) bool {
	r.home = Home{}
	if n := p.stats.sessions.at(q.Facts.Session); n != nil {
		if i := slices.IndexFunc(p.members, func(m member) bool { return m.node == n }); i >= 0 {
			r.home = Home{By: "session", Deployment: p.members[i].dep.ID, Left: "out"}
			if r.verdicts[i].cut == CutNone {
				return r.stayAt(now, p, q, prompt, output, func(j int) bool { return j == i })
			}
		}
	}
	if p.affinity.Mode != PrefixAffinity {
		return false
	}
	if r.turnBefore(p, q); len(q.matches) == 0 && r.past.at == nil {
		return false
	}
	common := p.commonText(q)
	longest := common
	for i := range r.verdicts {
		if r.verdicts[i].cut == CutNone {
			longest = max(longest, r.textAt(&p.members[i], q))
		}
	}
	if p.held(q, longest, common, prompt) < leastHeld {
		return false
	}
	out := r.home
	r.home = Home{By: "prefix"}
	kept := r.stayAt(now, p, q, prompt, output, func(i int) bool { return r.textAt(&p.members[i], q) == longest })
	if r.home.Deployment == "" {
		r.home = out
	}
	return kept
}

// blocks is how many blocks of a prompt a member is thought to have.
func (m *member) blocks(q *Query) int32 {
	if h := m.node.memory.holder; h < len(q.matches) {
		return q.matches[h].Blocks
	}
	return 0
}

// textAt is how many bytes of a prompt's text a member is thought to have.
func (r *Router) textAt(m *member, q *Query) float64 {
	blocks, t := m.blocks(q), &r.past.turn
	text := float64(blocks) * float64(q.Facts.PrefixBytes)
	if r.past.at == m.node && blocks >= t.Blocks {
		text = max(text, t.text(q.Facts.PrefixBytes)+float64(t.Answer))
	}
	return text
}

// commonText is how many bytes of a prompt's text are common.
func (p *pool) commonText(q *Query) float64 {
	return float64(p.common(q)) * float64(q.Facts.PrefixBytes)
}

// held is the part of a prompt that so many bytes of its text are, both without those that are common.
func (p *pool) held(q *Query, text, common float64, prompt int) float64 {
	perToken := p.stats.prefixPerToken(q.Facts, prompt)
	return min((text-common)/max(float64(prompt)*perToken-common, perToken), 1)
}

// stayAt is stay with homes that are known. r.home tells of the least slow one.
func (r *Router) stayAt(now time.Time, p *pool, q *Query, prompt, output int, at func(int) bool) bool {
	var work, weight float64
	left := 0
	for i := range r.verdicts {
		if r.verdicts[i].cut == CutNone {
			left++
			work += float64(p.members[i].node.work)
			weight += p.members[i].dep.Weight
		}
	}
	by, kept, gone, common := r.home.By, 0, 0, 0.0
	if by == "prefix" {
		common = p.commonText(q)
	}
	for i := range r.verdicts {
		m := &p.members[i]
		if r.verdicts[i].cut != CutNone || !at(i) {
			continue
		}
		h := Home{By: by, Deployment: m.dep.ID, Share: (1 - m.node.memory.doubt) * p.held(q, r.textAt(m, q), common, prompt)}
		if by == "prefix" && h.Share < leastHeld { // its cache does not keep what it is given
			continue
		}
		h.judge(p.affinity.SlowdownLimit)
		h.compare("slow", m.slower(now, p))
		own := float64(prompt + output)
		if others := weight - m.dep.Weight; left > 1 {
			mine := (float64(m.node.work) + own - h.Share*float64(prompt)) / m.dep.Weight
			if theirs := (work - float64(m.node.work) + float64(left-1)*own) / others; mine-theirs >= busierAtLeast {
				h.compare("busy", mine/theirs)
			}
		}
		if r.verdicts[i].home = atHome; h.Left != "" {
			r.verdicts[i].home = leftHome
			gone++
		} else {
			kept++
		}
		if r.home.Deployment == "" || r.home.Left == "out" || h.Slowdown/h.Limit < r.home.Slowdown/r.home.Limit {
			r.home = h
		}
	}
	switch {
	case kept == left && by == "prefix":
		r.home = Home{} // where all are alike nobody is at home
		return false
	case kept > 0:
		r.cutOthers(p, CutAffinity, func(v *verdict) bool { return v.home == atHome })
	case gone < left:
		r.cutOthers(p, CutLeft, func(v *verdict) bool { return v.home != leftHome })
	}
	return kept > 0 && kept < left
}

// cutOthers cuts who is eligible and not wanted.
func (r *Router) cutOthers(p *pool, reason Cut, wanted func(*verdict) bool) {
	for i := range r.verdicts {
		if v := &r.verdicts[i]; v.cut == CutNone && !wanted(v) {
			v.cut, v.by = reason, &p.members[i].node.unit
		}
	}
}

// judge sets the limit of a home by what it holds.
func (h *Home) judge(limit float64) {
	share := h.Share
	if h.By == "session" {
		share = max(share, sessionShare)
	}
	h.Limit = 1 + (limit-1)*share
}

// compare takes how many times slower than the others the home is in one respect.
func (h *Home) compare(respect string, slowdown float64) {
	if slowdown > h.Slowdown {
		h.Slowdown = slowdown
		if slowdown > h.Limit {
			h.Left = respect
		}
	}
}

// slower is how many times the others' median a member's expected time to the first token is, 0 if it is hardly more or not known.
func (m *member) slower(now time.Time, p *pool) float64 {
	if m.node.ttft.samples == 0 {
		return 0
	}
	others := p.othersTTFT(now, m.node)
	mine := m.node.ttft.expect(now, p.newcomerTTFT(now), p.tuning)
	if others == 0 || mine-others < slowerAtLeast {
		return 0
	}
	return mine / others
}

// othersTTFT is medianTTFT without a member that has one: of two, or where most are slow, the median is as slow as it is.
func (p *pool) othersTTFT(now time.Time, n *node) float64 {
	p.medianTTFT(now)
	known := p.fleet.scratch // sorted
	rest := len(known) - 1
	if rest <= 0 {
		return 0
	}
	at, _ := slices.BinarySearch(known, n.ttft.seconds)
	of := func(i int) float64 {
		if i >= min(at, rest) {
			i++
		}
		return known[i]
	}
	return (of((rest-1)/2) + of(rest/2)) / 2
}

// sessions remembers where each session was served last: at most mostSessions, of which those that were served longest ago give way. It
// is a table of small sets that doubles when one is full: a map of as many takes five times the memory. Guarded by Router.mu.
type sessions struct{ sets []sessionSet } // as many as a power of two

// sessionSet is where the sessions may be whose IDs, which are hashes, end alike.
type sessionSet [8]served

type served struct {
	id   uint64 // 0 = free
	node *node
	pick uint64 // Router.picks
}

const fewestSets = 16

func (s *sessions) set(id uint64) *sessionSet {
	if len(s.sets) == 0 {
		return nil
	}
	return &s.sets[id&uint64(len(s.sets)-1)]
}

// at returns where a session was served last, nil if that is not known.
func (s *sessions) at(id uint64) *node {
	if at := s.place(id); at != nil && id != 0 && at.id == id {
		return at.node
	}
	return nil
}

// served notes that a pick served the session. One that was made before the last that did says nothing new: it took long.
func (s *sessions) served(id uint64, n *node, pick uint64) {
	for {
		at := s.place(id)
		if at != nil && (at.id == 0 || at.id == id) || !s.grow() {
			if at.id != id || pick >= at.pick {
				*at = served{id, n, pick}
			}
			return
		}
	}
}

// place is where a session is, else where it may be put: at a free place, or at that of who was served longest ago.
func (s *sessions) place(id uint64) *served {
	set := s.set(id)
	if set == nil {
		return nil
	}
	oldest := &set[0]
	for i := range set {
		x := &set[i]
		if x.id == id || x.id == 0 { // places are taken in order
			return x
		}
		if x.pick < oldest.pick {
			oldest = x
		}
	}
	return oldest
}

// grow doubles the table, and reports false if it may not.
func (s *sessions) grow() bool {
	n := max(2*len(s.sets), fewestSets)
	if n*len(sessionSet{}) > mostSessions {
		return false
	}
	old := s.sets
	s.sets = make([]sessionSet, n)
	for i := range old {
		for _, v := range old[i] {
			if v.id != 0 {
				*s.place(v.id) = v // half of a set has room
			}
		}
	}
	return true
}
