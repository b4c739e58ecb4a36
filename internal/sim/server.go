package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Server is the model of what serves one deployment. Times are since the simulation began and never go back.
type Server interface {
	// Submit gives it a job. The job's Request may be kept until the job is done or cancelled. An error says that it can
	// never serve such a request, and it has not taken it.
	Submit(now time.Duration, j Job) error
	// Cancel takes a job back; false if it does not have it.
	Cancel(now time.Duration, id uint64) bool
	// Next returns when Step is to be called, false if there is nothing to wait for. Any other call may change it.
	Next() (at time.Duration, ok bool)
	// Step returns what has happened by now. The slice is valid until the next call.
	Step(now time.Duration) []Report
}

// Job is one attempt of a request at a server.
type Job struct {
	ID      uint64
	Attempt int // of the request, from 0
	Request *Request
}

// Report is what a server tells of a job.
type Report struct {
	Kind   ReportKind
	ID     uint64
	Cached int // of FirstToken and Done: prompt tokens that a cache held
	Tokens int // of Done: output tokens produced
}

// ReportKind says what has come of a job.
type ReportKind uint8

// The kinds. A job that is done without a first token before it answered all at once.
const (
	FirstToken ReportKind = iota
	Done
)

// QueueOptions describe a Queue.
type QueueOptions struct {
	Slots    int     // jobs that run at one time, the others wait in order; 0 = all run
	Speed    float64 // work done per second by each slot, 0 = 1
	Constant bool    // each job takes its Request.Work; else that is the mean of an exponential law
}

// Queue is the server of queueing theory: M/M/c behind a Poisson stream. It answers all at once. How long a job takes
// follows from its request and the number of the attempt, not from the server: the same request takes as long everywhere, and
// another attempt draws anew.
type Queue struct {
	o       QueueOptions
	pcg     rand.PCG
	rng     *rand.Rand
	running []served // the one that ends first is the last
	waiting []Job    // from head on
	head    int
	reports []Report
}

type served struct {
	end time.Duration
	job Job
}

// NewQueue returns an idle queue.
func NewQueue(o QueueOptions) (*Queue, error) {
	if o.Slots < 0 {
		return nil, fmt.Errorf("a queue of %d slots: slots must be 1 or more, or 0 for no limit", o.Slots)
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	if !(o.Speed > 0) || math.IsInf(o.Speed, 1) {
		return nil, fmt.Errorf("a queue of speed %v: speed must be positive", o.Speed)
	}
	q := &Queue{o: o}
	q.rng = rand.New(&q.pcg)
	return q, nil
}

// Submit implements Server.
func (q *Queue) Submit(now time.Duration, j Job) error {
	if q.o.Slots > 0 && len(q.running) >= q.o.Slots {
		q.waiting = append(q.waiting, j)
	} else {
		q.begin(now, j)
	}
	return nil
}

func (q *Queue) begin(now time.Duration, j Job) {
	work := j.Request.Work
	if !q.o.Constant {
		q.pcg.Seed(mix(j.Request.Seed), mix(uint64(forService)<<32+uint64(j.Attempt)))
		work = time.Duration(q.rng.ExpFloat64() * float64(work))
	}
	s := served{now + time.Duration(float64(work)/q.o.Speed), j}
	at, _ := slices.BinarySearchFunc(q.running, s, func(a, b served) int { // of those that end at one time, the first to begin is the last
		if a.end > b.end {
			return -1
		}
		return 1
	})
	q.running = slices.Insert(q.running, at, s)
}

// Cancel implements Server.
func (q *Queue) Cancel(now time.Duration, id uint64) bool {
	if i := slices.IndexFunc(q.running, func(s served) bool { return s.job.ID == id }); i >= 0 {
		q.running = slices.Delete(q.running, i, i+1)
		q.refill(now)
		return true
	}
	i := slices.IndexFunc(q.waiting[q.head:], func(j Job) bool { return j.ID == id })
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, q.head+i, q.head+i+1)
	return true
}

// refill begins the job that waits longest, if a slot is free.
func (q *Queue) refill(now time.Duration) {
	if q.head == len(q.waiting) || len(q.running) >= q.o.Slots {
		return
	}
	j := q.waiting[q.head]
	q.waiting[q.head] = Job{}
	q.head++
	if 2*q.head >= len(q.waiting) {
		q.waiting = slices.Delete(q.waiting, 0, q.head)
		q.head = 0
	}
	q.begin(now, j)
}

// Next implements Server.
func (q *Queue) Next() (time.Duration, bool) {
	if len(q.running) == 0 {
		return 0, false
	}
	return q.running[len(q.running)-1].end, true
}

// Step implements Server.
func (q *Queue) Step(now time.Duration) []Report {
	q.reports = q.reports[:0]
	for len(q.running) > 0 {
		s := q.running[len(q.running)-1]
		if s.end > now {
			break
		}
		q.running[len(q.running)-1] = served{}
		q.running = q.running[:len(q.running)-1]
		q.reports = append(q.reports, Report{Kind: Done, ID: s.job.ID, Tokens: s.job.Request.OutputTokens})
		q.refill(s.end)
	}
	return q.reports
}
