package sim

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/trace"
)

const (
	// recordedBlock is the tokens of a block of a recorded trace: what llm.PrefixBlock bytes of text come to.
	recordedBlock = 64
	// A token is at least leastBytes of text and at most mostBytes: what lies beyond is a miscount.
	leastBytes, mostBytes = 1, 32
	// rememberedEnds is how many places where prompts end are remembered at least, to find the turn that goes on from there.
	rememberedEnds = 1 << 16
)

// ReadRecorded reads what a balancer has recorded of its own traffic (package trace), whatever the order of the lines. Rows are in order
// of arrival, and each has the exchange as it was. What asked for no tokens, such as a list of files, is left out. An error names
// the file, the line and what was expected. What it reads is kept in scratch, nil = in memory; what else it takes is bounded.
//
// Where an engine told no number of tokens, the prompt has as many as its text suggests, by what was told of others for the same
// model, and an answer that did not come to its end as many as were expected of it, if that is more than came. If there is
// one way alone to go on from where a prompt ended, and the first that takes it came after the answer, it is taken to be the next
// turn, which holds the answer.
func ReadRecorded(r io.Reader, file string, scratch Scratch) (*Trace, error) {
	rec := recorded{
		reader: trace.NewReader(r, file), chains: trace.NewChains(), models: map[string]*measured{}, lines: lines{store: store{scratch: scratch}},
	}
	rec.ends = trace.NewRecent[*trace.Chain](rememberedEnds, rec.settle)
	for {
		e := new(trace.Entry)
		err := rec.reader.Next(e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := rec.within(e.At); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, rec.reader.Line(), err)
		}
		if rec.add(e); rec.err != nil {
			return nil, fmt.Errorf("%s: %w", file, rec.err)
		}
	}
	if rec.lines.n == 0 {
		return nil, fmt.Errorf("%s: it holds no request", file)
	}
	t, err := rec.trace()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// recorded gathers the rows of a recorded trace.
type recorded struct {
	reader *trace.Reader
	chains *trace.Chains
	lines  lines
	ends   *trace.Recent[*trace.Chain, *end]
	models map[string]*measured
	err    error // of lines

	from, to time.Time // when the first and the last one came
}

// within takes an arrival, if it is not far from all others.
func (r *recorded) within(at time.Time) error {
	if r.from.IsZero() {
		r.from, r.to = at, at
	}
	if at.Before(r.from) {
		r.from = at
	}
	if at.After(r.to) {
		r.to = at
	}
	if span := r.to.Sub(r.from); span > mostTime {
		return fmt.Errorf("at is %v from that of another line, expected at most %v", span, mostTime)
	}
	return nil
}

// told is what a recorded trace tells of a prompt's blocks.
type told struct {
	chain         []trace.Segment
	next          []trace.Segment // how the prompt that goes on from there with the answer does so; nil = there is none
	block         int             // bytes of one
	bytesPerToken float64
}

// end is a place where prompts end. Prompts are named by where they are in lines.
type end struct {
	last int64     // that ended there
	over time.Time // when its exchange was

	child *trace.Chain // the way on from there; nil = there is none
	owner int64        // the last that had ended there when the first prompt took that way, the turn before; -1 = it was not over
	next  int64        // the prompt that took it
	many  bool         // there are several ways on, as behind a system prompt
}

// measured is how long the tokens of a model are.
type measured struct{ bytes, tokens float64 }

func (m *measured) bytesPerToken() float64 {
	if m.tokens == 0 {
		return proseBytes
	}
	return min(max(m.bytes/m.tokens, leastBytes), mostBytes)
}

// add takes an exchange.
func (r *recorded) add(e *trace.Entry) {
	m := r.models[e.Model]
	if m == nil {
		m = &measured{}
		r.models[e.Model] = m
	}
	last := e.Last()
	if last != nil && !last.Estimated && last.Input > 0 && e.Bytes > 0 {
		m.bytes, m.tokens = m.bytes+float64(e.Bytes), m.tokens+float64(last.Input)
	}
	if e.Bytes == 0 && (last == nil || last.Input == 0) {
		return
	}
	h := r.reader.Header()
	chain := r.chains.Of(h.Key, &e.Prefix)
	at, err := r.lines.add(&Row{Recorded: e, told: &told{chain: chain.Segments(nil), block: h.BlockBytes}})
	if err != nil {
		r.err = err
		return
	}
	r.place(chain, at, e)
}

// place notes where a prompt ends, and which ends it goes on from.
func (r *recorded) place(chain *trace.Chain, prompt int64, e *trace.Entry) {
	if chain == nil {
		return
	}
	for c, before := chain, chain.Before(); before != nil; c, before = before, before.Before() {
		switch from, known := r.ends.Get(before); {
		case !known:
		case from.child == nil:
			from.child = c
			if !e.At.Before(from.over) {
				from.owner, from.next = from.last, prompt
			}
		case from.child != c:
			from.many = true
		}
	}
	at, known := r.ends.Get(chain)
	if !known {
		at = &end{owner: -1}
		r.ends.Put(chain, at)
	}
	at.last, at.over = prompt, e.At.Add(e.Total)
}

// settle takes an end of which no more will be known.
func (r *recorded) settle(e *end) {
	if e.owner >= 0 && !e.many && r.err == nil {
		r.err = r.lines.link(e.owner, e.next)
	}
}

// trace returns the rows in order, once all lines were read.
func (r *recorded) trace() (*Trace, error) {
	if r.ends.Forget(); r.err != nil {
		return nil, r.err
	}
	t := newTrace(recordedBlock, r.lines.after())
	err := r.lines.inOrder(func(row *Row) error {
		row.At = row.Recorded.At.Sub(r.from)
		row.told.bytesPerToken = r.models[row.Model].bytesPerToken()
		row.count()
		return t.add(row)
	})
	return t, err
}

// count finds how many tokens a recorded request had.
func (r *Row) count() {
	e := r.Recorded
	input, output := 0, 0
	if last := e.Last(); last != nil {
		output = last.Output
		if !last.Estimated {
			input = last.Input
		}
	}
	if input == 0 && e.Bytes > 0 {
		input = int(math.Round(float64(e.Bytes) / r.told.bytesPerToken))
	}
	if input == 0 {
		input = e.ExpectedInput
	}
	if e.Result != exchange.Complete {
		output = max(output, e.ExpectedOutput)
	}
	r.PromptTokens, r.OutputTokens = min(max(input, 1), mostTokens), min(max(output, 1), mostTokens)
}

// blocks returns the chain of the prompt's whole blocks, and how it goes on with the answer, as far as that is known.
func (t *told) blocks(prompt, output int) (promptChain, outputChain []uint64) {
	full := prompt / recordedBlock
	if t.next == nil {
		return t.tokens(t.chain, full), nil
	}
	all := t.tokens(append(t.chain[:len(t.chain):len(t.chain)], t.next...), (prompt+output)/recordedBlock)
	full = min(full, len(all))
	return all[:full:full], all[full:]
}

// tokens returns up to most blocks of recordedBlock tokens each of a chain whose blocks are some bytes. Each has a number that
// stands for all the text up to its end.
func (t *told) tokens(chain []trace.Segment, most int) []uint64 {
	if len(chain) == 0 {
		return nil
	}
	text := trace.Blocks(nil, chain)
	perBlock := recordedBlock * t.bytesPerToken / float64(t.block)
	var tokens []uint64
	for n := 1; n <= most; n++ {
		needed := int(math.Ceil(float64(n) * perBlock))
		if needed > len(text) {
			break
		}
		tokens = append(tokens, mix(text[needed-1]+uint64(n)))
	}
	return tokens
}
