// Package ledger keeps finished exchanges, so that it can be said afterwards what happened to a request.
package ledger

import (
	"hash/maphash"
	"sync"
	"time"
	"unsafe"

	"evenkeel/internal/exchange"
)

// Ring holds the newest finished exchanges, as many as fit in a number of bytes. All methods may be called
// concurrently, and what they return is never changed afterwards.
//
// There is no index by ID: each request would pay for it, and who asks for one can wait for a look through all keys.
type Ring struct {
	limit int

	mu      sync.Mutex
	kept    []entry // kept[oldest:] in order of Add; what is before is empty
	oldest  int
	bytes   int
	evicted uint64
}

// entry is a record with what is needed to find it and to drop it, without a look into its memory.
type entry struct {
	record *exchange.Record
	key    uint64 // of its ID
	bytes  int    // an estimate of the memory that it takes
}

// perEntry is what the Ring itself needs for a record: a slot of kept, which grows by doubling.
const perEntry = 2 * int(unsafe.Sizeof(entry{}))

// rounding is the share, one in so many, that the allocator's size classes add; the test against the heap
// gave it.
const rounding = 8

// sizeOf estimates the memory that keeping a record takes.
func sizeOf(rec *exchange.Record) int {
	n := rec.Memory() + perEntry
	return n + n/rounding
}

var seed = maphash.MakeSeed()

// key stands for an ID, nearly always for one alone.
func key(id string) uint64 { return maphash.String(seed, id) }

// NewRing returns a Ring that keeps at most limit bytes. With 0 or less it keeps nothing.
func NewRing(limit int) *Ring {
	return &Ring{limit: limit}
}

// Add keeps a record that is final, and drops the oldest ones to make room. It never waits for I/O. A record
// larger than the whole Ring is not kept.
func (r *Ring) Add(rec *exchange.Record) {
	if r.limit <= 0 {
		return
	}
	e := entry{rec, key(rec.Facts.ID), sizeOf(rec)}
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
	r.bytes += e.bytes
}

func (r *Ring) evict() {
	e := r.kept[r.oldest]
	r.kept[r.oldest] = entry{}
	r.oldest++
	r.bytes -= e.bytes
	r.evicted++
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
	k := key(id)
	for i := len(r.kept) - 1; i >= r.oldest; i-- {
		if e := &r.kept[i]; e.key == k && e.record.Facts.ID == id {
			return e.record
		}
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
		records[i] = r.kept[len(r.kept)-1-i].record
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
