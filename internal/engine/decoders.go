package engine

import (
	"cmp"
	"slices"
)

// decoders are the sequences that decode. A round, a step that decodes, brings each of them a token, so what they have follows from
// the number of rounds: nobody goes through all of them in each. A job among them is as it was when it joined.
type decoders struct {
	round   int    // so many are over
	context int    // tokens that all of them have computed
	turns   []turn // one for each; the next is the last
	phases  []int  // how many of them need another block, by phase of the round
}

// turn is when a sequence has its last token, or tells of one.
type turn struct {
	round int
	*job
}

func newDecoders(blockTokens int) decoders { return decoders{phases: make([]int, blockTokens)} }

// phase tells the rounds apart in which a sequence that has computed kv tokens in this one needs another block: those of the phase of 0 tokens.
func (d *decoders) phase(kv, round int) int {
	size := len(d.phases)
	return ((kv-round)%size + size) % size
}

// blocks returns how many blocks they need for the rounds from one on up to another, beside those for the ones before.
func (d *decoders) blocks(from, to int) int {
	size := len(d.phases)
	n := (to - from) / size * len(d.turns)
	for r := to - (to-from)%size; r < to; r++ {
		n += d.phases[d.phase(0, r)]
	}
	return n
}

// advance lets n rounds go by. There is no turn before the last of them.
func (d *decoders) advance(n int) {
	d.round += n
	d.context += n * len(d.turns)
}

// join takes j in, whose prompt is computed and whose next token comes with the next round.
func (d *decoders) join(j *job) {
	t := turn{d.round + j.left(), j}
	if j.EachToken {
		t.round = d.round + 1
	}
	at, _ := slices.BinarySearchFunc(d.turns, t, func(a, b turn) int {
		return cmp.Or(cmp.Compare(b.round, a.round), cmp.Compare(b.order, a.order))
	})
	d.turns = slices.Insert(d.turns, at, t)
	j.joined = d.round
	d.context += j.kv
	d.phases[d.phase(j.kv, d.round)]++
}

// left returns in how many rounds the next turn is. There must be one.
func (d *decoders) left() int { return d.turns[len(d.turns)-1].round - d.round }

// due appends those whose turn it is, which leave, to jobs.
func (d *decoders) due(jobs []*job) []*job {
	for len(d.turns) > 0 && d.left() == 0 {
		jobs = append(jobs, d.out(len(d.turns)-1))
	}
	return jobs
}

// leave lets j go, if it is among them.
func (d *decoders) leave(j *job) {
	if at := slices.IndexFunc(d.turns, func(t turn) bool { return t.job == j }); at >= 0 {
		d.out(at)
	}
}

// out lets one of them go, which is told what it has by now.
func (d *decoders) out(at int) *job {
	j := d.turns[at].job
	d.turns = slices.Delete(d.turns, at, at+1)
	n := d.round - j.joined
	j.generated += n
	j.kv += n
	j.blocks = max(j.blocks, blocksOf(j.kv, len(d.phases)))
	d.context -= j.kv
	d.phases[d.phase(j.kv, d.round)]--
	return j
}

// blocksOf returns how many blocks so many tokens need.
func blocksOf(tokens, blockTokens int) int { return (tokens + blockTokens - 1) / blockTokens }
