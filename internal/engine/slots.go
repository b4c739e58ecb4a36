package engine

import "math"

// slotCaches is llama.cpp's memory: a fixed number of slots of equal size, each with the last sequence that ran in it. An idle slot
// gives what its sequence and the new one share from the start, in whole blocks; nothing is shared between slots.
type slotCaches struct {
	blockTokens int
	slots       []slot
	clock       uint64
	used        int // blocks of busy slots
}

// slot is the place of one sequence.
type slot struct {
	busy   bool
	freed  uint64   // when it became idle, in the count of all releases
	chain  []uint64 // hashes of the full blocks that it holds
	blocks int      // that it holds while it is idle, with the last that may not be full
}

// minSimilarity is the share of a prompt that a slot must hold to be taken for it, and not the slot that was idle for the longest time
// (llama.cpp: --slot-prompt-similarity, 0.10).
const minSimilarity = 0.10

func newSlotCaches(c Config) *slotCaches {
	return &slotCaches{blockTokens: c.BlockTokens, slots: make([]slot, c.Slots)}
}

func (k *slotCaches) admit(j *job, _ bool) bool {
	best, shared, oldest := -1, 0, -1
	for i := range k.slots {
		s := &k.slots[i]
		if s.busy {
			continue
		}
		if oldest < 0 || s.freed < k.slots[oldest].freed {
			oldest = i
		}
		n := k.shared(s, j)
		if n > shared && float64(n*k.blockTokens) > minSimilarity*float64(j.target) {
			best, shared = i, n
		}
	}
	if oldest < 0 {
		return false
	}
	if best < 0 {
		best, shared = oldest, k.shared(&k.slots[oldest], j)
	}
	s := &k.slots[best]
	s.busy = true
	s.chain = s.chain[:shared]
	j.slot = best
	j.kv = min(shared*k.blockTokens, j.target-1) // the last token is always computed: it gives the first logits
	j.blocks = blocksOf(j.target, k.blockTokens)
	k.take(j.blocks)
	return true
}

// shared is how many blocks s holds of j's from the start.
func (k *slotCaches) shared(s *slot, j *job) int {
	for i, h := range s.chain {
		if want, ok := j.hash(i); !ok || h != want || (i+1)*k.blockTokens > j.target {
			return i
		}
	}
	return len(s.chain)
}

// room says that nothing is ever lacking: a slot has its own memory, and what does not fit in it was refused.
func (k *slotCaches) room() int { return math.MaxInt }

func (k *slotCaches) take(blocks int) { k.used += blocks }

func (k *slotCaches) computed(j *job) {
	s := &k.slots[j.slot]
	for full := j.kv / k.blockTokens; len(s.chain) < full; {
		h, ok := j.hash(len(s.chain))
		if !ok {
			return
		}
		s.chain = append(s.chain, h)
	}
}

func (k *slotCaches) release(j *job) {
	k.computed(j)
	s := &k.slots[j.slot]
	k.clock++
	s.busy, s.freed = false, k.clock
	s.blocks = blocksOf(j.kv, k.blockTokens)
	k.used -= j.blocks
	j.kv, j.blocks = 0, 0
}

func (k *slotCaches) usage() (used, cached int) {
	for i := range k.slots {
		if s := &k.slots[i]; !s.busy {
			cached += s.blocks
		}
	}
	return k.used, cached
}
