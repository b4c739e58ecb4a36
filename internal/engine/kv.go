package engine

// memory is where sequences keep what they computed, and what is left of it for others.
type memory interface {
	// admit gives j the memory for its target and finds what is computed already (j.kv, at most target - 1). It fails
	// without a trace if there is not enough. alone says that nothing else runs, so that no reserve need be kept.
	admit(j *job, alone bool) bool
	// room is how many blocks decoding sequences could still get, and need how many j needs to hold so many tokens.
	room() int
	need(j *job, tokens int) int
	// grow gives j the memory for so many tokens. The caller has made sure of the room.
	grow(j *job, tokens int)
	// computed lets others find what j has computed of its prompt.
	computed(j *job)
	// release takes j's memory back and keeps what it computed for as long as nothing else needs the place.
	release(j *job)
	// usage returns the blocks that running sequences hold, and those that only the cache holds.
	usage() (used, cached int)
}

// blockCache is a paged KV cache: blocks with reference counts, found by hash. Every block is in one of four states: free, private
// (of one sequence, not found by others), pinned (found by hash, held by running sequences) or cached (found by hash,
// evictable). Not safe for concurrent use.
//
// A block enters the tree when it is computed; if an equal one is there by then, the sequence shares that one and its own
// becomes free. The blocks of outputs enter when their sequence leaves: nothing before its next turn can ask for them.
type blockCache struct {
	blockTokens, capacity, watermark int

	tree // block 0 is the also the head of the list of cached blocks: its next is the first to be evicted

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

func (k *blockCache) need(j *job, tokens int) int {
	return max(0, (tokens+k.blockTokens-1)/k.blockTokens-j.blocks)
}

// admit takes all blocks of the target at once: a prompt that is computed in chunks never waits for memory in the middle. The last token
// is always computed, and with it the block it is in: something must give the first logits.
func (k *blockCache) admit(j *job, alone bool) bool {
	j.held = k.match(j, j.held[:0])
	found, idle := len(j.held), 0
	for _, i := range j.held {
		if k.blocks[i].refs == 0 {
			idle++
		}
	}
	total := (j.target + k.blockTokens - 1) / k.blockTokens
	left := k.room() - idle - (total - found)
	if left < 0 || left < k.watermark && !alone {
		j.held = j.held[:0]
		return false
	}
	for _, i := range j.held {
		k.pin(i)
	}
	j.blocks = found
	j.kv = found * k.blockTokens
	k.grow(j, j.target)
	return true
}

func (k *blockCache) grow(j *job, tokens int) {
	n := k.need(j, tokens)
	j.blocks += n
	k.private += n
	for k.private+k.pinned+k.cached > k.capacity {
		k.evict()
	}
}

func (k *blockCache) computed(j *job) {
	last := int32(0)
	if n := len(j.held); n > 0 {
		last = j.held[n-1]
	}
	for full := j.kv / k.blockTokens; len(j.held) < full; {
		h, ok := j.hash(len(j.held))
		if !ok {
			return
		}
		last = k.enter(last, h)
		k.private--
		k.pin(last)
		j.held = append(j.held, last)
	}
}

// release frees the tail first, so that it is also evicted first: a prefix is worth more than what follows it.
func (k *blockCache) release(j *job) {
	k.computed(j)
	k.private -= j.blocks - len(j.held)
	for n := len(j.held) - 1; n >= 0; n-- {
		k.unpin(j.held[n])
	}
	j.held, j.blocks, j.kv = j.held[:0], 0, 0
}

// enter returns the block that continues parent with this hash: a new one is the one to be evicted last, and the caller takes its place
// from what was private.
func (k *blockCache) enter(parent int32, hash uint64) int32 {
	i := k.find(parent, hash)
	if i == 0 {
		i = k.insert(parent, hash)
		k.link(i)
	}
	return i
}

func (k *blockCache) pin(i int32) {
	if k.blocks[i].refs == 0 {
		k.unlink(i)
		k.pinned++
	}
	k.blocks[i].refs++
}

func (k *blockCache) unpin(i int32) {
	k.blocks[i].refs--
	if k.blocks[i].refs == 0 {
		k.pinned--
		k.link(i)
	}
}

// evict forgets the block that nobody has held for the longest time.
func (k *blockCache) evict() {
	i := k.blocks[0].next
	if i == 0 {
		panic("BUG: more blocks promised than the engine has")
	}
	k.unlink(i)
	k.remove(i)
}

// link puts a block at the end of the list of cached blocks.
func (k *blockCache) link(i int32) {
	b := k.blocks
	last := b[0].prev
	b[i].prev, b[i].next = last, 0
	b[last].next, b[0].prev = i, i
	k.cached++
}

func (k *blockCache) unlink(i int32) {
	b := k.blocks
	b[b[i].prev].next, b[b[i].next].prev = b[i].next, b[i].prev
	k.cached--
}

// match appends the blocks that hold the start of j's target, but for the block of its last token.
func (k *blockCache) match(j *job, blocks []int32) []int32 {
	last := int32(0)
	for i := range (j.target - 1) / k.blockTokens {
		h, ok := j.hash(i)
		if !ok {
			break
		}
		if last = k.find(last, h); last == 0 {
			break
		}
		blocks = append(blocks, last)
	}
	return blocks
}

// keep enters what j has computed, or marks it as used, tail first; what is too much is evicted. It is for FIFO, whose sequences do
// not hold blocks.
func (k *blockCache) keep(j *job) {
	j.held = j.held[:0]
	last := int32(0)
	for i := range j.kv / k.blockTokens {
		h, ok := j.hash(i)
		if !ok {
			break
		}
		last = k.enter(last, h)
		j.held = append(j.held, last)
	}
	for n := len(j.held) - 1; n >= 0; n-- {
		k.unlink(j.held[n])
		k.link(j.held[n])
	}
	for k.cached > k.capacity {
		k.evict()
	}
}
