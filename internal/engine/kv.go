package engine

// memory is where sequences keep what they computed, and what is left of it for others.
type memory interface {
	// admit gives j the memory for its target and finds what is computed already (j.kv, at most target - 1). It fails
	// without a trace if there is not enough. alone says that nothing else runs, so that no reserve need be kept.
	admit(j *job, alone bool) bool
	// room is how many blocks decoding sequences could still get, and take gives them some. The caller has made sure of the room.
	room() int
	take(blocks int)
	// computed lets others find what j has computed of its prompt.
	computed(j *job)
	// release takes back j's memory, which is j.blocks, and keeps what it computed for as long as nothing else needs the place.
	release(j *job)
	// usage returns the blocks that running sequences hold, and those that only the cache holds.
	usage() (used, cached int)
	// cachedTokens is how many tokens of j would be found.
	cachedTokens(j *job) int
}

// blockCache is a paged KV cache: blocks with reference counts, found by hash. Every block is in one of four states: free, private
// (of one sequence, not found by others), pinned (found by hash, held by running sequences) or cached (found by hash,
// evictable). Not safe for concurrent use.
//
// A block enters the tree when it is computed; if an equal one is there by then, the sequence shares that one and its own
// becomes free. The blocks of outputs enter when their sequence leaves: nothing before its next turn can ask for them.
//
// A sequence holds all blocks from the start to the end of a segment (job.tail), so it need not know the others: they are before it.
type blockCache struct {
	blockTokens, capacity, watermark int

	tree // segment 0 is also the head of the list of cached segments: its next is the first to be evicted

	private, pinned, cached int
}

func newBlockCache(c Config) *blockCache {
	return &blockCache{
		blockTokens: c.BlockTokens, capacity: c.Blocks, watermark: int(c.Watermark * float64(c.Blocks)),
		tree: newTree(),
	}
}

func (k *blockCache) usage() (used, cached int) { return k.private + k.pinned, k.cached }

func (k *blockCache) room() int { return k.capacity - k.private - k.pinned }

// admit takes all blocks of the target at once: a prompt that is computed in chunks never waits for memory in the middle. The last token
// is always computed, and with it the block it is in: something must give the first logits.
func (k *blockCache) admit(j *job, alone bool) bool {
	m := k.match(j)
	total := blocksOf(j.target, k.blockTokens)
	left := k.room() - m.idle - (total - m.blocks)
	if left < 0 || left < k.watermark && !alone {
		return false
	}
	j.tail = m.last
	if m.in < len(k.segments[m.last].hashes) {
		j.tail = k.part(m.last, m.in)
	}
	for i := j.tail; i != 0; i = k.segments[i].parent {
		k.pin(i)
	}
	j.held, j.blocks = m.blocks, total
	j.kv = m.blocks * k.blockTokens
	k.take(total - m.blocks)
	return true
}

func (k *blockCache) take(blocks int) {
	k.private += blocks
	k.evict()
}

func (k *blockCache) computed(j *job) {
	full := j.kv / k.blockTokens
	for j.held < full {
		hashes := j.hashes(j.held, full)
		if len(hashes) == 0 {
			return
		}
		n := 0
		if i := k.find(j.tail, hashes[0]); i != 0 {
			j.tail, n = k.follow(i, hashes)
			k.pin(j.tail)
		} else {
			before := j.tail
			j.tail, n = k.add(before, hashes, k.segments[before].refs == 1)
			k.segments[j.tail].refs = 1
			k.pinned += n
		}
		j.held += n
		k.private -= n
	}
}

// release frees the tail first, so that it is also evicted first: a prefix is worth more than what follows it.
func (k *blockCache) release(j *job) {
	k.computed(j)
	k.private -= j.blocks - j.held
	for i := j.tail; i != 0; i = k.segments[i].parent {
		s := &k.segments[i]
		if s.refs--; s.refs == 0 {
			k.pinned -= len(s.hashes)
			k.link(i)
		}
	}
	j.tail, j.held, j.blocks, j.kv = 0, 0, 0, 0
}

// follow returns the part of segment i that hashes begin with, which becomes a segment of its own, and its length.
func (k *blockCache) follow(i int32, hashes []uint64) (front int32, n int) {
	n = k.common(i, 0, hashes)
	if n < len(k.segments[i].hashes) {
		i = k.part(i, n)
	}
	return i, n
}

// part splits a segment. The part in front becomes the last to be evicted: whoever asks for it holds it, or marks it as used.
func (k *blockCache) part(i int32, n int) int32 {
	front := k.split(i, n)
	if k.segments[i].refs == 0 {
		k.cached -= n // link counts it again
		k.link(front)
	}
	return front
}

func (k *blockCache) pin(i int32) {
	s := &k.segments[i]
	if s.refs == 0 {
		k.unlink(i)
		k.pinned += len(s.hashes)
	}
	s.refs++
}

// evict forgets the blocks that nobody has held for the longest time, as many as are too many.
func (k *blockCache) evict() {
	for over := k.private + k.pinned + k.cached - k.capacity; over > 0; {
		i := k.segments[0].next
		if i == 0 {
			panic("BUG: more blocks promised than the engine has")
		}
		n := min(over, len(k.segments[i].hashes))
		over -= n
		k.cached -= n
		if k.cut(i, n) {
			k.unlink(i)
		}
	}
}

// link puts a segment at the end of the list of cached segments.
func (k *blockCache) link(i int32) {
	s := k.segments
	last := s[0].prev
	s[i].prev, s[i].next = last, 0
	s[last].next, s[0].prev = i, i
	k.cached += len(s[i].hashes)
}

func (k *blockCache) unlink(i int32) {
	s := k.segments
	s[s[i].prev].next, s[s[i].next].prev = s[i].next, s[i].prev
	k.cached -= len(s[i].hashes)
}

// match is what the cache has of the start of a target.
type match struct {
	blocks int
	idle   int   // of them, those that nobody holds
	last   int32 // the segment that the last of them is in, and the blocks up to there
	in     int
}

// match finds what the cache has of the start of j's target, but for the block of its last token.
func (k *blockCache) match(j *job) (m match) {
	most := (j.target - 1) / k.blockTokens
	for m.blocks < most {
		hashes := j.hashes(m.blocks, most)
		if len(hashes) == 0 {
			break
		}
		if m.in == len(k.segments[m.last].hashes) {
			i := k.find(m.last, hashes[0])
			if i == 0 {
				break
			}
			m.last, m.in = i, 0
		}
		n := k.common(m.last, m.in, hashes)
		if n == 0 {
			break
		}
		m.in += n
		m.blocks += n
		if k.segments[m.last].refs == 0 {
			m.idle += n
		}
	}
	return m
}

// keep enters what j has computed, or marks it as used, tail first; what is too much is evicted. It is for FIFO, whose sequences do
// not hold blocks.
func (k *blockCache) keep(j *job) {
	last := int32(0)
	full := j.kv / k.blockTokens
	for at := 0; at < full; {
		hashes := j.hashes(at, full)
		if len(hashes) == 0 {
			break
		}
		n := 0
		if i := k.find(last, hashes[0]); i != 0 {
			last, n = k.follow(i, hashes)
		} else {
			before := last
			if last, n = k.add(before, hashes, true); last == before {
				k.cached += n
			} else {
				k.link(last)
			}
		}
		at += n
	}
	for i := last; i != 0; i = k.segments[i].parent {
		k.unlink(i)
		k.link(i)
	}
	k.evict()
}
