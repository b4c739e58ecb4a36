package ledger

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// record builds one of the given shape, with nothing shared but what a fleet shares.
func record(id string, attempts, candidates int) *exchange.Record {
	rec := &exchange.Record{
		Facts:   route.Facts{ID: strings.Clone(id), Model: strings.Clone("qwen3-32b"), API: "chat"},
		Started: start, Ended: start.Add(time.Second), Model: "qwen3-32b", Result: exchange.Complete, Status: 200,
	}
	for n := range attempts {
		d := &route.Decision{Model: "qwen3-32b", Strategy: "least_tokens", Draw: n, Candidates: make([]route.Candidate, candidates)}
		for i := range d.Candidates {
			d.Candidates[i] = route.Candidate{ID: "gpu-1/qwen3-32b", CutBy: strings.Repeat("e", 12)}
		}
		rec.Attempts = append(rec.Attempts, exchange.Attempt{
			Model: "qwen3-32b", Deployment: "gpu-1/qwen3-32b", Decision: d,
			Outcome: route.Outcome{Verdict: route.DeploymentFault, Class: "reset", Detail: strings.Repeat("d", 40)},
		})
	}
	return rec
}

func ids(records []*exchange.Record) string {
	var s []string
	for _, r := range records {
		s = append(s, r.Facts.ID)
	}
	return strings.Join(s, " ")
}

func TestKeepsTheNewest(t *testing.T) {
	one := sizeOf(record("a", 1, 3))
	r := NewRing(3*one + one/2)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		r.Add(record(id, 1, 3))
	}
	for _, c := range []struct {
		n    int
		want string
	}{{-1, ""}, {0, ""}, {1, "e"}, {2, "e d"}, {3, "e d c"}, {100, "e d c"}} {
		if got := ids(r.Last(c.n)); got != c.want {
			t.Errorf("Last(%d) = %q, want %q", c.n, got, c.want)
		}
	}
	if r.Find("b") != nil {
		t.Error("b was dropped to make room, but Find still has it")
	}
	if got := r.Find("c"); got == nil || got.Facts.ID != "c" || len(got.Attempts) != 1 || len(got.Attempts[0].Decision.Candidates) != 3 {
		t.Errorf("Find(c) = %+v", got)
	}
	want := Usage{Records: 3, Bytes: 3 * one, Limit: 3*one + one/2, Evicted: 2, Oldest: start}
	if got := r.Usage(); got != want {
		t.Errorf("Usage() = %+v, want %+v", got, want)
	}
}

func TestDuplicateIDs(t *testing.T) {
	one := sizeOf(record("a", 1, 1))
	r := NewRing(2 * one)
	first, second := record("a", 1, 1), record("a", 1, 1)
	first.Status, second.Status = 500, 200
	r.Add(first)
	r.Add(second)
	if got := r.Find("a"); got.Status != 200 {
		t.Errorf("Find returned the older record, status %d", got.Status)
	}
	if got := ids(r.Last(9)); got != "a a" {
		t.Errorf("Last = %q, want both", got)
	}
	r.Add(record("b", 1, 1)) // drops the first a
	if got := r.Find("a"); got == nil || got.Status != 200 {
		t.Errorf("dropping the older of two lost the newer: %+v", got)
	}
	r.Add(record("c", 1, 1))
	if got := r.Find("a"); got != nil {
		t.Errorf("both were dropped, but Find has %+v", got)
	}
}

func TestKeepsNothing(t *testing.T) {
	for _, limit := range []int{-1, 0, 10} {
		r := NewRing(limit)
		r.Add(record("a", 1, 1))
		if r.Find("a") != nil || len(r.Last(1)) != 0 || r.Usage().Records != 0 || r.Usage().Bytes != 0 {
			t.Errorf("a Ring of %d bytes kept a record", limit)
		}
	}
}

// Sizes of records vary, and evictions come in runs: order, index and count must hold through all of them.
func TestMixedSizes(t *testing.T) {
	r := NewRing(120_000)
	for i := range 1000 {
		r.Add(record(fmt.Sprint(i), i%5, i*7%33))
		u := r.Usage()
		if u.Bytes > u.Limit {
			t.Fatalf("after %d: %d bytes in a Ring of %d", i, u.Bytes, u.Limit)
		}
		if u.Records+int(u.Evicted) != i+1 {
			t.Fatalf("after %d: %d kept, %d dropped", i, u.Records, u.Evicted)
		}
		bytes := 0
		for n, rec := range r.Last(u.Records) {
			if rec.Facts.ID != fmt.Sprint(i-n) || r.Find(rec.Facts.ID) != rec {
				t.Fatalf("after %d: record %d is %s", i, n, rec.Facts.ID)
			}
			bytes += sizeOf(rec)
		}
		if bytes != u.Bytes {
			t.Fatalf("after %d: %d bytes counted, records have %d", i, u.Bytes, bytes)
		}
	}
}

