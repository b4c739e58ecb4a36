package route

import "math"

// Where the turns before a request's were served. The last deployment to serve one has all of its prompt in its cache, to the byte, and
// the answer that it gave. A turn that was served nowhere here was served through another balancer: all that do not see each other put
// the turns of a conversation into one order of deployments, as far as nothing speaks against it, so that it is not hard to guess where.

// guessPrior is the share of what is guessed to be in a cache that is found there, before engines have told.
const guessPrior = 0.5

// past is what is known of the turns before a request's.
type past struct {
	turn  Turn  // the last one of which it is known where it was served, zero = none
	at    *node // where that was
	guess *node // where the last one may have been, nil = it is known, or there was none
}

// turnBefore looks up where the last turn before a request's was served.
func (r *Router) turnBefore(p *pool, q *Query) {
	r.past = past{}
	for _, t := range q.Facts.Turns.Past {
		if n := p.stats.ends.at(t.Hash); n != nil {
			r.past.turn, r.past.at = t, n
			return
		}
	}
}

// remembered does so, and guesses where it is not known, among those who are eligible.
func (r *Router) remembered(p *pool, q *Query) {
	t := &q.Facts.Turns
	if r.turnBefore(p, q); !t.stranger(p) {
		return
	}
	most := 0.0
	for _, m := range r.eligible {
		if x := rendezvous(t.Opening, m.dep.ID, m.dep.Weight); r.past.guess == nil || x > most {
			r.past.guess, most = m.node, x
		}
	}
}

// stranger reports whether there was a turn before that was served nowhere here.
func (t *Turns) stranger(p *pool) bool {
	return t.Past[0].Hash != 0 && p.stats.ends.at(t.Past[0].Hash) == nil
}

// text is how much text stands before the answer.
func (t *Turn) text(blockBytes int) float64 {
	return float64(t.Blocks)*float64(blockBytes) + float64(t.Rest)
}

// recall says what the cache of a deployment is likely to hold of a prompt.
func (c *charge) recall(r *Router, p *pool, m *member, q *Query) {
	most, perToken := float64(max(c.prompt-1, 0)), p.stats.prefixPerToken(q.Facts, c.prompt) // an engine always computes the last token
	memory, past := &m.node.memory, &r.past
	blocks := int32(0)
	if h := memory.holder; h < len(q.matches) {
		found := &q.matches[h]
		blocks = found.Blocks
		c.blocks = min(float64(blocks)*c.blockTokens, most)
		if q.Facts.Turns.End == 0 { // else it is known what is an answer
			c.answer = min(float64(found.Answer), most-c.blocks)
		}
	}
	if past.at == m.node {
		text := past.turn.text(q.Facts.PrefixBytes)
		c.once = min((text+float64(past.turn.Answer))/perToken, most)
		if blocks >= past.turn.Blocks {
			c.blocks = max(c.blocks, min(text/perToken, most))
			c.answer = max(c.once-c.blocks, 0)
		}
	}
	again := answerPrior
	if a := &p.stats.outlook.answers; a.n > 0 {
		again = a.value
	}
	cached := (1 - memory.doubt) * (c.blocks + again*c.answer)
	if past.guess == m.node {
		last := &q.Facts.Turns.Past[0]
		c.guess = min((last.text(q.Facts.PrefixBytes)+float64(last.Answer))/perToken, most)
		found := guessPrior
		if g := &p.stats.outlook.guesses; g.n > 0 {
			found = g.value
		}
		cached = max(cached, found*c.guess)
	}
	c.Cached = int(cached)
}

// tookIn learns how much of what caches take in they had before, from a prompt of which so many tokens were cached. What is computed anew because
// another was chosen was not pushed out.
func (o *outlook) tookIn(c *charge, prompt int, cached float64, deployments int) {
	computed, lost := max(float64(prompt)-cached, 0), c.lost
	if c.once > 0 {
		lost = max(c.once-cached, 0)
	}
	o.computed.addOf(computed, outlookSpan*deployments)
	o.again.addOf(min(lost, computed), outlookSpan*deployments)
}

// guessed learns from so many tokens that an engine found whether what was guessed is true.
func (o *outlook) guessed(c *charge, cached float64) {
	if c.guess > c.blocks+c.blockTokens { // else it says nothing
		o.guesses.addOf(min(max(cached-c.blocks, 0)/(c.guess-c.blocks), 1), doubtMemory)
	}
}

// keepEnd notes that a prompt is here, for the turn after it.
func (l *Lease) keepEnd() {
	if end := l.facts.Turns.End; end != 0 {
		l.pool.stats.ends.served(end, l.node, l.pick)
	}
}

// rendezvous is the place of a deployment in the order for a conversation: the highest goes first. Everybody who knows both gets the same,
// and of all conversations each deployment has its part by weight.
func rendezvous(opening uint64, id string, weight float64) float64 {
	h := opening
	for i := range len(id) { // FNV-1a, and the finaliser of SplitMix64
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	return -weight / math.Log((float64(h>>11)+0.5)/(1<<53))
}

// opening is what puts equals in order; 0 if this very prompt came before: who asks the same again and again is no conversation, and would
// always be sent to the same one.
func (t *Turns) opening(p *pool) uint64 {
	if p.stats.ends.at(t.End) != nil {
		return 0
	}
	return t.Opening
}

// Near returns who of those that score at most so much above the candidate comes first in the order of deployments that the conversation
// has at all balancers; the candidate itself, if the request is none. Scores must have been noted.
func (r *Round) Near(candidate int, above float64) int {
	if r.Opening == 0 {
		return candidate
	}
	score, _ := r.Candidates[candidate].Score()
	best, most := candidate, 0.0
	for i := range r.Candidates {
		c := &r.Candidates[i]
		if s, ok := c.Score(); ok && s <= score+above {
			if x := rendezvous(r.Opening, c.ID, c.Weight); x > most {
				best, most = i, x
			}
		}
	}
	return best
}

// overPart is how much more than its part of the conversations a deployment would have to take for how they begin to be common.
const overPart = 1.5

// common is with how many of a prompt's first blocks so many conversations begin that no deployment could take them all and do no more than
// its part. Where these blocks are says nothing of where a conversation is, and they are worth having everywhere.
func (p *pool) common(q *Query) int32 {
	if n := len(p.members); n > 1 {
		return q.began.Common(p.stats.begun, min(overPart/float64(n), 1))
	}
	return 0
}
