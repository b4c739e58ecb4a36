// Package ledger keeps finished exchanges, so that it can be said afterwards what happened to a request.
package ledger

import (
	"sync"
	"time"

	"evenkeel/internal/exchange"
)

// Ring holds the newest finished exchanges, as many as fit in a number of bytes. All methods may be called
// concurrently, and what they return is never changed afterwards.
type Ring struct {
	limit int

	mu      sync.Mutex
	kept    []*entry // kept[oldest:] in order of Add; what is before is nil
	oldest  int
	newest  map[string]*entry // by ID; of duplicates the newest
	bytes   int
	evicted uint64
}

// NewRing returns a Ring that keeps at most limit bytes. With 0 or less it keeps nothing.
func NewRing(limit int) *Ring {
	return &Ring{limit: limit, newest: map[string]*entry{}}
}

// Add keeps a copy of a record that is final, and drops the oldest ones to make room. It never waits for
// I/O. A record larger than the whole Ring is not kept.
func (r *Ring) Add(rec *exchange.Record) {
	if r.limit <= 0 {
		return
	}
	e := newEntry(rec)
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.bytes > r.limit {
		r.evicted++
		return
	}
	for r.bytes+e.bytes > r.limit {
		r.evict()
	}
	r.kept = append(r.kept, e)
	r.newest[e.record.Facts.ID] = e
	r.bytes += e.bytes
}

func (r *Ring) evict() {
	e := r.kept[r.oldest]
	r.kept[r.oldest] = nil
	r.oldest++
	r.bytes -= e.bytes
	r.evicted++
	if id := e.record.Facts.ID; r.newest[id] == e {
		delete(r.newest, id)
	}
	if r.oldest > len(r.kept)/2 { // each move pays for as many evictions
		n := copy(r.kept, r.kept[r.oldest:])
		clear(r.kept[n:])
		r.kept, r.oldest = r.kept[:n], 0
	}
}

// Find returns the record of that ID, the newest if there are several, or nil.
func (r *Ring) Find(id string) *exchange.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.newest[id]; e != nil {
		return &e.record
	}
	return nil
}

// Last returns up to n records, the newest first.
func (r *Ring) Last(n int) []*exchange.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = max(min(n, len(r.kept)-r.oldest), 0)
	records := make([]*exchange.Record, n)
	for i := range records {
		records[i] = &r.kept[len(r.kept)-1-i].record
	}
	return records
}

// Usage says how full a Ring is.
type Usage struct {
	Records int
	Bytes   int       // an estimate of the memory they take
	Limit   int       // in bytes
	Evicted uint64    // records that were dropped to make room, since the start
	Oldest  time.Time // arrival of the oldest record, zero if there is none
}

// Usage returns how full the Ring is.
func (r *Ring) Usage() Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := Usage{Records: len(r.kept) - r.oldest, Bytes: r.bytes, Limit: max(r.limit, 0), Evicted: r.evicted}
	if u.Records > 0 {
		u.Oldest = r.kept[r.oldest].record.Started
	}
	return u
}
