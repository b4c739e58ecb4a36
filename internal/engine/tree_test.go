package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// paths are blocks that are found by all that comes before them, and the order in which they are evicted: what a blockCache is,
// block by block.
type paths struct {
	refs     map[string]int
	idle     []string // the first to be evicted first
	capacity int
	private  int
}

// names returns what stands for the first n blocks of j that have a hash.
func names(j *job, n int) (all []string) {
	path := ""
	for i := range n {
		h, ok := j.hash(i)
		if !ok {
			break
		}
		path += fmt.Sprintf("/%x", h)
		all = append(all, path)
	}
	return all
}

func (p *paths) match(j *job, most int) []string {
	all := names(j, most)
	for i, name := range all {
		if _, ok := p.refs[name]; !ok {
			return all[:i]
		}
	}
	return all
}

func (p *paths) pin(name string) {
	if p.refs[name]++; p.refs[name] == 1 {
		if at := slices.Index(p.idle, name); at >= 0 {
			p.idle = slices.Delete(p.idle, at, at+1)
		}
	}
}

func (p *paths) unpin(name string) {
	if p.refs[name]--; p.refs[name] == 0 {
		p.idle = append(p.idle, name)
	}
}

func (p *paths) evict() {
	for len(p.refs)+p.private > p.capacity {
		delete(p.refs, p.idle[0])
		p.idle = p.idle[1:]
	}
}

// holder is a job and the blocks that it holds of paths.
type holder struct {
	*job
	held []string
}

// computed holds what a job has computed, as one that nobody else computed or as the same block of another one.
func (p *paths) computed(h *holder, blocks int) {
	for _, name := range names(h.job, blocks)[len(h.held):] {
		p.pin(name)
		p.private--
		h.held = append(h.held, name)
	}
}

// admit gives h what is found of its prompt and the rest as private blocks, if there is room.
func (p *paths) admit(h *holder, blockTokens int) bool {
	found := p.match(h.job, (h.target-1)/blockTokens)
	total, idle := (h.target+blockTokens-1)/blockTokens, 0
	for _, name := range found {
		if p.refs[name] == 0 {
			idle++
		}
	}
	if p.capacity-p.private-(len(p.refs)-len(p.idle))-idle < total-len(found) {
		return false
	}
	for _, name := range found {
		p.pin(name)
		h.held = append(h.held, name)
	}
	p.private += total - len(found)
	p.evict()
	return true
}

func (p *paths) release(h *holder, blocks int) {
	p.computed(h, blocks)
	p.private -= h.blocks - len(h.held)
	for _, name := range slices.Backward(h.held) {
		p.unpin(name)
	}
}

// parting draws a request of so many blocks that begins like one of four others, and parts from it somewhere.
func parting(r *rand.Rand, blocks, blockTokens int) Sequence {
	prompt := 1 + r.IntN(blocks*blockTokens)
	hashes := make([]uint64, blocks)
	source, part := r.Uint64N(4), r.IntN(blocks+1)
	for i := range hashes {
		if hashes[i] = source; i >= part {
			hashes[i] = source + 10*(1+uint64(part%3))
		}
	}
	full := prompt / blockTokens
	return Sequence{
		Prompt: hashes[:full], Output: hashes[full:], PromptTokens: prompt, OutputTokens: blocks*blockTokens - prompt + 1,
	}
}

// TestCacheIsBlocks compares the cache with one of single blocks, over prompts that share their starts and part, also within what one of
// them added at once, outputs that others ask for, and segments of more than the longest.
func TestCacheIsBlocks(t *testing.T) {
	const blockTokens = 4
	r := rand.New(rand.NewPCG(1, 0))
	for round := range 40 {
		capacity := []int{60, 200, 2500}[round%3]
		k := newBlockCache(Config{BlockTokens: blockTokens, Blocks: capacity})
		p := &paths{refs: map[string]int{}, capacity: capacity}
		var running []*holder
		splits := 0
		check := func(what string) {
			t.Helper()
			pinned := len(p.refs) - len(p.idle)
			if k.private != p.private || k.pinned != pinned || k.cached != len(p.idle) {
				t.Fatalf("%s: private %d, pinned %d, cached %d, want %d, %d, %d", what, k.private, k.pinned, k.cached, p.private, pinned, len(p.idle))
			}
			splits = max(splits, len(k.segments)-len(k.unused))
		}
		for n := range 300 {
			long := capacity / 3
			if n%10 == 0 {
				long = capacity - 2
			}
			h := &holder{job: &job{Sequence: parting(r, 1+r.IntN(long), blockTokens)}}
			h.target = h.PromptTokens
			fits := p.admit(h, blockTokens)
			if got := k.admit(h.job, true); got != fits || fits && h.job.held != len(h.held) {
				t.Fatalf("admitted: %v, want %v; found %d blocks, want %d", got, fits, h.job.held, len(h.held))
			}
			if fits {
				running = append(running, h)
			}
			check("admit")
			for at := 0; at < len(running); at++ {
				h := running[at]
				switch r.IntN(3) {
				case 0: // more of the prompt, and then of the output
					h.kv = min(h.kv+r.IntN(30), h.target)
					more := blocksOf(h.target+1, blockTokens) - h.blocks
					if h.kv == h.target && more <= k.room() && h.target < h.PromptTokens+h.OutputTokens-1 {
						h.target++
						h.blocks += more
						k.take(more)
						p.private += more
						p.evict()
					}
					if full := h.kv / blockTokens; full <= len(h.Prompt) {
						k.computed(h.job)
						p.computed(h, full)
					}
				case 1:
					if !fits || r.IntN(4) == 0 {
						p.release(h, h.kv/blockTokens)
						k.release(h.job)
						running = slices.Delete(running, at, at+1)
						at--
					}
				}
				check("step")
			}
		}
		if splits < 10 {
			t.Fatalf("%d segments at most: the prompts do not part", splits)
		}
	}
}

// TestTreeGrows: where many sequences begin, the table grows and finds them all.
func TestTreeGrows(t *testing.T) {
	tree := newTree()
	var all []int32
	for h := range uint64(1000) {
		i, n := tree.add(0, []uint64{h, 1, 2}, true)
		if n != 3 {
			t.Fatalf("%d blocks added, want 3", n)
		}
		all = append(all, i)
	}
	if len(tree.heads) < 512 || tree.blocks != 3000 {
		t.Errorf("%d heads, %d blocks", len(tree.heads), tree.blocks)
	}
	for h, i := range all {
		if h%2 == 0 {
			all[h] = tree.split(i, 1)
		} else if !tree.cut(i, 3) {
			t.Fatal("a segment of which all is cut off is still there")
		}
	}
	for h, i := range all {
		want := i
		if h%2 == 1 {
			want = 0
		}
		if got := tree.find(0, uint64(h)); got != want {
			t.Fatalf("find(%d) = %d, want %d", h, got, want)
		}
		if h%2 == 0 && (tree.common(i, 0, []uint64{uint64(h), 1}) != 1 || tree.find(i, 1) == 0) {
			t.Fatalf("segment %d does not go on", i)
		}
	}
}
