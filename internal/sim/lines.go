package sim

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
)

// lines are the rows of a recorded trace in the order of its lines, which is that in which exchanges ended, before all is known of
// them. Rows are named by where they are.
type lines struct {
	store
	n    int
	body []byte // of the row that was added last: its memory is used again

	recent []arrived // not yet in a stretch
	sorted []stretch
}

// arrived is when a row came.
type arrived struct{ micros, row int64 }

func (a arrived) compare(b arrived) int {
	return cmp.Or(cmp.Compare(a.micros, b.micros), cmp.Compare(a.row, b.row))
}

// stretch is some arrivals in order, in the store.
type stretch struct {
	off int64
	n   int
}

const (
	stretchLength = 1 << 14 // arrivals
	arrivalBytes  = 2 * word
	linkBytes     = word // of the row that goes on from a row, plus one; 0 = none does
)

// add appends a row and returns where it is.
func (l *lines) add(r *Row) (row int64, err error) {
	c := codec{b: append(l.body[:0], make([]byte, linkBytes+lengthBytes)...)}
	c.row(r)
	l.body = c.b
	binary.LittleEndian.PutUint32(c.b[linkBytes:], uint32(len(c.b)-linkBytes-lengthBytes))
	row = l.size()
	if err := l.append(c.b); err != nil {
		return 0, tooLarge(err)
	}
	l.n++
	l.recent = append(l.recent, arrived{r.Recorded.At.UnixMicro(), row})
	if len(l.recent) == stretchLength {
		return row, l.sort()
	}
	return row, nil
}

// link notes that next goes on from row with its answer.
func (l *lines) link(row, next int64) error {
	return tooLarge(l.set(binary.LittleEndian.AppendUint64(nil, uint64(next+1)), row))
}

// sort makes a stretch of what came of late.
func (l *lines) sort() error {
	if len(l.recent) == 0 {
		return nil
	}
	slices.SortFunc(l.recent, arrived.compare)
	b := make([]byte, 0, arrivalBytes*len(l.recent))
	for _, a := range l.recent {
		b = binary.LittleEndian.AppendUint64(b, uint64(a.micros))
		b = binary.LittleEndian.AppendUint64(b, uint64(a.row))
	}
	l.sorted = append(l.sorted, stretch{l.size(), len(l.recent)})
	l.recent = l.recent[:0]
	return tooLarge(l.append(b))
}

// inOrder calls do for each row in order of arrival, those that came together in order of the lines.
func (l *lines) inOrder(do func(*Row) error) error {
	if err := l.sort(); err != nil {
		return err
	}
	merged := make([]*merging, len(l.sorted))
	for i, r := range l.sorted {
		merged[i] = &merging{in: bufio.NewReader(io.NewSectionReader(&l.store, r.off, int64(r.n)*arrivalBytes))}
		if err := merged[i].next(); err != nil {
			return err
		}
	}
	rows, others := window{of: &l.store, size: readBytes}, window{of: &l.store, size: readBytes / 16} // a turn and the next one are apart
	names := map[string]string{}
	for range l.n {
		first := slices.MinFunc(merged, func(a, b *merging) int { return a.compare(b.arrived) })
		var r Row
		next, err := rows.row(first.row, names, &r)
		if err != nil {
			return err
		}
		if next >= 0 {
			var on Row
			if _, err := others.row(next, names, &on); err != nil {
				return err
			}
			r.told.next = on.told.chain[len(r.told.chain):]
		}
		if err := do(&r); err != nil {
			return err
		}
		if err := first.next(); err != nil {
			return err
		}
	}
	return nil
}

// merging is a stretch: what comes first of it and what is left to read.
type merging struct {
	arrived
	in *bufio.Reader
}

// over comes after all arrivals.
var over = arrived{math.MaxInt64, math.MaxInt64}

// next goes on to the next arrival.
func (m *merging) next() error {
	var b [arrivalBytes]byte
	switch _, err := io.ReadFull(m.in, b[:]); {
	case errors.Is(err, io.EOF):
		m.arrived = over
	case err != nil:
		return lost(err)
	default:
		m.arrived = arrived{int64(binary.LittleEndian.Uint64(b[:])), int64(binary.LittleEndian.Uint64(b[word:]))}
	}
	return nil
}

// window reads rows that are near each other.
type window struct {
	of   *store
	size int // bytes that are read at once
	off  int64
	read []byte
}

// row reads the row at off, and which one goes on from it, -1 = none.
func (w *window) row(off int64, names map[string]string, r *Row) (next int64, err error) {
	head, err := w.bytes(off, linkBytes+lengthBytes)
	if err != nil {
		return -1, err
	}
	next = int64(binary.LittleEndian.Uint64(head)) - 1
	body, err := w.bytes(off+int64(len(head)), int(binary.LittleEndian.Uint32(head[linkBytes:])))
	if err != nil {
		return -1, err
	}
	c := codec{b: body, reading: true, names: names}
	c.row(r)
	return next, nil
}

// bytes returns n bytes; they are valid until the next call.
func (w *window) bytes(off int64, n int) ([]byte, error) {
	if off < w.off || off+int64(n) > w.off+int64(len(w.read)) {
		w.off, w.read = off, slices.Grow(w.read[:0], max(n, w.size))[:max(n, w.size)]
		got, err := w.of.ReadAt(w.read, off)
		if w.read = w.read[:got]; got < n {
			return nil, lost(err)
		}
	}
	return w.read[off-w.off:][:n], nil
}
