package engine

import "slices"

// queue is a first-in, first-out queue that also takes back at the front.
type queue struct {
	jobs   []*job
	head   int
	tokens int // targets of all that are in it
}

func (q *queue) len() int      { return len(q.jobs) - q.head }
func (q *queue) at(i int) *job { return q.jobs[q.head+i] }
func (q *queue) first() *job   { return q.jobs[q.head] }

func (q *queue) push(j *job) {
	q.tokens += j.target
	q.jobs = append(q.jobs, j)
}

func (q *queue) pop() {
	q.tokens -= q.first().target
	q.jobs[q.head] = nil
	q.head++
	if q.head > 32 && q.head > len(q.jobs)/2 {
		n := copy(q.jobs, q.jobs[q.head:])
		clear(q.jobs[n:])
		q.jobs, q.head = q.jobs[:n], 0
	}
}

func (q *queue) pushFront(j *job) {
	q.tokens += j.target
	if q.head == 0 {
		q.jobs = slices.Insert(q.jobs, 0, j)
		return
	}
	q.head--
	q.jobs[q.head] = j
}

func (q *queue) remove(j *job) {
	for i := q.head; i < len(q.jobs); i++ {
		if q.jobs[i] == j {
			q.tokens -= j.target
			q.jobs = slices.Delete(q.jobs, i, i+1)
			return
		}
	}
}
