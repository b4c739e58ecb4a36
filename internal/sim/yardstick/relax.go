package yardstick

import "container/heap"

// task is what a request asks of engines: seconds of work at speed 1, and at least so many until it is done. Tasks are in order of
// arrival.
type task struct{ at, work, alone float64 }

// pooled returns the least possible sum of the times in system of tasks on one server of this speed that may leave a task and come back
// to it: shortest remaining work first.
func pooled(tasks []task, speed float64) (sum float64) {
	serve(tasks, speed, false, func(_ int, t *task, s slot) {
		if s.done {
			sum += s.to - t.at
		}
	})
	return sum
}

// slot is a time at which the server works on a task.
type slot struct {
	from, to float64
	done     bool // it is over at its end
}

// ready is a task that has work left.
type ready struct {
	key  float64 // the least is worked on
	left float64
	task int
}

type agenda []ready

func (h agenda) Len() int { return len(h) }
func (h agenda) Less(a, b int) bool {
	return h[a].key < h[b].key || h[a].key == h[b].key && h[a].task < h[b].task
}
func (h agenda) Swap(a, b int) { h[a], h[b] = h[b], h[a] }
func (h *agenda) Push(x any)   { *h = append(*h, x.(ready)) }
func (h *agenda) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// serve plays such a server, shortest remaining or shortest whole work first.
func serve(tasks []task, speed float64, whole bool, worked func(i int, t *task, s slot)) {
	var h agenda
	now := 0.0
	for i := 0; i < len(tasks) || len(h) > 0; {
		if len(h) == 0 {
			now = max(now, tasks[i].at)
		}
		for i < len(tasks) && tasks[i].at <= now {
			if w := tasks[i].work; w > 0 { // else it is over when it comes
				heap.Push(&h, ready{w, w, i})
			}
			i++
		}
		if len(h) == 0 {
			continue
		}
		r := &h[0]
		s := slot{now, now + r.left/speed, true}
		if i < len(tasks) && s.to > tasks[i].at {
			s.to, s.done = tasks[i].at, false
		}
		worked(r.task, &tasks[r.task], s)
		now = s.to
		if s.done {
			heap.Pop(&h)
			continue
		}
		r.left -= (s.to - s.from) * speed
		if !whole { // less than before: it stays the first
			r.key = r.left
		}
	}
}
