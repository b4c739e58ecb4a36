package mock

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/internal/engine"
)

// In real time the model does exactly what it does in virtual time.
func TestDriverKeepsTheModelsTimes(t *testing.T) {
	for _, name := range engine.Presets() {
		c, err := engine.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		requests := workload(rand.New(rand.NewPCG(7, 11)), c)
		synctest.Test(t, func(t *testing.T) {
			want := virtual(t, c, requests)
			got := real(t, c, requests)
			for i := range requests {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("%s: request %d: tokens at\n%v, want\n%v", name, i, got[i], want[i])
				}
			}
		})
	}
}

// request comes at a time, and its client leaves once it has seen so many tokens.
type request struct {
	at time.Duration
	engine.Sequence
	leaves int
}

func workload(r *rand.Rand, c engine.Config) []request {
	var all []request
	at := time.Duration(0)
	for range 40 {
		at += time.Duration(r.ExpFloat64() * float64(200*msec))
		q := request{at: at, Sequence: engine.Sequence{PromptTokens: 1 + r.IntN(1500), OutputTokens: 1 + r.IntN(30), EachToken: true}}
		for i := range min(r.IntN(3), q.PromptTokens/c.BlockTokens) {
			q.Prompt = append(q.Prompt, uint64(i+1))
		}
		if q.leaves = q.OutputTokens; r.IntN(4) == 0 {
			q.leaves = 1 + r.IntN(q.OutputTokens)
		}
		all = append(all, q)
	}
	return all
}

// virtual returns when each token of each request is out, by the pure model.
func virtual(t *testing.T, c engine.Config, requests []request) [][]time.Duration {
	t.Helper()
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	out := make([][]time.Duration, len(requests))
	next := 0
	for {
		at, busy := e.Next()
		switch {
		case next < len(requests) && (!busy || requests[next].at < at):
			s := requests[next].Sequence
			s.ID = uint64(next)
			if err := e.Submit(requests[next].at, s); err != nil {
				t.Fatal(err)
			}
			next++
		case busy:
			var gone []uint64
			for _, x := range e.Step(at) {
				for x.Kind != engine.Preempted && len(out[x.ID]) < x.Tokens {
					out[x.ID] = append(out[x.ID], at)
				}
				if x.Kind != engine.Preempted && x.Tokens == requests[x.ID].leaves {
					gone = append(gone, x.ID)
				}
			}
			for _, id := range gone {
				e.Cancel(at, id)
			}
		default:
			return out
		}
	}
}

// real returns the same by a driver in the bubble's time.
func real(t *testing.T, c engine.Config, requests []request) [][]time.Duration {
	t.Helper()
	d, err := newDriver(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := make([][]time.Duration, len(requests))
	var clients sync.WaitGroup
	for i, q := range requests {
		clients.Go(func() {
			time.Sleep(q.at)
			poked := make(chan struct{}, q.OutputTokens+1)
			j, err := d.submit(q.Sequence, func() { poked <- struct{}{} })
			if err != nil {
				t.Error(err)
				return
			}
			defer d.leave(j)
			for n := 0; n < q.leaves; {
				<-poked
				for n, _ = d.told(j); len(out[i]) < n; {
					out[i] = append(out[i], time.Since(d.began))
				}
			}
		})
	}
	clients.Wait()
	d.stop()
	return out
}

// A driver that comes late catches up: the model's times stand.
func TestDriverCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model, err := engine.New(small())
		if err != nil {
			t.Fatal(err)
		}
		d := &driver{began: time.Now(), nudged: make(chan struct{}, 1), model: model, jobs: map[uint64]*job{}} // nobody runs it
		first, err := d.submit(engine.Sequence{PromptTokens: 10, OutputTokens: 5, EachToken: true}, func() {})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(45 * msec) // the prompt until 20 ms, tokens at 31, 42, 53, 64
		second, err := d.submit(engine.Sequence{PromptTokens: 10, OutputTokens: 1}, func() {})
		if err != nil {
			t.Fatal(err)
		}
		check := func(wantFirst, wantSecond int) {
			t.Helper()
			d.load()
			a, _ := d.told(first)
			b, _ := d.told(second)
			if a != wantFirst || b != wantSecond {
				t.Errorf("after %v: %d and %d tokens are out, want %d and %d", time.Since(d.began), a, b, wantFirst, wantSecond)
			}
		}
		check(3, 0)
		time.Sleep(28*msec - 1) // the step that runs ends at 53 ms, the next, with the second prompt, takes 21 ms
		check(4, 0)
		time.Sleep(2 * msec)
		check(5, 1)
	})
}
