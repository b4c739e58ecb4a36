package peers

import "time"

// index is what a router believes to be in the caches of deployments: the prefixes of what it sent them. Like the workload it
// tells prefixes apart by the hash chain of their blocks. It forgets the least recently used block first, and of one prefix
// the last: a prefix loses its end before its head.
type index struct {
	o indexOptions

	step int // blocks of the workload in one of the index; 0 = nothing is known of the workload yet
	size int // tokens of one of the index

	first map[uint64]int32 // by hash, the first of the entries that are about it
	// entries[0] is none; the others are one for each block at each deployment.
	entries []entry
	unused  []int32
	lists   []list // by deployment; only one if the room is pooled
	swept   time.Duration
	clock   uint64
}

// indexOptions describe an index.
type indexOptions struct {
	block  int           // tokens of a router's own block: as many blocks of the workload as fit in it, at least one
	room   int           // tokens that a deployment's part may hold, 0 = no limit
	pooled bool          // room is for all deployments together
	every  time.Duration // from one look at the room to the next; 0 = always
	idle   time.Duration // what was not used for so long is forgotten; 0 = never
}

type entry struct {
	hash         uint64
	deployment   int32
	sibling      int32 // another deployment's for the same hash
	older, newer int32
	used         time.Duration
	stamp        uint64 // orders what was used at one time
}

type list struct {
	oldest, newest int32
	len            int
}

func newIndex(deployments int, o indexOptions) *index {
	if o.pooled {
		deployments = 1
	}
	return &index{o: o, first: map[uint64]int32{}, entries: make([]entry, 1), lists: make([]list, deployments)}
}

// learn sets the size of the workload's blocks. It is the same for all requests that have any.
func (x *index) learn(blockTokens int) {
	if x.step == 0 && blockTokens > 0 {
		x.step = max(1, x.o.block/blockTokens)
		x.size = x.step * blockTokens
	}
}

func (x *index) stale(e *entry, now time.Duration) bool { return x.o.idle > 0 && now-e.used > x.o.idle }

// match sets tokens[d], for each deployment d, to how many tokens at the beginning of the prompt it is believed to have.
func (x *index) match(now time.Duration, chain []uint64, tokens []int) {
	clear(tokens)
	if x.step == 0 {
		return
	}
	for depth, i := 0, x.step-1; i < len(chain); depth, i = depth+x.size, i+x.step {
		found := false
		for e := x.first[chain[i]]; e != 0; e = x.entries[e].sibling {
			en := &x.entries[e]
			if tokens[en.deployment] == depth && !x.stale(en, now) {
				tokens[en.deployment] = depth + x.size
				found = true
			}
		}
		if !found {
			return
		}
	}
}

// latest returns which deployment the longest known prefix of a prompt was last sent to, and how many tokens that prefix has; -1
// if there is none. among says which deployments count.
func (x *index) latest(chain []uint64, among func(deployment int) bool) (deployment, tokens int) {
	deployment = -1
	if x.step == 0 {
		return
	}
	for i := x.step - 1; i < len(chain); i += x.step {
		at, stamp := -1, uint64(0)
		for e := x.first[chain[i]]; e != 0; e = x.entries[e].sibling {
			if en := &x.entries[e]; en.stamp > stamp && among(int(en.deployment)) {
				at, stamp = int(en.deployment), en.stamp
			}
		}
		if at < 0 {
			return
		}
		deployment, tokens = at, tokens+x.size
	}
	return
}

// insert notes that a deployment was sent a prompt.
func (x *index) insert(now time.Duration, chain []uint64, deployment int) {
	if x.step == 0 {
		return
	}
	for i := len(chain)/x.step*x.step - 1; i >= 0; i -= x.step { // the head is the last to be used, and so the last to go
		x.use(now, chain[i], int32(deployment))
	}
	x.sweep(now)
}

func (x *index) list(deployment int32) *list {
	if x.o.pooled {
		return &x.lists[0]
	}
	return &x.lists[deployment]
}

// use makes an entry the newest of its list.
func (x *index) use(now time.Duration, hash uint64, deployment int32) {
	first := x.first[hash]
	i := first
	for i != 0 && x.entries[i].deployment != deployment {
		i = x.entries[i].sibling
	}
	l := x.list(deployment)
	if i != 0 {
		x.unlink(l, i)
	} else {
		if n := len(x.unused); n > 0 {
			i, x.unused = x.unused[n-1], x.unused[:n-1]
		} else {
			i = int32(len(x.entries))
			x.entries = append(x.entries, entry{})
		}
		x.entries[i] = entry{hash: hash, deployment: deployment, sibling: first}
		x.first[hash] = i
	}
	e := &x.entries[i]
	x.clock++
	e.used, e.stamp = now, x.clock
	e.older, e.newer = l.newest, 0
	if l.newest != 0 {
		x.entries[l.newest].newer = i
	} else {
		l.oldest = i
	}
	l.newest = i
	l.len++
}

func (x *index) unlink(l *list, i int32) {
	e := &x.entries[i]
	if e.older != 0 {
		x.entries[e.older].newer = e.newer
	} else {
		l.oldest = e.newer
	}
	if e.newer != 0 {
		x.entries[e.newer].older = e.older
	} else {
		l.newest = e.older
	}
	l.len--
}

// sweep forgets what is too old or too much.
func (x *index) sweep(now time.Duration) {
	if x.o.every > 0 {
		if now-x.swept < x.o.every {
			return
		}
		x.swept = now
	}
	for i := range x.lists {
		l := &x.lists[i]
		for l.oldest != 0 && (x.o.room > 0 && l.len*x.size > x.o.room || x.stale(&x.entries[l.oldest], now)) {
			x.forget(l, l.oldest)
		}
	}
}

func (x *index) forget(l *list, i int32) {
	x.unlink(l, i)
	e := &x.entries[i]
	if first := x.first[e.hash]; first != i {
		before := first
		for x.entries[before].sibling != i {
			before = x.entries[before].sibling
		}
		x.entries[before].sibling = e.sibling
	} else if e.sibling != 0 {
		x.first[e.hash] = e.sibling
	} else {
		delete(x.first, e.hash)
	}
	x.unused = append(x.unused, i)
}

// tokens returns how much a deployment's part holds.
func (x *index) tokens(deployment int) int { return x.list(int32(deployment)).len * x.size }
