package sim

import (
	"fmt"
	"slices"
	"time"

	"evenkeel/internal/engine"
)

// Engine is the Server that package engine models.
type Engine struct {
	e       *engine.Engine
	block   int // tokens
	reports []Report
}

// NewEngine returns an idle engine with an empty cache. Config.BlockTokens must divide the blocks of the workload, or they it.
func NewEngine(c engine.Config) (*Engine, error) {
	e, err := engine.New(c)
	if err != nil {
		return nil, err
	}
	return &Engine{e: e, block: c.BlockTokens}, nil
}

// Submit implements Server.
func (e *Engine) Submit(now time.Duration, j Job) error {
	s, err := e.Sequence(j.Request)
	if err != nil {
		return err
	}
	s.ID = j.ID
	return e.e.Submit(now, s)
}

// Sequence returns a request as engines with blocks of BlockTokens take it.
func (e *Engine) Sequence(r *Request) (engine.Sequence, error) {
	s := engine.Sequence{PromptTokens: r.PromptTokens, OutputTokens: r.OutputTokens, Prompt: r.Prompt, Output: r.Output}
	if r.BlockTokens != e.block && len(r.Prompt)+len(r.Output) > 0 {
		chain, err := rehash(slices.Concat(r.Prompt, r.Output), r.BlockTokens, e.block)
		if err != nil {
			return s, err
		}
		full := r.PromptTokens / e.block
		prompt := min(full, len(chain))
		s.Prompt, s.Output = chain[:prompt], nil
		if prompt == full { // else the end of the prompt has no hash, nor has what follows
			s.Output = chain[prompt:min(len(chain), (r.PromptTokens+r.OutputTokens)/e.block)]
		}
	}
	return s, nil
}

// BlockTokens returns the size of the engine's blocks.
func (e *Engine) BlockTokens() int { return e.block }

// Cached returns how many tokens of a Sequence's prompt the engine has in its cache, as its KV events tell routers that take them.
func (e *Engine) Cached(s *engine.Sequence) int { return e.e.Cached(s) }

// rehash turns a chain of blocks of some size into one of blocks of another size.
func rehash(chain []uint64, from, to int) ([]uint64, error) {
	var out []uint64
	switch {
	case from > 0 && from%to == 0: // each block has parts
		parts := from / to
		out = make([]uint64, 0, len(chain)*parts)
		for _, h := range chain {
			first := mix(h) // traces number their blocks: what is next to h is another block
			for i := range parts {
				out = append(out, mix(first+uint64(i)))
			}
		}
	case from > 0 && to%from == 0: // the last of some blocks stands for all before it
		for i := to/from - 1; i < len(chain); i += to / from {
			out = append(out, chain[i])
		}
	default:
		return nil, fmt.Errorf("the workload has blocks of %d tokens and the engine blocks of %d: one must be a multiple of the other", from, to)
	}
	return out, nil
}

// Cancel implements Server.
func (e *Engine) Cancel(now time.Duration, id uint64) bool { return e.e.Cancel(now, id) }

// Next implements Server.
func (e *Engine) Next() (time.Duration, bool) { return e.e.Next() }

// Answer implements Grower.
func (e *Engine) Answer(id uint64) engine.Answer { return e.e.Answer(id) }

// Produced returns how many output tokens of a job are out, 0 if the engine does not have it.
func (e *Engine) Produced(now time.Duration, id uint64) int {
	if a := e.e.Answer(id); a != nil {
		return a.Generated(now)
	}
	return 0
}

// Slow implements Slower.
func (e *Engine) Slow(now time.Duration, factor float64) { e.e.Slow(now, factor) }

// Load returns what the engine's metrics would say.
func (e *Engine) Load(now time.Duration) engine.Load { return e.e.Load(now) }

// Step implements Server.
func (e *Engine) Step(now time.Duration) []Report {
	e.reports = e.reports[:0]
	for _, x := range e.e.Step(now) {
		switch x.Kind {
		case engine.FirstToken:
			e.reports = append(e.reports, Report{Kind: FirstToken, ID: x.ID, Cached: x.CachedTokens, Tokens: x.Tokens})
		case engine.Done:
			e.reports = append(e.reports, Report{Kind: Done, ID: x.ID, Cached: x.CachedTokens, Tokens: x.Tokens})
		}
	}
	return e.reports
}
