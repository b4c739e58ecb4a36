package yardstick

import "container/heap"

// task is what a request asks of a pooled server: seconds of work at speed 1. Tasks are in order of arrival.
type task struct{ at, work float64 }

// pooled returns two sums over tasks on one server of this speed that may leave a task and come back to it: the least possible sum
// of their times in the system, which shortest remaining work first attains; and the least possible sum of the mean times at
// which they are worked on, as of their arrival, which shortest whole work first attains.
func pooled(tasks []task, speed float64) (inSystem, worked float64) {
	return run(tasks, speed, false), run(tasks, speed, true)
}

// ready is a task that has work left.
type ready struct {
	key  float64 // the least is worked on
	left float64
	task *task
}

type agenda []ready

func (h agenda) Len() int           { return len(h) }
func (h agenda) Less(a, b int) bool { return h[a].key < h[b].key }
func (h agenda) Swap(a, b int)      { h[a], h[b] = h[b], h[a] }
func (h *agenda) Push(x any)        { *h = append(*h, x.(ready)) }
func (h *agenda) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// run plays the server: by remaining work it sums the ends, by whole work the mean times of being worked on, as of each arrival.
func run(tasks []task, speed float64, whole bool) (sum float64) {
	var h agenda
	now := 0.0
	for i := 0; i < len(tasks) || len(h) > 0; {
		if len(h) == 0 {
			now = max(now, tasks[i].at)
		}
		for i < len(tasks) && tasks[i].at <= now {
			t := &tasks[i]
			i++
			if t.work > 0 { // else it is over when it comes
				heap.Push(&h, ready{t.work, t.work, t})
			}
		}
		if len(h) == 0 {
			continue
		}
		r := &h[0]
		end := now + r.left/speed
		done := i == len(tasks) || end <= tasks[i].at
		if !done {
			end = tasks[i].at
		}
		part := min(r.left, (end-now)*speed)
		switch {
		case whole:
			sum += part / r.task.work * ((now+end)/2 - r.task.at)
		case done:
			sum += end - r.task.at
		}
		now = end
		if done {
			heap.Pop(&h)
			continue
		}
		r.left -= part
		if !whole { // less than before: it stays the first
			r.key = r.left
		}
	}
	return sum
}
