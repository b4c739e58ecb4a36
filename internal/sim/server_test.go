package sim

import (
	"fmt"
	"testing"
	"time"
)

// reports steps a server as far as it goes and tells what it reports as "id@seconds".
func reports(s Server) (got string) {
	for {
		at, ok := s.Next()
		if !ok {
			return got
		}
		for _, r := range s.Step(at) {
			got += fmt.Sprintf("%d@%v ", r.ID, at.Seconds())
		}
	}
}

func submit(t *testing.T, s Server, now time.Duration, j Job) {
	t.Helper()
	if err := s.Submit(now, j); err != nil {
		t.Fatal(err)
	}
}

func TestQueue(t *testing.T) {
	f := func(o QueueOptions, cancel uint64, want string) {
		t.Helper()
		o.Constant = true
		q := queue(t, o)
		for i := range uint64(5) {
			submit(t, q, time.Duration(i)*time.Second, Job{ID: i, Request: &Request{Work: 10 * time.Second}})
		}
		if cancel < 5 && !q.Cancel(5*time.Second, cancel) {
			t.Errorf("job %d cannot be cancelled", cancel)
		}
		if q.Cancel(5*time.Second, 77) {
			t.Error("a job that never was is cancelled")
		}
		if got := reports(q); got != want {
			t.Errorf("%+v, cancelling %d: got %q, want %q", o, cancel, got, want)
		}
	}
	f(QueueOptions{Slots: 1}, 9, "0@10 1@20 2@30 3@40 4@50 ")
	f(QueueOptions{Slots: 1, Speed: 2}, 9, "0@5 1@10 2@15 3@20 4@25 ")
	f(QueueOptions{Slots: 2}, 9, "0@10 1@11 2@20 3@21 4@30 ")
	f(QueueOptions{}, 9, "0@10 1@11 2@12 3@13 4@14 ")
	f(QueueOptions{Slots: 1}, 0, "1@15 2@25 3@35 4@45 ") // the one that runs
	f(QueueOptions{Slots: 1}, 2, "0@10 1@20 3@30 4@40 ") // one that waits
}

// TestQueueTies: of jobs that end at one time, the first to begin is told first.
func TestQueueTies(t *testing.T) {
	q := queue(t, QueueOptions{Constant: true})
	for i := range uint64(4) {
		submit(t, q, 0, Job{ID: i, Request: &Request{Work: time.Second}})
	}
	if got, want := reports(q), "0@1 1@1 2@1 3@1 "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestServiceIsTheRequests: the same request takes as long at any server, and another attempt draws anew.
func TestServiceIsTheRequests(t *testing.T) {
	end := func(seed uint64, attempt int) time.Duration {
		q := queue(t, QueueOptions{})
		submit(t, q, 0, Job{Attempt: attempt, Request: &Request{Seed: seed, Work: time.Second}})
		at, _ := q.Next()
		return at
	}
	once, again := end(1, 0), end(1, 0)
	if once != again {
		t.Errorf("one request takes %v and %v", once, again)
	}
	if once == end(2, 0) || once == end(1, 1) {
		t.Error("another request, or another attempt, takes the same time")
	}
}

func TestQueueOptions(t *testing.T) {
	for _, o := range []QueueOptions{{Slots: -1}, {Speed: -1}} {
		if _, err := NewQueue(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}
