package trace

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"evenkeel/internal/exchange"
)

// What a reader accepts at most.
const (
	mostLine     = 16 << 20 // bytes
	mostTokens   = 1 << 24  // of a prompt or an answer
	mostBytes    = 1 << 40  // of a prompt
	mostSeconds  = 10 * 365 * 24 * 3600
	mostUnix     = 1 << 34 // seconds since 1970
	mostAttempts = 1000
	mostNames    = 1 << 16 // that are kept once for all entries
)

// example is a line as small as one can be.
const example = `{"at":1790000000.5,"result":"complete","total":1.5,"attempts":[{"to":"gpu-1/m","took":1.5,"input":600,"output":50}]}`

// Reader reads what a balancer recorded. Use by one goroutine.
type Reader struct {
	lines  *bufio.Reader
	file   string
	n      int // lines
	header Header
	names  map[string]string
	line   []byte
	points []int
}

// NewReader returns a Reader of a trace; file is what errors call it.
func NewReader(r io.Reader, file string) *Reader {
	return &Reader{lines: bufio.NewReaderSize(r, 64<<10), file: file, names: map[string]string{}}
}

// Begins reports whether a file whose first bytes are start can be a recorded trace.
func Begins(start []byte) bool { return bytes.HasPrefix(start, []byte(headerMember)) }

// Header returns the header that the last entry stands under.
func (r *Reader) Header() Header { return r.header }

// Line returns the number of the line that was read last, from 1.
func (r *Reader) Line() int { return r.n }

