package engine

// block is one block that the cache can find.
type block struct {
	hash       uint64
	refs       int32 // running sequences that hold it
	prev, next int32 // if refs is 0: the list of cached blocks

	parent int32 // the block before it in its sequence, 0 for the first of a sequence
	child  int32 // one of those that continue it
	others int32 // how many more do: they are in the table
	chain  int32 // the next block with the same head in the table
}

// tree finds blocks by what they continue. Most blocks are continued by one other or none, so a prompt is followed, and a new one
// entered, from block to block; only where prefixes part does it take a look into a hash table. (A map of all blocks would take
// most of the time of a simulated request: a hundred cache misses.) Blocks are named by index; 0 is what all first blocks continue.
//
// A block must leave after those that continue it.
type tree struct {
	blocks []block
	unused []int32 // indices that are free to use again
	heads  []int32 // of chains of blocks in the table: 1 << (64 - shift)
	shift  int
	tabled int // blocks in the table
	len    int // blocks in the tree
}

func newTree() tree { return tree{blocks: make([]block, 1), heads: make([]int32, 64), shift: 64 - 6} }

// find returns the block that continues parent with this hash, or 0.
func (t *tree) find(parent int32, hash uint64) int32 {
	p := &t.blocks[parent]
	if c := p.child; c != 0 && t.blocks[c].hash == hash {
		return c
	}
	if p.others == 0 {
		return 0
	}
	i := *t.head(parent, hash)
	for i != 0 && (t.blocks[i].hash != hash || t.blocks[i].parent != parent) {
		i = t.blocks[i].chain
	}
	return i
}

// insert returns a new block that continues parent with this hash; there must be none.
func (t *tree) insert(parent int32, hash uint64) int32 {
	i := int32(len(t.blocks))
	if n := len(t.unused); n > 0 {
		i, t.unused = t.unused[n-1], t.unused[:n-1]
	} else {
		t.blocks = append(t.blocks, block{})
	}
	t.len++
	b := &t.blocks[i]
	*b = block{hash: hash, parent: parent}
	p := &t.blocks[parent]
	if p.child == 0 {
		p.child = i
		return i
	}
	p.others++
	if t.tabled == len(t.heads) {
		t.grow()
	}
	t.tabled++
	head := t.head(parent, hash)
	b.chain, *head = *head, i
	return i
}

// remove takes block i, which nothing continues, out of the tree.
func (t *tree) remove(i int32) {
	b := &t.blocks[i]
	if b.child != 0 || b.others != 0 {
		panic("BUG: a block leaves the cache before what continues it")
	}
	t.unused = append(t.unused, i)
	t.len--
	p := &t.blocks[b.parent]
	if p.child == i {
		p.child = 0
		return
	}
	p.others--
	t.tabled--
	at := t.head(b.parent, b.hash)
	for *at != i {
		at = &t.blocks[*at].chain
	}
	*at = b.chain
}

// head returns where the chain of a block begins.
func (t *tree) head(parent int32, hash uint64) *int32 {
	const golden = 0x9e3779b97f4a7c15 // spreads hashes that are near each other over the upper bits
	return &t.heads[(hash^uint64(parent)<<32)*golden>>t.shift]
}

// grow doubles the heads.
func (t *tree) grow() {
	old := t.heads
	t.heads = make([]int32, 2*len(old))
	t.shift--
	for _, i := range old {
		for i != 0 {
			b := &t.blocks[i]
			next := b.chain
			head := t.head(b.parent, b.hash)
			b.chain, *head = *head, i
			i = next
		}
	}
}
