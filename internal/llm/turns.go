package llm

import "evenkeel/internal/route"

// turns finds where in a list of messages those of the model stand: what is before the first of some of them was once a whole
// prompt, and is hashed as that was. Whose a message is may stand behind its text.
type turns struct {
	told field // the part whose messages say whose they are; 0 = none does
	n    int   // answers so far
	kept [keptTurns]turn
	rest [keptTurns * PrefixBlock]byte // the text before each that fills no block
	sums [keptTurns]uint64             // of those, as the last sum of a part would be

	message place // where the message that is read now begins
	open    bool  // it is not known whose it is, and the text before it is still in the Prompt's block;
	filled  bool  // else it is in before
	known   bool  // it is known whose it is:
	answer  bool  // the model's
	answers bool  // the message before is the model's too
	before  [PrefixBlock]byte
}

// keptTurns are the first and the last ones.
const keptTurns = 1 + route.PastTurns

// place is a place in the text of a part.
type place struct {
	sums int // whole blocks before it
	rest int // bytes behind them
}

// turn is where an answer stands.
type turn struct {
	at     place
	answer int // bytes of text
}

// slot is where the i-th answer is kept.
func slot(i int) int {
	if i == 0 {
		return 0
	}
	return 1 + (i-1)%route.PastTurns
}

// messages begins a part that may be a list of messages.
func (p *Prompt) messages() {
	t := &p.turns
	t.message, t.open, t.known, t.answer, t.answers = p.place(), true, false, false, false
}

func (p *Prompt) place() place { return place{len(p.sums) - p.from, p.n} }

// nextMessage ends a message; another may follow.
func (p *Prompt) nextMessage() {
	t := &p.turns
	here := p.place()
	if t.answer {
		last := &t.kept[slot(t.n-1)]
		last.answer = (here.sums-last.at.sums)*PrefixBlock + here.rest - last.at.rest
	}
	t.answers = t.answer
	t.message, t.open, t.known, t.answer = here, true, false, false
}

// fill is shown the block before what is in it is lost.
func (t *turns) fill(block []byte) {
	copy(t.before[:], block[:t.message.rest])
	t.open, t.filled = false, true
}

// whose says whether the message that is read now is the model's. The first who tells counts.
func (p *Prompt) whose(model bool) {
	t := &p.turns
	if t.known || t.told != 0 && t.told != p.part {
		return
	}
	t.told, t.known = p.part, true
	if model && t.message.sums < MaxPrefixBlocks {
		if t.answer = true; !t.answers {
			from := &t.before
			if t.open {
				from = &p.block
			}
			at := slot(t.n)
			copy(t.rest[at*PrefixBlock:], from[:t.message.rest])
			t.kept[at].at = t.message
			t.n++
		}
	}
	t.open = false
}

// hashTurns ends a part. No text is kept.
func (p *Prompt) hashTurns() {
	t := &p.turns
	if t.filled {
		t.filled = false
		clear(t.before[:])
	}
	if t.told != p.part {
		return
	}
	n := min(t.n, keptTurns)
	if n == 0 {
		return
	}
	for i := range n {
		clear(t.rest[i*PrefixBlock+t.kept[i].at.rest : (i+1)*PrefixBlock])
	}
	p.key.blocks.Sum(t.sums[:n], t.rest[:])
	clear(t.rest[:n*PrefixBlock])
}

// tell tells of the answers that stand behind so many whole blocks of the part, and returns behind how many the next ones do, most if there
// are none. hash is of all text up to there, which has so many blocks in all, and rest bytes of the parts before that filled none.
func (t *turns) tell(to *route.Turns, k *PrefixKey, hash uint64, sums, most, blocks, rest int) (next int) {
	next = most
	for i := range min(t.n, keptTurns) {
		x := &t.kept[i]
		if x.at.sums > sums {
			next = min(next, x.at.sums)
		}
		if x.at.sums != sums {
			continue
		}
		h := k.chain(hash, t.sums[i], 0)
		if i == 0 {
			to.Opening = h
		}
		for back := range min(t.n, route.PastTurns) {
			if slot(t.n-1-back) == i {
				to.Past[back] = route.Turn{Hash: h, Blocks: int32(blocks), Rest: int32(rest + x.at.rest), Answer: int32(x.answer)}
			}
		}
	}
	return next
}
