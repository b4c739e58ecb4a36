package ledger

import (
	"unsafe"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// entry is a record as the Ring keeps it. The record is copied with its attempts and decisions: where they
// come from they are parts of the exchange and of its leases, and would keep these, the request's body and
// the Router's dead nodes in memory. Lists of candidates are shared; they stand alone and never change.
//
// The first attempt and its decision are in the entry itself, so that the usual request is one allocation.
type entry struct {
	record   exchange.Record
	bytes    int
	attempt  [1]exchange.Attempt
	decision route.Decision
}

// perEntry is what the Ring itself needs for an entry: a slot of kept, which grows by doubling, and one of
// newest, whose tables are between 7/16 and 7/8 full.
const perEntry = 2*8 + (16+8+1)*16/10

// rounding is the share, one in so many, that the allocator's size classes add; the test against the heap
// gave it.
const rounding = 8

func newEntry(rec *exchange.Record) *entry {
	e := &entry{record: *rec, bytes: int(unsafe.Sizeof(entry{})) + perEntry}
	r := &e.record
	if len(rec.Attempts) <= 1 {
		r.Attempts = e.attempt[:copy(e.attempt[:], rec.Attempts)]
	} else {
		r.Attempts = append([]exchange.Attempt(nil), rec.Attempts...)
		e.bytes += cap(r.Attempts) * int(unsafe.Sizeof(exchange.Attempt{}))
	}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		e.bytes += len(a.Outcome.Detail) + len(a.Outcome.ServedModel) + len(a.Outcome.Fingerprint)
		switch {
		case a.Decision == nil:
		case i == 0:
			e.decision = *a.Decision
			a.Decision = &e.decision
		default:
			d := *a.Decision
			a.Decision = &d
			e.bytes += int(unsafe.Sizeof(d))
		}
		e.bytes += candidateBytes(a.Decision)
	}
	e.bytes += cap(r.Refusals) * int(unsafe.Sizeof((*route.Refusal)(nil)))
	for _, f := range r.Refusals {
		e.bytes += int(unsafe.Sizeof(*f)) + int(unsafe.Sizeof(route.Decision{})) + candidateBytes(f.Decision)
	}
	if f := r.Failure; f != nil {
		e.bytes += int(unsafe.Sizeof(*f)) + len(f.Message)
	}
	e.bytes += factsBytes(&r.Facts)
	e.bytes += e.bytes / rounding
	return e
}

// candidateBytes counts what a decision refers to. Names of deployments and models are shared with the fleet
// and with each other; cuts and terms are constants.
func candidateBytes(d *route.Decision) int {
	if d == nil {
		return 0
	}
	n := cap(d.Candidates)*int(unsafe.Sizeof(route.Candidate{})) + cap(d.Omitted)*int(unsafe.Sizeof(route.CutCount{}))
	for i := range d.Candidates {
		n += len(d.Candidates[i].CutBy) // composed for each cut
	}
	return n
}

func factsBytes(f *route.Facts) int {
	n := len(f.ID) + len(f.Model) + len(f.Pin) + cap(f.ExcludeNames)*int(unsafe.Sizeof(""))
	for _, s := range f.ExcludeNames {
		n += len(s)
	}
	return n
}
