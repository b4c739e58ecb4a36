package peers

import (
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/sim"
)

// dynamo is the KV router of NVIDIA Dynamo (lib/kv-router/src/scheduling/selector, 1.5). It takes the lowest cost, at random of equals
// (temperature 0), in blocks:
//
//	prefill_load_scale · max(prefill + prompt − 1.0·cached, 0) + decode
//
// prefill is the tokens of requests there that have no first token yet, without what was cached; decode the distinct blocks that the
// running requests would hold with this one, of their prompts (router_track_output_blocks is off). The weight of active requests and
// the decay of the credit are 0 by default. The alternative lmetric multiplies: prefill term · (decode + 1).
//
// What is cached it knows from the engines' KV events; without them, it is what was sent there in the last 120 s.
type dynamo struct {
	books
	o      dynamoOptions
	active *activeBlocks
	shared []int
}

type dynamoOptions struct {
	noDecode bool
	product  bool // lmetric
	approx   bool // --no-kv-events
}

const dynamoTTL = 120 * time.Second // router_ttl_secs, without events

func newDynamo(o dynamoOptions) func(sim.Vantage) sim.Policy {
	return func(at sim.Vantage) sim.Policy {
		var x *indexOptions
		if o.approx {
			x = &indexOptions{idle: dynamoTTL}
		}
		b := newBooks(at, x)
		b.events = !o.approx
		n := len(at.IDs)
		return &dynamo{b, o, newActiveBlocks(n), make([]int, n)}
	}
}

func (*dynamo) String() string { return "dynamo" }

// Learn implements sim.Policy.
func (p *dynamo) Learn(n *sim.Notice) {
	p.note(n)
	switch n.Kind {
	case sim.Sent:
		p.active.add(n.Request.Prompt, n.Deployment)
	case sim.Over:
		p.active.remove(n.Request.Prompt, n.Deployment)
	}
}

// Pick implements route.Strategy.
func (p *dynamo) Pick(r *route.Round) int {
	a := p.round(r)
	chain := a.request.Prompt
	p.active.shares(chain, p.shared)
	block := float64(max(a.request.BlockTokens, 1))
	return anyOf(r, func(i int) float64 {
		d := p.who[i]
		prefill := float64(max(p.workers[d].uncached+p.missing(a, i), 0)) / block
		decode := float64(p.active.count[d] + len(chain) - p.shared[d])
		switch {
		case p.o.product:
			r.Note(i, "prefill_blocks*(decode_blocks+1)", prefill*(decode+1))
			return prefill * (decode + 1)
		case p.o.noDecode:
			decode = 0
		}
		r.Note(i, "prefill_blocks", prefill)
		r.Note(i, "decode_blocks", decode)
		return prefill + decode
	})
}

// activeBlocks counts the distinct blocks of the prompts that run at each deployment.
type activeBlocks struct {
	holders map[uint64][]holder
	count   []int // by deployment
}

type holder struct{ deployment, requests int32 }

func newActiveBlocks(deployments int) *activeBlocks {
	return &activeBlocks{map[uint64][]holder{}, make([]int, deployments)}
}

func (a *activeBlocks) add(chain []uint64, deployment int) {
next:
	for _, h := range chain {
		hs := a.holders[h]
		for i := range hs {
			if int(hs[i].deployment) == deployment {
				hs[i].requests++
				continue next
			}
		}
		a.holders[h] = append(hs, holder{int32(deployment), 1})
		a.count[deployment]++
	}
}

func (a *activeBlocks) remove(chain []uint64, deployment int) {
	for _, h := range chain {
		hs := a.holders[h]
		for i := range hs {
			if int(hs[i].deployment) != deployment {
				continue
			}
			if hs[i].requests--; hs[i].requests == 0 {
				a.count[deployment]--
				hs[i] = hs[len(hs)-1]
				if hs = hs[:len(hs)-1]; len(hs) == 0 {
					delete(a.holders, h)
				} else {
					a.holders[h] = hs
				}
			}
			break
		}
	}
}

// shares sets n[d] to how many blocks of a prompt requests at deployment d hold already.
func (a *activeBlocks) shares(chain []uint64, n []int) {
	clear(n)
	for _, h := range chain {
		for _, x := range a.holders[h] {
			n[x.deployment]++
		}
	}
}
