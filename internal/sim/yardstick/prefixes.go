package yardstick

import "evenkeel/internal/sim"

// node is a block of prompts together with all that comes before it.
type node struct {
	hash  uint64
	child int32 // one of those that continue it, 0 = none does
	first int32 // index of the first request that has it in its prompt or brings it with its answer

	second int32 // index of the second request with it in its prompt, -1 = there is none
	passes int32 // requests with it in their prompt
	answer bool  // some answer brings it
	again  bool  // an answer brings it that was not the first to
	last   int32 // index of the last request so far with it in its prompt, -1 = there was none; for memory
}

// prefixes is the tree of all blocks of a workload. Node 0 is what all first blocks continue.
type prefixes struct {
	nodes    []node
	branches map[branch]int32 // where more than one block continues another: the others
}

type branch struct {
	parent int32
	hash   uint64
}

func newPrefixes(requests []sim.Request) *prefixes {
	p := &prefixes{nodes: make([]node, 1, 1024), branches: map[branch]int32{}}
	for i := range requests {
		at := int32(0)
		for _, h := range requests[i].Prompt {
			at = p.enter(at, h, int32(i))
			n := &p.nodes[at]
			if n.passes++; n.passes == 2 {
				n.second = int32(i)
			}
		}
		for _, h := range requests[i].Output {
			at = p.enter(at, h, int32(i))
			n := &p.nodes[at]
			n.answer, n.again = true, n.again || n.first != int32(i)
		}
	}
	return p
}

// find returns the block that continues parent with this hash, or 0.
func (p *prefixes) find(parent int32, hash uint64) int32 {
	c := p.nodes[parent].child
	if c == 0 || p.nodes[c].hash == hash {
		return c
	}
	return p.branches[branch{parent, hash}]
}

func (p *prefixes) enter(parent int32, hash uint64, request int32) int32 {
	if at := p.find(parent, hash); at != 0 {
		return at
	}
	at := int32(len(p.nodes))
	p.nodes = append(p.nodes, node{hash: hash, first: request, second: -1, last: -1})
	if p.nodes[parent].child == 0 {
		p.nodes[parent].child = at
	} else {
		p.branches[branch{parent, hash}] = at
	}
	return at
}

// path appends the nodes of a prompt, which has been entered.
func (p *prefixes) path(prompt []uint64, nodes []int32) []int32 {
	at := int32(0)
	for _, h := range prompt {
		at = p.find(at, h)
		nodes = append(nodes, at)
	}
	return nodes
}

// parts reports whether some request has node a in its prompt, and not b, which continues it; then an engine may have computed the one
// and not the other.
func (p *prefixes) parts(a, b int32) bool {
	x, y := &p.nodes[a], &p.nodes[b]
	return x.passes != y.passes || x.answer != y.answer
}
