package yardstick

import (
	"math"

	"evenkeel/internal/sim"
)

// walk finds what a request takes at least, by going along its prompt from the end to the start.
type walk struct {
	*fleet
	*prefixes
	requests []sim.Request

	// What request found.
	bound float64 // TTFT
	own   float64 // TTFT but for what comes from waiting until earlier requests are computed
	work  float64 // that is counted for it: what no earlier request asked for

	nodes  []int32
	bounds []float64 // by kind of engine, so far
	owns   []float64
	suffix suffix
}

// suffix is the part of a prompt from some block on, but for blocks that answers bring.
type suffix struct {
	from    int     // tokens before it
	tokens  int     // in it
	pairs   float64 // Σ (to² - from²)
	squares float64 // Σ n² over the parts that no prompt parts, all but the first of them
	part    float64 // tokens of the first part
}

func square[T int | float64](x T) float64 { return float64(x) * float64(x) }

// close ends the part in front.
func (s *suffix) close() {
	s.squares += square(s.part)
	s.part = 0
}

// attention returns what a prompt's pairs are at least if it may be computed by several requests: whether or not tokens cost attention
// to those in the cache.
func (s *suffix) attention(context bool) float64 {
	if context {
		return s.pairs
	}
	return s.squares + square(s.part)
}

func (w *walk) request(i int32) {
	r := &w.requests[i]
	w.nodes = w.path(r.Prompt, w.nodes[:0])
	w.bounds, w.owns = w.bounds[:0], w.owns[:0]
	for range w.kinds {
		w.bounds, w.owns = append(w.bounds, 0), append(w.owns, 0)
	}
	n := len(w.nodes)
	s := &w.suffix
	*s = suffix{from: n * r.BlockTokens}
	s.tokens = r.PromptTokens - s.from
	s.pairs = square(r.PromptTokens) - square(s.from)
	s.part = float64(s.tokens)
	if n > 0 {
		if last := &w.prefixes.nodes[w.nodes[n-1]]; last.passes > 1 || last.answer {
			s.close()
		}
	}
	w.ends(i, i, -1)
	for n > 0 && w.prefixes.nodes[w.nodes[n-1]].first == i {
		n--
		w.extend(r.BlockTokens, n)
	}
	if n < len(w.nodes) {
		w.ends(i, i, w.prefixes.nodes[w.nodes[n]].second)
	}
	w.work = w.least.job + w.least.token*float64(s.tokens) + w.least.pair*s.attention(w.least.context)
	copy(w.owns, w.bounds)
	w.earlier(i, n)
	w.bound, w.own = w.fastest(r, w.bounds), w.fastest(r, w.owns)
}

// earlier goes on along the first n blocks, which earlier requests have: none of them was computed before the first of those came.
func (w *walk) earlier(i int32, n int) {
	r := &w.requests[i]
	longest := 0.0 // what the whole prompt takes
	for k := range w.kinds {
		if p := &w.kinds[k]; p.fifo {
			longest = max(longest, p.alone(r.PromptTokens))
		} else {
			longest = max(longest, p.time(r.PromptTokens, square(r.PromptTokens)))
		}
	}
	for n > 0 {
		n--
		first := w.prefixes.nodes[w.nodes[n]].first
		if (r.At - w.requests[first].At).Seconds() >= longest {
			return
		}
		w.extend(r.BlockTokens, n)
		if n == 0 || w.prefixes.nodes[w.nodes[n-1]].first != first {
			w.ends(i, first, -1)
		}
	}
}

// extend puts the n-th block in front of the suffix.
func (w *walk) extend(block, n int) {
	s := &w.suffix
	if n+1 < len(w.nodes) && w.parts(w.nodes[n], w.nodes[n+1]) {
		s.close()
	}
	to := s.from
	s.from -= block
	if w.prefixes.nodes[w.nodes[n]].answer {
		return
	}
	s.tokens += block
	s.pairs += square(to) - square(s.from)
	s.part += float64(block)
}

// ends raises the bounds of request i by when its first token can come if no engine computed any of the suffix before request first
// came. If that is i itself, a later request may help it, -1 = none can.
func (w *walk) ends(i, first, helper int32) {
	r, s := &w.requests[i], &w.suffix
	before := (w.requests[first].At - r.At).Seconds()
	for k := range w.kinds {
		p := &w.kinds[k]
		from := min(s.from/p.block*p.block, p.most(r.PromptTokens)) // no cache has a part of a block
		tokens := s.tokens + s.from - from
		var end float64
		switch {
		case !p.fifo:
			end = before + p.time(tokens, s.pairs+square(s.from)-square(from))
		case first != i:
			end = before + p.parted(tokens, s.attention(false))
		default:
			end = p.alone(tokens)
			if helper >= 0 {
				end = min(end, (w.requests[helper].At-r.At).Seconds()+p.parted(tokens, s.attention(false)))
			}
		}
		w.bounds[k] = max(w.bounds[k], end)
	}
}

// fastest returns the least of the bounds of engines that can hold r.
func (w *walk) fastest(r *sim.Request, bounds []float64) float64 {
	least := math.Inf(1)
	for k := range w.kinds {
		if w.kinds[k].holds(r) {
			least = min(least, bounds[k])
		}
	}
	return least
}
