package sim

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"

	"evenkeel/internal/route"
)

// SessionOptions describe conversations: each turn's prompt is all that was said before and a new question.
type SessionOptions struct {
	Rate     float64 // sessions that begin per second
	Turns    Law     // of a session
	Systems  int     // system prompts that there are; 0 = none
	Zipf     float64 // exponent of their popularity: the k-th is drawn in proportion to k^-Zipf; 0 = all alike
	System   Law     // tokens of a system prompt; they are the same with every seed
	Question Law     // tokens of each turn
	Answer   Law     // likewise
	Gap      Law     // seconds from one turn's arrival to the next one's
	Block    int     // tokens of a block of the hash chain
}

// Sessions brings the turns of conversations. When a turn comes does not depend on when the one before is answered: policies
// see the same arrivals.
type Sessions struct {
	o                           SessionOptions
	arrivals, lengths, sessions *rand.Rand
	salt                        uint64
	systems                     []int     // tokens of each system prompt
	popular                     []float64 // cumulative popularity
	begun                       uint64
	begin                       float64 // when the next session begins, in seconds
	open                        talks
}

// talk is a session that has turns left.
type talk struct {
	at     float64 // of the next turn, in seconds
	id     uint64
	turns  int         // left
	tokens int         // said so far
	chain  []uint64    // hashes of its full blocks
	said   route.Turns // what the next prompt has of them
}

type talks []*talk

func (h talks) Len() int { return len(h) }
func (h talks) Less(a, b int) bool {
	return h[a].at < h[b].at || h[a].at == h[b].at && h[a].id < h[b].id
}
func (h talks) Swap(a, b int) { h[a], h[b] = h[b], h[a] }
func (h *talks) Push(x any)   { *h = append(*h, x.(*talk)) }
func (h *talks) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}

// NewSessions returns a source of that seed.
func NewSessions(seed uint64, o SessionOptions) (*Sessions, error) {
	laws := []struct {
		name string
		law  Law
	}{
		{"sessions per second", Law{o.Rate, 0}}, {"turns", o.Turns}, {"tokens of a question", o.Question}, {"tokens of an answer", o.Answer},
		{"seconds between turns", o.Gap}, {"tokens of a system prompt", o.System},
	}
	if o.Systems == 0 {
		laws = laws[:len(laws)-1]
	}
	for _, l := range laws {
		if err := l.law.check(l.name); err != nil {
			return nil, err
		}
	}
	if o.Systems < 0 || o.Block < 1 || !(o.Zipf >= 0) {
		return nil, fmt.Errorf("%d system prompts of Zipf exponent %v in blocks of %d tokens: none of them may be negative, and a block has a token at least",
			o.Systems, o.Zipf, o.Block)
	}
	s := &Sessions{o: o, arrivals: stream(seed, forArrivals), lengths: stream(seed, forLengths), sessions: stream(seed, forSessions), salt: mix(seed)}
	sum := 0.0
	for k := range o.Systems {
		s.systems = append(s.systems, o.System.spread(k))
		sum += math.Pow(float64(k+1), -o.Zipf)
		s.popular = append(s.popular, sum)
	}
	s.begin = s.arrivals.ExpFloat64() / o.Rate
	return s, nil
}

// spread returns the k-th of numbers of tokens that follow the law as evenly as so many can: multiples of the golden ratio fill the
// quantiles. The most popular system prompts decide how much work sessions are. Were they drawn by a seed, each seed would be
// another workload, and no run could tell how far it is from others.
func (l Law) spread(k int) int {
	_, q := math.Modf(float64(k+1) * math.Phi)
	return max(1, int(math.Round(l.quantile(q))))
}

// Next implements Source.
func (s *Sessions) Next(r *Request) bool {
	if len(s.open) == 0 || s.begin <= s.open[0].at {
		heap.Push(&s.open, s.start())
	}
	t := s.open[0]
	prompt := t.tokens + s.o.Question.tokens(s.lengths)
	answer := s.o.Answer.tokens(s.lengths)
	key := mix(s.salt + t.id)
	t.extend(prompt, s.o.Block, key)
	asked := len(t.chain)
	t.extend(prompt+answer, s.o.Block, key)
	t.said.End = mix(key + uint64(prompt))
	if t.said.Opening == 0 {
		t.said.Opening = t.said.End
	}
	turns := t.said
	copy(t.said.Past[1:], t.said.Past[:])
	t.said.Past[0] = route.Turn{Hash: t.said.End, Blocks: int32(asked), Rest: int32(prompt % s.o.Block), Answer: int32(answer)}
	*r = Request{
		At: seconds(t.at), Session: t.id, PromptTokens: prompt, OutputTokens: answer, BlockTokens: s.o.Block, Turns: turns,
		Prompt: t.chain[:asked:asked], Output: t.chain[asked:len(t.chain):len(t.chain)],
	}
	t.tokens = prompt + answer
	t.at += s.o.Gap.draw(s.sessions)
	if t.turns--; t.turns == 0 {
		heap.Pop(&s.open)
	} else {
		heap.Fix(&s.open, 0)
	}
	return true
}

// start begins the session that is due.
func (s *Sessions) start() *talk {
	s.begun++
	t := &talk{at: s.begin, id: s.begun, turns: s.o.Turns.tokens(s.sessions)}
	s.begin += s.arrivals.ExpFloat64() / s.o.Rate
	if n := len(s.popular); n > 0 {
		x, k := s.sessions.Float64()*s.popular[n-1], 0
		for k < n-1 && s.popular[k] <= x {
			k++
		}
		t.extend(s.systems[k], s.o.Block, mix(^s.salt+uint64(k)))
		t.tokens = s.systems[k]
	}
	return t
}

// extend adds the hashes of the blocks that are full once so many tokens were said, by whom key stands for.
func (t *talk) extend(tokens, block int, key uint64) {
	last := uint64(0)
	if n := len(t.chain); n > 0 {
		last = t.chain[n-1]
	}
	for len(t.chain) < tokens/block {
		last = mix(last ^ key ^ uint64(len(t.chain)))
		t.chain = append(t.chain, last)
	}
}
