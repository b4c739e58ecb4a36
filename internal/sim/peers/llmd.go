package peers

import (
	"slices"
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// llmd is the endpoint picker of llm-d and the Gateway API Inference Extension (github.com/llm-d/llm-d-router, 2026-09): filters,
// then the highest Σ weight·score (max-score-picker, at random of equals). Scores are in [0, 1]:
//
//	queue       (max − q)/(max − min) of the waiting requests, 1 for all if they are alike   (scraped)
//	kv-cache    1 − usage                                                                    (scraped)
//	prefix      matched/all blocks of the prompt
//	token-load  1 − min(1, (uncached tokens in flight + of the request)/4,194,304)
//	no-hit-lru  of a request that nobody has a block of: by how long ago an endpoint was last given such a one; else 0.5
//
// The index (approx-prefix-cache-producer) has blocks of 64 tokens, 31,250 of them per endpoint, matches up to 131,072 tokens, and
// takes a prompt in when it is routed. Tokens in flight are charged when a request is routed and released at its first token.
type llmd struct {
	books
	o     llmdOptions
	cold  []uint64 // when an endpoint was last given a request without a hit, by its ordinal
	colds uint64
	keep  []bool // the candidates that passed the filter
}

type llmdOptions struct {
	queue, kv, prefix, tokenLoad, noHit float64 // weights
	sticky                              bool    // prefix-cache-affinity-filter
	precise                             bool    // the index follows the engines' KV events
}

var (
	// llmdDefault is the profile of an EPP without a configuration.
	llmdDefault = llmdOptions{queue: 2, kv: 2, prefix: 3}
	// llmdTokens is the guide "optimized baseline": the affinity filter, then the token load.
	llmdTokens = llmdOptions{sticky: true, tokenLoad: 1}
	// llmdPrecise is the guide "precise prefix cache routing": the index follows the engines' KV events, and what was routed
	// counts as cached for 2 s before they come (speculativeIndexing).
	llmdPrecise = llmdOptions{queue: 2, kv: 2, prefix: 3, noHit: 2, precise: true}
)

const (
	llmdBlock        = 64
	llmdRoom         = 31250 * llmdBlock // lruCapacityPerServer
	llmdMostTokens   = 131072            // maxPrefixTokensToMatch
	llmdTokenLoad    = 4194304           // queueThresholdTokens
	llmdSpeculation  = 2 * time.Second   // of the precise index
	llmdAffinity     = 0.80              // affinityThreshold
	llmdPenalty      = 18.0              // maxTTFTPenaltyMs, in seconds
	llmdPrefillSpeed = 15928.0           // peakPrefillThroughput, tokens per second: Qwen 32B on 2 H100
)

func newLLMD(o llmdOptions) func(sim.Vantage) sim.Policy {
	return func(at sim.Vantage) sim.Policy {
		x := indexOptions{block: llmdBlock, room: llmdRoom}
		if o.precise {
			x.idle = llmdSpeculation
		}
		b := newBooks(at, &x)
		b.events = o.precise
		return &llmd{books: b, o: o, cold: make([]uint64, len(at.IDs))}
	}
}

func (*llmd) String() string { return "llm-d" }

// Learn implements sim.Policy.
func (p *llmd) Learn(n *sim.Notice) {
	p.note(n)
	if n.Kind == sim.Sent && slices.Max(p.cached) == 0 {
		p.colds++
		p.cold[n.Deployment] = p.colds
	}
}

// Pick implements route.Strategy.
func (p *llmd) Pick(r *route.Round) int {
	a := p.round(r)
	p.filter(a, r)
	queue := p.queueScore(r)
	noHit := p.noHitScore(r)
	return anyOf(r, func(i int) float64 {
		if !p.keep[i] {
			return 1
		}
		w := p.of(i)
		kv := 1.0
		if w.load.Blocks > 0 {
			kv -= float64(w.load.Used) / float64(w.load.Blocks)
		}
		tokens := float64(w.uncached + p.missing(a, i))
		prefix := p.o.prefix * p.prefixScore(a, i)
		load := p.o.queue*queue(i) + p.o.kv*kv + p.o.tokenLoad*(1-min(1, tokens/llmdTokenLoad))
		r.Note(i, "-prefix", -prefix)
		r.Note(i, "-load", -load)
		score := prefix + load
		if p.o.noHit > 0 {
			v := p.o.noHit * noHit(i)
			r.Note(i, "-no_hit", -v)
			score += v
		}
		return -score
	})
}

func (p *llmd) prefixScore(a ask, i int) float64 {
	all := p.whole(a)
	if all == 0 {
		return 0
	}
	return float64(min(p.cached[p.who[i]], llmdMostTokens, all)) / float64(all)
}

// filter keeps the endpoints with a prefix score of at least llmdAffinity, if there are any. If what they have to compute takes longer
// by llmdPenalty than elsewhere, it keeps all.
func (p *llmd) filter(a ask, r *route.Round) {
	p.keep = p.keep[:0]
	for range r.Candidates {
		p.keep = append(p.keep, true)
	}
	if !p.o.sticky {
		return
	}
	least := map[bool]float64{}
	for i := range r.Candidates {
		sticky := p.prefixScore(a, i) >= llmdAffinity
		ttft := float64(p.of(i).uncached) / llmdPrefillSpeed
		if t, ok := least[sticky]; !ok || ttft < t {
			least[sticky] = ttft
		}
	}
	warm, any := least[true]
	other, rest := least[false]
	if !any || rest && warm-other > llmdPenalty {
		return
	}
	for i := range r.Candidates {
		p.keep[i] = p.prefixScore(a, i) >= llmdAffinity
	}
}

func (p *llmd) queueScore(r *route.Round) func(i int) float64 {
	low, high := p.of(0).load.Waiting, p.of(0).load.Waiting
	for i := range r.Candidates {
		low, high = min(low, p.of(i).load.Waiting), max(high, p.of(i).load.Waiting)
	}
	return func(i int) float64 {
		if high == low {
			return 1
		}
		return float64(high-p.of(i).load.Waiting) / float64(high-low)
	}
}

func (p *llmd) noHitScore(r *route.Round) func(i int) float64 {
	n := len(r.Candidates)
	warm := false
	for i := range r.Candidates {
		warm = warm || p.cached[p.who[i]] > 0
	}
	return func(i int) float64 {
		switch {
		case warm:
			return 0.5
		case n == 1:
			return 1
		}
		rank := 0 // how many were given a cold request longer ago, or never
		for j := range r.Candidates {
			if p.cold[p.who[j]] < p.cold[p.who[i]] {
				rank++
			}
		}
		return 1 - float64(rank)/float64(n-1)
	}
}

// scrapeLLMD is how often the picker reads each endpoint's metrics.
const scrapeLLMD = 50 * time.Millisecond