// Next reads the next exchange. After the last one it returns io.EOF. Any other error names the file, the line and what was
// expected. Members that are not known are ignored. So is a line that was not written to its end: the last one, without a line
// break, or one before a header, with which a writer goes on after it could not write.
func (r *Reader) Next(e *Entry) error {
	for {
		line, whole, err := r.read()
		if err != nil {
			return err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		switch {
		case Begins(line):
			err = r.takeHeader(line)
		case r.header.Version == 0:
			err = fmt.Errorf("the first line is no header, expected one such as %s", bytes.TrimSpace(AppendHeader(nil, &Header{Version, "1.0", "9f86d081", 256})))
		default:
			if err = r.entry(line, e); err == nil {
				return nil
			}
		}
		switch {
		case err != nil && !whole:
			return io.EOF
		case err != nil && r.tornOff():
		case err != nil:
			return fmt.Errorf("%s:%d: %w", r.file, r.n, err)
		}
	}
}

// read returns the next line, and whether a line break ends it.
func (r *Reader) read() (line []byte, whole bool, err error) {
	r.line = r.line[:0]
	r.n++
	for {
		part, err := r.lines.ReadSlice('\n')
		r.line = append(r.line, part...)
		switch {
		case len(r.line) > mostLine:
			return nil, false, fmt.Errorf("%s:%d: a line of more than %d MiB, expected one exchange per line", r.file, r.n, mostLine>>20)
		case err == nil:
			return r.line, true, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(r.line) > 0:
			return r.line, false, nil
		case errors.Is(err, io.EOF):
			return nil, false, io.EOF
		default:
			return nil, false, fmt.Errorf("%s:%d: %w", r.file, r.n, err)
		}
	}
}

// tornOff reports whether a header is next.
func (r *Reader) tornOff() bool {
	next, _ := r.lines.Peek(len(headerMember)) // at the end of the file there are fewer
	return Begins(next)
}

func (r *Reader) takeHeader(line []byte) error {
	var h struct {
		Version    int    `json:"evenkeel_trace"`
		Program    string `json:"program"`
		Key        string `json:"key"`
		BlockBytes int    `json:"block_bytes"`
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return fmt.Errorf("the header cannot be read: %w", err)
	}
	switch {
	case h.Version != Version:
		return fmt.Errorf("a trace of version %d, expected %d: it was written by another version of Evenkeel (%.40q), read it with that one", h.Version, Version, h.Program)
	case h.BlockBytes < 1 || h.BlockBytes > 1<<20:
		return fmt.Errorf("block_bytes is %d, expected 1 to %d", h.BlockBytes, 1<<20)
	}
	r.header = Header{h.Version, h.Program, h.Key, h.BlockBytes}
	return nil
}

// wire is a line as encoding/json reads it.
type wire struct {
	At        *float64 `json:"at"`
	ID        string   `json:"id"`
	API       string   `json:"api"`
	Model     string   `json:"model"`
	Served    string   `json:"served"`
	Tenant    string   `json:"tenant"`
	Session   string   `json:"session"`
	Stream    bool     `json:"stream"`
	Bytes     int      `json:"bytes"`
	MaxOutput int      `json:"max_output"`
	Retry     int      `json:"retry"`
	Input     int      `json:"expected_input"`
	Output    int      `json:"expected_output"`
	Blocks    int      `json:"blocks"`
	Known     int      `json:"known"`
	Hashes    string   `json:"hashes"`
	Result    string   `json:"result"`
	Status    int      `json:"status"`
	Code      string   `json:"code"`
	Queued    float64  `json:"queued"`
	First     float64  `json:"first"`
	Total     float64  `json:"total"`
	Attempts  []struct {
		To       string  `json:"to"`
		By       string  `json:"by"`
		Eligible int     `json:"eligible"`
		InFlight int     `json:"in_flight"`
		Trial    bool    `json:"trial"`
		Hedge    bool    `json:"hedge"`
		Waste    bool    `json:"waste"`
		Sent     float64 `json:"sent"`
		TTFT     float64 `json:"ttft"`
		Took     float64 `json:"took"`
		Input    int     `json:"input"`
		Cached   int     `json:"cached"`
		Output   int     `json:"output"`
		Guess    bool    `json:"estimated"`
		Class    string  `json:"class"`
	} `json:"attempts"`
}

// entry reads a line. The memory of e is not used again, so that entries may be kept.
func (r *Reader) entry(line []byte, e *Entry) error {
	var w wire
	if err := json.Unmarshal(line, &w); err != nil {
		return fmt.Errorf("expected a JSON object such as %s: %w", example, err)
	}
	switch {
	case w.At == nil:
		return errors.New("expected the member at, in seconds since 1970")
	case !(*w.At >= 0 && *w.At <= mostUnix):
		return fmt.Errorf("at is %v, expected seconds since 1970, from 0 to %d", *w.At, mostUnix)
	case w.Result == "":
		return errors.New("expected the member result, such as complete")
	case len(w.Attempts) > mostAttempts:
		return fmt.Errorf("%d attempts, expected at most %d", len(w.Attempts), mostAttempts)
	}
	c := checker{}
	micros := math.Round(*w.At * 1e6)
	*e = Entry{
		At: time.UnixMicro(int64(micros)).UTC(), ID: w.ID, API: r.name(w.API), Model: r.name(w.Model), Served: r.name(w.Served), Tenant: r.name(w.Tenant),
		Stream: w.Stream, Bytes: c.count("bytes", w.Bytes, mostBytes), MaxOutput: max(w.MaxOutput, 0), Retry: max(w.Retry, 0),
		ExpectedInput: c.tokens("expected_input", w.Input), ExpectedOutput: c.tokens("expected_output", w.Output),
		Result: exchange.Result(r.name(w.Result)), Status: w.Status, Code: r.name(w.Code),
		Queued: c.seconds("queued", w.Queued), First: c.seconds("first", w.First), Total: c.seconds("total", w.Total),
	}
	if w.Session != "" {
		if session := c.hashes("session", w.Session, 1); len(session) == 1 {
			e.Session = session[0]
		}
	}
	r.prefix(&c, &w, &e.Prefix)
	if len(w.Attempts) > 0 {
		e.Attempts = make([]Attempt, len(w.Attempts))
	}
	for i := range w.Attempts {
		a := &w.Attempts[i]
		if a.To == "" {
			c.fail("attempts[%d]: expected the member to, the ID of a deployment", i)
		}
		e.Attempts[i] = Attempt{
			Deployment: r.name(a.To), Strategy: r.name(a.By), Eligible: a.Eligible, InFlight: a.InFlight, Trial: a.Trial, Hedge: a.Hedge, Waste: a.Waste,
			Sent: c.seconds("sent", a.Sent), TTFT: c.seconds("ttft", a.TTFT), Took: c.seconds("took", a.Took),
			Input: c.tokens("input", a.Input), Cached: c.tokens("cached", a.Cached), Output: c.tokens("output", a.Output),
			Estimated: a.Guess, Class: r.name(a.Class),
		}
	}
	return c.err
}

// prefix reads what the line says of the prompt's chain.
func (r *Reader) prefix(c *checker, w *wire, p *Prefix) {
	p.Blocks, p.Known = c.count("blocks", w.Blocks, MaxBlocks), c.count("known", w.Known, MaxBlocks)
	if c.err == nil && p.Known > p.Blocks {
		c.fail("known is %d, expected at most blocks, which is %d", p.Known, p.Blocks)
	}
	if c.err == nil {
		r.points = points(r.points[:0], p.Known, p.Blocks)
		p.Hashes = c.hashes("hashes", w.Hashes, len(r.points))
	}
}

// name returns the same string for equal names: entries share their memory.
func (r *Reader) name(s string) string {
	if known, ok := r.names[s]; ok {
		return known
	}
	if len(r.names) < mostNames {
		r.names[s] = s
	}
	return s
}

// checker keeps the first thing that is wrong.
type checker struct{ err error }

func (c *checker) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

func (c *checker) count(name string, n, most int) int {
	if n < 0 || n > most {
		c.fail("%s is %d, expected 0 to %d", name, n, most)
		return 0
	}
	return n
}

func (c *checker) tokens(name string, n int) int { return c.count(name, n, mostTokens) }

func (c *checker) seconds(name string, s float64) time.Duration {
	if !(s >= 0 && s <= mostSeconds) {
		c.fail("%s is %v, expected seconds from 0 to %d", name, s, mostSeconds)
		return 0
	}
	return time.Duration(math.Round(s*1e6)) * time.Microsecond
}

func (c *checker) hashes(name, text string, want int) []uint64 {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	switch {
	case err != nil:
		c.fail("%s is %.40q, expected %d hashes of %d characters of base64 (URL): %w", name, text, want, hashBytes*4/3, err)
	case len(raw) != want*hashBytes:
		c.fail("%s has %d characters, expected %d: %d hashes of %d", name, len(text), want*hashBytes*4/3, want, hashBytes*4/3)
	}
	if c.err != nil || want == 0 {
		return nil
	}
	hashes := make([]uint64, want)
	for i := range hashes {
		for _, b := range raw[i*hashBytes : (i+1)*hashBytes] {
			hashes[i] = hashes[i]<<8 | uint64(b)
		}
	}
	return hashes
}
