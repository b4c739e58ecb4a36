package sim

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/trace"
)

const (
	// recordedBlock is the tokens of a block of a recorded trace: what llm.PrefixBlock bytes of text come to.
	recordedBlock = 64
	// A token is at least leastBytes of text and at most mostBytes: what lies beyond is a miscount.
	leastBytes, mostBytes = 1, 32
)

// ReadRecorded reads what a balancer has recorded of its own traffic (package trace). Rows are in order of arrival, and each has
// the exchange as it was. What asked for no tokens, such as a list of files, is left out. An error names the file, the line and
// what was expected.
//
// Where an engine told no number of tokens, the prompt has as many as its text suggests, by what was told of others for the same
// model, and an answer that did not come to its end as many as were expected of it, if that is more than came. If there is
// one way alone to go on from where a prompt ended, and the first that takes it came after the answer, it is taken to be the next
// turn, which holds the answer.
func ReadRecorded(r io.Reader, file string) (*Trace, error) {
	rec := recorded{
		reader: trace.NewReader(r, file), chains: trace.NewChains(), ends: map[*trace.Chain]*end{}, models: map[string]*measured{},
	}
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
		rec.add(e)
	}
	for _, e := range rec.ends {
		if e.owner != nil && !e.many {
			e.owner.next = e.next
		}
	}
	if len(rec.rows) == 0 {
		return nil, fmt.Errorf("%s: it holds no request", file)
	}
	slices.SortStableFunc(rec.rows, func(a, b Row) int { return a.Recorded.At.Compare(b.Recorded.At) })
	first := rec.rows[0].Recorded.At
	for i := range rec.rows {
		row := &rec.rows[i]
		row.At = row.Recorded.At.Sub(first)
		row.count()
	}
	return &Trace{Rows: rec.rows, BlockTokens: recordedBlock}, nil
}

// recorded gathers the rows of a recorded trace.
type recorded struct {
	reader *trace.Reader
	chains *trace.Chains
	rows   []Row
	ends   map[*trace.Chain]*end
	models map[string]*measured

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
	chain *trace.Chain
	next  *trace.Chain // of the prompt that goes on from there with the answer; nil = there is none
	block int          // bytes of one
	model *measured
}

// end is a place where prompts end.
type end struct {
	last *told
	over time.Time // when the exchange of last was

	child *trace.Chain // the way on from there; nil = there is none
	owner *told        // of the first prompt that took it, the turn before
	next  *trace.Chain // and its chain
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

// add takes an exchange, which it keeps.
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
	t := &told{chain: r.chains.Of(h.Key, &e.Prefix), block: h.BlockBytes, model: m}
	r.place(t, e)
	e.Prefix.Hashes = nil // chain has them
	r.rows = append(r.rows, Row{Model: e.Model, Tenant: e.Tenant, Session: e.Session, Recorded: e, told: t})
}

// place notes where a prompt ends, and which ends it goes on from.
func (r *recorded) place(t *told, e *trace.Entry) {
	if t.chain == nil {
		return
	}
	for c, before := t.chain, t.chain.Before(); before != nil; c, before = before, before.Before() {
		switch from := r.ends[before]; {
		case from == nil:
		case from.child == nil:
			from.child = c
			if !e.At.Before(from.over) {
				from.owner, from.next = from.last, t.chain
			}
		case from.child != c:
			from.many = true
		}
	}
	at := r.ends[t.chain]
	if at == nil {
		at = &end{}
		r.ends[t.chain] = at
	}
	at.last, at.over = t, e.At.Add(e.Total)
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
		input = int(math.Round(float64(e.Bytes) / r.told.model.bytesPerToken()))
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
	all := t.tokens(t.next, (prompt+output)/recordedBlock)
	full = min(full, len(all))
	return all[:full:full], all[full:]
}

// tokens returns up to most blocks of recordedBlock tokens each of a chain whose blocks are some bytes. Each has a number that
// stands for all the text up to its end.
func (t *told) tokens(c *trace.Chain, most int) []uint64 {
	text := c.Append(nil)
	perBlock := recordedBlock * t.model.bytesPerToken() / float64(t.block)
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