// The limit is a promise about memory, so the estimate is held against the heap.
func TestEstimateIsHonest(t *testing.T) {
	for _, shape := range []struct{ attempts, candidates int }{{1, 1}, {1, 8}, {1, 32}, {3, 8}, {0, 0}} {
		const limit = 2 << 20
		before := heap()
		r := NewRing(limit)
		for i := 0; r.Usage().Evicted < 100; i++ {
			r.Add(record(fmt.Sprintf("%032d", i), shape.attempts, shape.candidates))
		}
		used := heap() - before
		u := r.Usage()
		t.Logf("%d attempts of %d candidates: %d records, estimate %d, heap %d (%.2f)",
			shape.attempts, shape.candidates, u.Records, u.Bytes, used, float64(used)/float64(u.Bytes))
		if ratio := float64(used) / float64(u.Bytes); ratio < 0.8 || ratio > 1.1 {
			t.Errorf("%+v: the heap holds %.2f of the estimate", shape, ratio)
		}
		runtime.KeepAlive(r)
	}
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

type first struct{}

func (first) Pick(*route.Round) int { return 0 }

// A record is part of its exchange, and its decisions are parts of leases: a Ring that kept them would keep
// the shell's buffers, too.
func TestDoesNotKeepTheExchange(t *testing.T) {
	collected := make(chan struct{})
	ring := NewRing(16 << 20)
	func() {
		router := route.New(route.Options{})
		dep := route.Deployment{ID: "gpu-1/m", Endpoint: "gpu-1", URL: "http://127.0.0.1:1", Model: "m", Weight: 1}
		if _, err := router.Adopt(start, []route.PoolSpec{{Model: "m", Deployments: []route.Deployment{dep}, Strategy: first{}}}); err != nil {
			t.Fatal(err)
		}
		body := make([]byte, 1<<20)
		runtime.AddCleanup(&body[0], func(struct{}) { close(collected) }, struct{}{})
		plan := exchange.Plan{Models: []string{"m"}, MaxAttempts: 3, Notify: func() { body[0]++ }}
		x := exchange.New(router, exchange.NewBudget(0.1, 10), plan, route.Facts{ID: "a", Model: "m", Arrived: start})
		x.Next(start, exchange.Event{Kind: exchange.Started})
		x.Next(start, exchange.Event{Kind: exchange.Ended, End: &exchange.End{Outcome: route.Outcome{Verdict: route.Success}}})
		if !x.Over() || x.Record().Result != exchange.Complete {
			t.Fatalf("the exchange did not complete: %+v", x.Record())
		}
		ring.Add(x.Record())
	}()
	deadline := time.After(10 * time.Second)
	for {
		runtime.GC()
		select {
		case <-collected:
			if rec := ring.Find("a"); rec == nil || rec.Last().Decision.Chosen != "gpu-1/m" {
				t.Errorf("the record is damaged: %+v", rec)
			}
			return
		case <-deadline:
			t.Fatal("the Ring keeps the exchange's buffers alive")
		default:
			runtime.Gosched()
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	r := NewRing(100_000)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 500 {
				r.Add(record(fmt.Sprintf("%d-%d", w, i), 1+i%2, i%9))
			}
		})
		wg.Go(func() {
			for i := range 500 {
				for _, rec := range r.Last(5) {
					if rec.Result != exchange.Complete || rec.Last() == nil {
						t.Errorf("a reader saw an unfinished record: %+v", rec)
						return
					}
				}
				r.Find(fmt.Sprintf("%d-%d", w, i))
				if u := r.Usage(); u.Bytes > u.Limit {
					t.Errorf("%d bytes in a Ring of %d", u.Bytes, u.Limit)
					return
				}
			}
		})
	}
	wg.Wait()
	if u := r.Usage(); u.Records+int(u.Evicted) != 2000 {
		t.Errorf("%d kept and %d dropped of 2000", u.Records, u.Evicted)
	}
}

func TestAddAllocatesOnce(t *testing.T) {
	r := NewRing(1 << 20)
	records := make([]*exchange.Record, 4000)
	for i := range records {
		records[i] = record(fmt.Sprint(i), 1, 8)
	}
	for _, rec := range records { // grow to full size
		r.Add(rec)
	}
	i := 0
	got := testing.AllocsPerRun(2000, func() {
		r.Add(records[i%len(records)])
		i++
	})
	if got > 1 {
		t.Errorf("Add of a request with one attempt allocates %v times, want 1", got)
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, candidates := range []int{3, 32} {
		b.Run(fmt.Sprintf("candidates=%d", candidates), func(b *testing.B) {
			r := NewRing(16 << 20)
			var records []*exchange.Record
			for i := range 20_000 {
				records = append(records, record(fmt.Sprint(i), 1, 0))
				records[i].Attempts[0].Decision.Candidates = slices.Repeat([]route.Candidate{{ID: "gpu-1/m"}}, candidates)[:candidates:candidates]
				if i > 100 { // the lists only count; sharing them keeps the benchmark small
					records[i].Attempts[0].Decision.Candidates = records[i%100].Attempts[0].Decision.Candidates
				}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				r.Add(records[i%len(records)])
				i++
			}
		})
	}
}
