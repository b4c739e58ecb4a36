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
// A block enters the table when it is computed; if an equal one is there by then, the sequence shares that one and its own
// becomes free. The blocks of outputs enter when their sequence leaves: nothing before its next turn can ask for them.
type blockCache struct {
	blockTokens, capacity, watermark int

	table  map[uint64]int32
	blocks []block // the first is the head of the list of cached blocks, the rest by index
	unused []int32 // indices of blocks that are in no table

	private, pinned, cached int
}

// block is one block that the table knows.
type block struct {
	hash       uint64
	refs       int32 // running sequences that hold it
	prev, next int32 // if refs is 0: the list of cached blocks; the head's next is the first to be evicted
}

func newBlockCache(c Config) *blockCache {
	return &blockCache{
		blockTokens: c.BlockTokens, capacity: c.Blocks, watermark: int(c.Watermark * float64(c.Blocks)),
		table: make(map[uint64]int32), blocks: make([]block, 1),
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
	found, idle := 0, 0
	for most := (j.target - 1) / k.blockTokens; found < most; found++ {
		h, ok := j.hash(found)
		if !ok {
			break
		}
		i, ok := k.table[h]
		if !ok {
			break
		}
		j.held = append(j.held, i)
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
	for full := j.kv / k.blockTokens; len(j.held) < full; {
		h, ok := j.hash(len(j.held))
		if !ok {
			return
		}
		i, ok := k.table[h]
		if !ok {
			i = k.add(h)
		}
		k.private--
		k.pin(i)
		j.held = append(j.held, i)
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

// add enters a block into the table, as the one to be evicted last; the caller takes its place from what was private.
func (k *blockCache) add(hash uint64) int32 {
	i := int32(len(k.blocks))
	if n := len(k.unused); n > 0 {
		i, k.unused = k.unused[n-1], k.unused[:n-1]
	} else {
		k.blocks = append(k.blocks, block{})
	}
	k.blocks[i].hash = hash
	k.table[hash] = i
	k.link(i)
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
	delete(k.table, k.blocks[i].hash)
	k.unused = append(k.unused, i)
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

// match returns how many tokens of j's prompt are in the cache, and takes nothing: for FIFO, whose sequences do not hold blocks.
func (k *blockCache) match(j *job) int {
	n := 0
	for most := (j.PromptTokens - 1) / k.blockTokens; n < most; n++ {
		h, ok := j.hash(n)
		if !ok {
			break
		}
		if _, ok := k.table[h]; !ok {
			break
		}
	}
	return n * k.blockTokens
}

// keep enters what j has computed, or marks it as used, tail first; what is too much is evicted.
func (k *blockCache) keep(j *job) {
	n := min(j.kv/k.blockTokens, len(j.Prompt)+len(j.Output))
	for n--; n >= 0; n-- {
		h, _ := j.hash(n)
		if i, ok := k.table[h]; ok {
			k.unlink(i)
			k.link(i)
		} else {
			k.add(h)
		}
	}
	for k.cached > k.capacity {
		k.evict()
	}
}
