package sim

import (
	"encoding/binary"
	"math"
	"time"

	"evenkeel/internal/trace"
)

// codec writes rows or reads them: one list of members serves for both. What it reads was written by this process, so that it
// does not check.
type codec struct {
	b       []byte // what is written, or what is left to read
	reading bool
	names   map[string]string // that were read: rows share their memory
}

const (
	word      = 8       // bytes
	mostNames = 1 << 16 // that are kept once for all rows
)

func (c *codec) int64(v *int64) {
	if !c.reading {
		c.b = binary.AppendVarint(c.b, *v)
		return
	}
	n := 0
	*v, n = binary.Varint(c.b)
	c.b = c.b[n:]
}

func (c *codec) int(v *int) {
	n := int64(*v)
	c.int64(&n)
	*v = int(n)
}

func (c *codec) duration(v *time.Duration) { c.int64((*int64)(v)) }

func (c *codec) word(v *uint64) {
	if !c.reading {
		c.b = binary.LittleEndian.AppendUint64(c.b, *v)
		return
	}
	*v, c.b = binary.LittleEndian.Uint64(c.b), c.b[word:]
}

func (c *codec) float(v *float64) {
	bits := math.Float64bits(*v)
	c.word(&bits)
	*v = math.Float64frombits(bits)
}

func (c *codec) flag(v *bool) {
	n := int64(0)
	if *v {
		n = 1
	}
	c.int64(&n)
	*v = n != 0
}

// bytes writes or reads text; what it returns is valid until the next call.
func (c *codec) bytes(v string) []byte {
	n := len(v)
	c.int(&n)
	if !c.reading {
		c.b = append(c.b, v...)
		return nil
	}
	text := c.b[:n]
	c.b = c.b[n:]
	return text
}

// text is for strings of which each row has another.
func (c *codec) text(v *string) {
	if text := c.bytes(*v); c.reading {
		*v = string(text)
	}
}

// name is for strings that many rows have.
func (c *codec) name(v *string) {
	text := c.bytes(*v)
	if !c.reading {
		return
	}
	known, ok := c.names[string(text)]
	if !ok {
		known = string(text)
		if len(c.names) < mostNames {
			c.names[known] = known
		}
	}
	*v = known
}

// count is for the length of a slice, which it makes when it reads; an empty one is nil.
func count[T any](c *codec, v *[]T) {
	n := len(*v)
	c.int(&n)
	if c.reading {
		*v = nil
		if n > 0 {
			*v = make([]T, n)
		}
	}
}

func (c *codec) row(r *Row) {
	c.duration(&r.At)
	c.int(&r.PromptTokens)
	c.int(&r.OutputTokens)
	count(c, &r.Blocks)
	for i := range r.Blocks {
		c.word(&r.Blocks[i])
	}
	recorded := r.Recorded != nil
	if c.flag(&recorded); !recorded {
		return
	}
	if c.reading {
		r.Recorded = &trace.Entry{}
	}
	if r.told == nil {
		r.told = &told{}
	}
	c.entry(r.Recorded)
	c.told(r.told)
	r.Model, r.Tenant, r.Session = r.Recorded.Model, r.Recorded.Tenant, r.Recorded.Session
}

func (c *codec) entry(e *trace.Entry) {
	micros := e.At.UnixMicro()
	if c.int64(&micros); c.reading {
		e.At = time.UnixMicro(micros).UTC()
	}
	c.text(&e.ID)
	for _, name := range []*string{&e.API, &e.Model, &e.Served, &e.Tenant, (*string)(&e.Result), &e.Code} {
		c.name(name)
	}
	c.word(&e.Session)
	c.flag(&e.Stream)
	for _, n := range []*int{&e.Bytes, &e.MaxOutput, &e.Retry, &e.ExpectedInput, &e.ExpectedOutput, &e.Prefix.Blocks, &e.Prefix.Known, &e.Status} {
		c.int(n)
	}
	for _, d := range []*time.Duration{&e.Queued, &e.First, &e.Total} {
		c.duration(d)
	}
	count(c, &e.Attempts)
	for i := range e.Attempts {
		a := &e.Attempts[i]
		c.name(&a.Deployment)
		c.name(&a.Strategy)
		c.name(&a.Class)
		for _, n := range []*int{&a.Eligible, &a.InFlight, &a.Input, &a.Cached, &a.Output} {
			c.int(n)
		}
		for _, b := range []*bool{&a.Trial, &a.Hedge, &a.Waste, &a.Estimated} {
			c.flag(b)
		}
		for _, d := range []*time.Duration{&a.Sent, &a.TTFT, &a.Took} {
			c.duration(d)
		}
	}
}

func (c *codec) told(t *told) {
	c.int(&t.block)
	c.float(&t.bytesPerToken)
	c.segments(&t.chain)
	c.segments(&t.next)
}

func (c *codec) segments(chain *[]trace.Segment) {
	count(c, chain)
	for i := range *chain {
		c.int(&(*chain)[i].Blocks)
		c.word(&(*chain)[i].Name)
	}
}
