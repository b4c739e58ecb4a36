package sim

import (
	"bufio"
	"encoding/binary"
	"io"
	"iter"
	"math"
	"time"

	"evenkeel/internal/trace"
)

// Trace is a recorded workload. It does not hold its rows in memory, if it was read with a Scratch: they are read one by one when
// they are needed. It may be used by several goroutines. If the Scratch fails to give back what was written, whatever reads rows
// panics: what has been simulated until then is worth nothing.
type Trace struct {
	BlockTokens int // tokens that one of Row.Blocks stands for; 0 = the trace says nothing of prefixes

	rows  *store
	n     int
	marks []mark        // of each markEvery-th row
	last  time.Duration // when the last row came

	recorded bool
	body     []byte // of the row that was added last: its memory is used again

	from   int           // row that comes first: those before it come after the last one
	first  time.Duration // when that one came
	before time.Duration // when the one before it came
}

// Row is one request of a trace.
type Row struct {
	At           time.Duration // since the first one
	PromptTokens int
	OutputTokens int
	Blocks       []uint64 // of the prompt, also one that is not full; nil in a recorded trace, of which Replay makes them

	// Of a recorded trace.
	Model, Tenant string
	Session       uint64
	Recorded      *trace.Entry
	told          *told
}

// mark is where a row is.
type mark struct {
	at  time.Duration
	off int64
}

const (
	markEvery   = 256      // rows
	lengthBytes = 4        // of a row's length, which comes before it
	readBytes   = 64 << 10 // that a cursor reads at once
)

func newTrace(block int, rows *store) *Trace { return &Trace{BlockTokens: block, rows: rows} }

// NewTrace returns a trace of those rows, which are in order of time, in memory.
func NewTrace(blockTokens int, rows ...Row) *Trace {
	t := newTrace(blockTokens, &store{})
	for i := range rows {
		if err := t.add(&rows[i]); err != nil {
			panic("BUG: sim: memory refuses a row: " + err.Error())
		}
	}
	return t
}

// add appends a row. It fails if the Scratch does.
func (t *Trace) add(r *Row) error {
	c := codec{b: append(t.body[:0], make([]byte, lengthBytes)...)}
	c.row(r)
	t.body = c.b
	binary.LittleEndian.PutUint32(c.b, uint32(len(c.b)-lengthBytes))
	if t.n%markEvery == 0 {
		t.marks = append(t.marks, mark{r.At, t.rows.size()})
	}
	if err := t.rows.append(c.b); err != nil {
		return tooLarge(err)
	}
	t.n++
	t.last, t.recorded = r.At, r.Recorded != nil
	return nil
}

// Len returns the number of rows.
func (t *Trace) Len() int { return t.n }

// Last returns when the last row comes.
func (t *Trace) Last() time.Duration {
	if t.from == 0 {
		return t.last
	}
	return t.before - t.first + lengthOf(t.last, t.n)
}

// lengthOf returns the time from the first of n rows to one mean gap after the last.
func lengthOf(last time.Duration, n int) time.Duration {
	return last + last/time.Duration(max(n-1, 1)) + 1
}

// IsRecorded reports whether the rows tell what became of them.
func (t *Trace) IsRecorded() bool { return t.recorded }

// From returns the trace that begins with another row of this one, counted from 0, and goes on with what was before it.
func (t *Trace) From(row int) *Trace {
	out := *t
	out.from, out.first, out.before = row, 0, 0
	if row > 0 {
		c := newCursor(t.whole(), row-1, readBytes)
		var r Row
		c.next(&r)
		out.before = r.At
		c.next(&r)
		out.first = r.At
	}
	return &out
}

// whole returns the trace as it was read.
func (t *Trace) whole() *Trace {
	out := *t
	out.from, out.first, out.before = 0, 0, 0
	return &out
}

// Rows returns all rows in order, with their numbers from 0.
func (t *Trace) Rows() iter.Seq2[int, Row] {
	return func(yield func(int, Row) bool) {
		c := newCursor(t, 0, readBytes)
		for i := range t.n {
			var r Row
			if c.next(&r); !yield(i, r) {
				return
			}
		}
	}
}

// cursor reads one row after the other. Use by one goroutine.
type cursor struct {
	trace *Trace
	at    int // the row that comes next; after the last one comes the first
	in    *bufio.Reader
	body  []byte
	codec codec
}

// newCursor returns a cursor before a row, which reads so many bytes at once.
func newCursor(t *Trace, row, buffer int) *cursor {
	c := &cursor{trace: t, codec: codec{reading: true, names: map[string]string{}}, in: bufio.NewReaderSize(nil, buffer)}
	c.seek(row)
	return c
}

// seek goes to a row.
func (c *cursor) seek(row int) {
	if c.at = row; c.trace.n == 0 {
		return
	}
	stored := (c.trace.from + row) % c.trace.n
	c.in.Reset(io.NewSectionReader(c.trace.rows, c.trace.marks[stored/markEvery].off, math.MaxInt64/2))
	for range stored % markEvery {
		c.skip()
	}
}

// next reads a row.
func (c *cursor) next(r *Row) {
	t := c.trace
	if c.at == t.n {
		c.seek(0)
	}
	stored := t.from + c.at
	if stored == t.n { // what is stored ends, and goes on at its beginning
		c.seek(c.at)
	}
	n := c.length()
	if cap(c.body) < n {
		c.body = make([]byte, n)
	}
	_, err := io.ReadFull(c.in, c.body[:n])
	c.check(err)
	c.codec.b = c.body[:n]
	*r = Row{}
	c.codec.row(r)
	if r.At -= t.first; stored >= t.n {
		r.At += lengthOf(t.last, t.n)
	}
	c.at++
}

func (c *cursor) skip() {
	_, err := c.in.Discard(c.length())
	c.check(err)
}

// length reads the length of a row.
func (c *cursor) length() int {
	head, err := c.in.Peek(lengthBytes)
	c.check(err)
	n := int(binary.LittleEndian.Uint32(head))
	_, err = c.in.Discard(lengthBytes)
	c.check(err)
	return n
}

func (c *cursor) check(err error) {
	if err != nil {
		panic(lost(err))
	}
}
