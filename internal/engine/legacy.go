package engine

import (
	"container/list"
	"math"
)

// sessionCache is the memory of Legacy: no limit for what runs, and a cache of whole sequences, least recently used first, that is
// Blocks blocks large. A sequence that continues a cached one takes its place; what two sequences share is counted twice.
type sessionCache struct {
	blockTokens, capacity int

	entries *list.List               // of []uint64: the hashes of a sequence; the front was used last
	ends    map[uint64]*list.Element // by the last hash of the sequence
	known   map[uint64]int           // in how many entries a hash is

	used, cached int // blocks
}

func newSessionCache(c Config) *sessionCache {
	return &sessionCache{
		blockTokens: c.BlockTokens, capacity: c.Blocks,
		entries: list.New(), ends: make(map[uint64]*list.Element), known: make(map[uint64]int),
	}
}

func (k *sessionCache) admit(j *job, _ bool) bool {
	j.kv = k.matched(j) * k.blockTokens
	j.blocks = blocksOf(j.target, k.blockTokens)
	k.take(j.blocks)
	return true
}

// matched is how many blocks of j are cached, from the start.
func (k *sessionCache) matched(j *job) (n int) {
	for most := (j.target - 1) / k.blockTokens; n < most; n++ {
		if h, ok := j.hash(n); !ok || k.known[h] == 0 {
			break
		}
	}
	return n
}

// room says that nothing is ever lacking.
func (k *sessionCache) room() int { return math.MaxInt }

func (k *sessionCache) take(blocks int) { k.used += blocks }

func (k *sessionCache) computed(j *job) {
	if j.decoding() {
		k.keep(j)
	}
}

func (k *sessionCache) release(j *job) {
	k.keep(j)
	k.used -= j.blocks
	j.blocks, j.kv = 0, 0
}

// keep enters j's sequence, and drops the ones it continues and what is too much.
func (k *sessionCache) keep(j *job) {
	var chain []uint64
	for i := range j.kv / k.blockTokens {
		h, ok := j.hash(i)
		if !ok {
			break
		}
		chain = append(chain, h)
		if e := k.ends[h]; e != nil {
			k.drop(e)
		}
	}
	if len(chain) == 0 {
		return
	}
	k.ends[chain[len(chain)-1]] = k.entries.PushFront(chain)
	for _, h := range chain {
		k.known[h]++
	}
	k.cached += len(chain)
	for k.cached > k.capacity {
		k.drop(k.entries.Back())
	}
}

func (k *sessionCache) drop(e *list.Element) {
	chain := k.entries.Remove(e).([]uint64)
	delete(k.ends, chain[len(chain)-1])
	for _, h := range chain {
		if k.known[h]--; k.known[h] == 0 {
			delete(k.known, h)
		}
	}
	k.cached -= len(chain)
}

func (k *sessionCache) usage() (used, cached int) { return k.used, k.cached }
