//go:build !race

package exchange

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// usually is how long first tokens take in these tests until something is slow.
const usually = time.Second

// hedged prepares an exchange that may be hedged, on a fleet whose first tokens take a second.
func hedged(t *testing.T, plan Plan, pools ...route.PoolSpec) *bench {
	t.Helper()
	plan.Hedge, plan.Repeatable = true, true
	b := newBench(t, plan, route.Facts{Stream: true}, pools...)
	b.budget.Hedges(0.05)
	for range 40 {
		b.x = b.exchange(plan, route.Facts{Stream: true})
		b.do(Event{Kind: Started}, Dispatch)
		b.after(usually).do(Event{Kind: Content}, Commit)
		b.do(ended(llm.None), Finish)
	}
	b.x = b.exchange(plan, route.Facts{Stream: true})
	return b
}

// of is an event of a lane.
func of(lane Lane, e Event) Event {
	e.Lane = lane
	return e
}

// slow starts the exchange and lets the usual time pass without content, so that a second attempt begins.
func (b *bench) slow() (main, hedge *route.Lease) {
	b.t.Helper()
	b.do(Event{Kind: Started}, Dispatch)
	main = b.lease
	if at := b.x.Wake(); at.Sub(b.now) != usually {
		b.t.Fatalf("wakes after %v, want %v", at.Sub(b.now), usually)
	}
	if a := b.after(usually).do(Event{Kind: Timer}, Dispatch)[0]; a.Lane != Hedge {
		b.t.Fatalf("dispatched on lane %d", a.Lane)
	}
	return main, b.lease
}

func lanesOf(actions []Action) (l []Lane) {
	for _, a := range actions {
		l = append(l, a.Lane)
	}
	return l
}

func TestHedgeWins(t *testing.T) {
	b := hedged(t, Plan{}, pool(t, "m", 3, route.Limits{}))
	main, hedge := b.slow()
	if main.Deployment().Endpoint == hedge.Deployment().Endpoint {
		t.Error("both attempts are at the same endpoint")
	}
	got := b.after(200*time.Millisecond).do(of(Hedge, Event{Kind: Content}), Commit, Cancel)
	if fmt.Sprint(lanesOf(got)) != "[1 0]" {
		t.Errorf("committed to lane %d, cancelled lane %d", got[0].Lane, got[1].Lane)
	}
	b.do(of(Main, Event{Kind: Content})) // too late
	b.do(of(Main, ended(llm.Reset)))     // as cancelling looks
	b.after(time.Second).do(of(Hedge, ended(llm.None)), Finish)
	r := b.result(Complete)
	lost, won := r.Attempts[0], r.Attempts[1]
	if !won.Hedge || won.Waste || won.Outcome.TTFT != 200*time.Millisecond || r.Last().Deployment != won.Deployment {
		t.Errorf("the hedge: %+v", won)
	}
	if o := lost.Outcome; lost.Hedge || !lost.Waste || o.Verdict != route.NotDeploymentFault || o.Class != "hedge_lost" || o.Waited != 1200*time.Millisecond || o.InputTokens != main.Prompt() {
		t.Errorf("the loser: %+v", lost)
	}
}

func TestFirstAttemptWinsAgainstTheHedge(t *testing.T) {
	b := hedged(t, Plan{}, pool(t, "m", 2, route.Limits{}))
	b.slow()
	b.after(time.Millisecond).do(of(Main, Event{Kind: Content}), Commit, Cancel)
	b.do(of(Main, ended(llm.None))) // the other one has not ended yet
	b.do(of(Hedge, ended(llm.Reset)), Finish)
	r := b.result(Complete)
	if r.Last() != &r.Attempts[0] || !r.Attempts[1].Waste || r.Attempts[1].Outcome.Waited != 0 {
		t.Errorf("%+v", r.Attempts)
	}
}

// One of two that fails leaves the other; both failed, the next one begins as usual, and all count.
func TestAttemptsThatFailBesideEachOther(t *testing.T) {
	for _, lanes := range [][2]Lane{{Main, Hedge}, {Hedge, Main}} {
		b := hedged(t, Plan{}, pool(t, "m", 4, route.Limits{}))
		b.slow()
		b.do(of(lanes[0], ended(llm.ServerError)))
		again := b.do(of(lanes[1], ended(llm.ServerError)), Dispatch)[0]
		if again.Lane != Main {
			t.Errorf("the third attempt is on lane %d", again.Lane)
		}
		if at := b.x.Wake(); at.Sub(b.now) <= usually {
			t.Error("a second hedge is planned")
		}
		b.do(ended(llm.ServerError), Commit, Finish)
		if r := b.result(UpstreamError); len(r.Attempts) != 3 {
			t.Errorf("%d attempts, at most 3 are allowed", len(r.Attempts))
		}
	}
}

// TestHedgeThatFailedLeavesTheFirst: whatever the second attempt fails of, the client hears of the first. A refusal too,
// for without a hedge nobody would have refused: a deployment may have a shorter context, say.
func TestHedgeThatFailedLeavesTheFirst(t *testing.T) {
	for _, class := range []llm.Class{llm.RateLimited, llm.ClientFault} {
		b := hedged(t, Plan{}, pool(t, "m", 2, route.Limits{}))
		b.slow()
		b.do(of(Hedge, ended(class)))
		b.do(of(Main, Event{Kind: Content}), Commit)
		b.do(of(Main, ended(llm.None)), Finish)
		if r := b.result(Complete); r.Last() != &r.Attempts[0] || r.Attempts[1].Waste {
			t.Errorf("%v: %+v", class, r.Attempts)
		}
	}
	b := hedged(t, Plan{}, pool(t, "m", 2, route.Limits{}))
	b.slow()
	b.do(of(Main, ended(llm.ClientFault)), Commit, Cancel) // what the first one says holds
	b.do(of(Hedge, ended(llm.Reset)), Finish)
	b.result(ClientFault)
}

// TestNoHedge lists what keeps a second attempt from beginning; none of it costs any of the budget.
func TestNoHedge(t *testing.T) {
	f := func(name string, change func(b *bench), pools ...route.PoolSpec) {
		t.Run(name, func(t *testing.T) {
			if len(pools) == 0 {
				pools = []route.PoolSpec{pool(t, "m", 3, route.Limits{})}
			}
			b := hedged(t, Plan{}, pools...)
			change(b)
			spent := b.budget.hedgeParts
			b.do(Event{Kind: Started}, Dispatch)
			b.after(usually).do(Event{Kind: Timer})
			b.after(usually).do(Event{Kind: Timer})
			if b.budget.hedgeParts < spent {
				t.Error("the budget was charged")
			}
			b.x.Close(b.now)
			b.idle()
		})
	}
	oneHost := pool(t, "m", 2, route.Limits{})
	for i := range oneHost.Deployments {
		d := &oneHost.Deployments[i]
		d.Endpoint, d.ID = "same", fmt.Sprint("same/", i)
	}
	f("not planned", func(b *bench) { b.x.plan.Hedge = false })
	f("no attempt is left", func(b *bench) { b.x.plan.MaxAttempts = 1 })
	f("hedges have earned too little", func(b *bench) { b.budget.hedgeParts = part / 2 })
	f("all retries are spent", func(b *bench) {
		for b.budget.take() {
		}
	})
	f("one deployment", func(*bench) {}, pool(t, "m", 1, route.Limits{}))
	f("all at one endpoint", func(*bench) {}, oneHost)
	f("the answer was committed to", func(b *bench) {
		b.do(Event{Kind: Started}, Dispatch)
		b.do(Event{Kind: Release}, Commit)
		b.x.Close(b.now)
		b.x = b.exchange(Plan{}, route.Facts{Stream: true})
	})
}

// Of two that fit, the one in another failure domain is taken.
func TestAttemptsPreferAnotherFailureDomain(t *testing.T) {
	spec := pool(t, "m", 3, route.Limits{})
	for i, domain := range []string{"rack-1", "rack-1", "rack-2"} {
		spec.Deployments[i].Domain = domain
	}
	b := hedged(t, Plan{}, spec)
	main, hedge := b.slow()
	if main.Deployment().Domain == hedge.Deployment().Domain {
		t.Errorf("the hedge of %s went to %s", main.Deployment().ID, hedge.Deployment().ID)
	}
	b.x.Close(b.now)

	for range 6 {
		b.x = b.exchange(Plan{Repeatable: true}, route.Facts{})
		b.do(Event{Kind: Started}, Dispatch)
		first := b.lease.Deployment().Domain
		b.do(ended(llm.ServerError), Dispatch)
		if second := b.lease.Deployment().Domain; first == second {
			t.Errorf("from %s the next attempt went to %s", first, second)
		}
		b.x.Close(b.now)
	}
	b.idle()
}

// TestHedgesAreBounded: where everything is slow, hedges stay at their share of the requests.
func TestHedgesAreBounded(t *testing.T) {
	b := hedged(t, Plan{}, pool(t, "m", 4, route.Limits{}))
	b.budget.hedgeParts = 0
	hedges := 0
	const requests = 1000
	for i := range requests {
		b.x = b.exchange(Plan{Hedge: true, Repeatable: true}, route.Facts{Stream: true, Seed: uint64(i)})
		b.do(Event{Kind: Started}, Dispatch)
		wake := b.x.Wake()
		b.now = wake
		if a := b.x.Next(b.now, Event{Kind: Timer}); len(a) == 1 && a[0].Kind == Dispatch {
			hedges++
		}
		b.x.Close(b.now)
	}
	if hedges > requests/20 || hedges < requests/20-2 {
		t.Errorf("%d hedges of %d requests, want 5 %%", hedges, requests)
	}
	b.idle()
}

// TestEveryInterleavingOfTwoAttempts runs every sequence of a few events of two attempts and holds what the exchange asks for
// against what a shell relies on.
func TestEveryInterleavingOfTwoAttempts(t *testing.T) {
	const length = 4
	alphabet := []string{"m content", "h content", "m held", "h held", "m release", "h release",
		"m ok", "h ok", "m fails", "h fails", "m refuses", "h refuses", "time", "gone", "shutdown"}
	plan := Plan{Models: []string{"m"}, MaxAttempts: 3, Hedge: true, Repeatable: true, Deadlines: usual}
	b := hedged(t, plan, pool(t, "m", 4, route.Limits{}))
	sequences := 1
	for range length {
		sequences *= len(alphabet)
	}
	results := map[Result]int{}
	wasted := 0
	for n := range sequences {
		b.budget.parts, b.budget.hedgeParts = 10*part, 10*part
		s := newShell(b, plan)
		s.tell(Event{Kind: Started})
		b.now = b.x.Wake()
		s.tell(Event{Kind: Timer})
		if s.failed == "" && !s.running[Hedge] {
			t.Fatal("no second attempt began")
		}
		for rest := range length {
			code := n
			for range rest {
				code /= len(alphabet)
			}
			b.now = b.now.Add(time.Millisecond)
			s.step(alphabet[code%len(alphabet)])
		}
		s.finish()
		if s.failed != "" {
			t.Fatalf("%s: %s", strings.Join(s.log, ", "), s.failed)
		}
		results[b.x.rec.Result]++
		for i := range b.x.rec.Attempts {
			if b.x.rec.Attempts[i].Waste {
				wasted++
			}
		}
		for _, d := range b.router.View(b.now).Deployments {
			if d.InFlight != 0 {
				t.Fatalf("%s: %s counts %d", strings.Join(s.log, ", "), d.ID, d.InFlight)
			}
			if d.Breaker.State != route.Closed { // so that each sequence begins alike
				_ = b.router.Override(b.now, "deployment", d.ID, route.ForgetFailure)
			}
		}
	}
	if b.budget.inFlight != 0 {
		t.Errorf("the budget counts %d requests in flight", b.budget.inFlight)
	}
	for _, r := range []Result{Complete, ClientFault, Failed, Cut, ClientGone} {
		if results[r] == 0 {
			t.Errorf("no sequence ended in %s: %v", r, results)
		}
	}
	if wasted == 0 {
		t.Error("nothing was ever wasted")
	}
}

// shell does what a shell does with actions, and checks that it can.
type shell struct {
	*bench
	running, stopping [lanes]bool
	committed         []Lane
	over              bool
	log               []string
	failed            string // the first thing that was wrong
}

func newShell(b *bench, plan Plan) *shell {
	b.x = b.exchange(plan, route.Facts{Stream: true})
	return &shell{bench: b}
}

func (s *shell) wrong(format string, args ...any) {
	if s.failed == "" {
		s.failed = fmt.Sprintf(format, args...)
	}
}

func (s *shell) step(what string) {
	s.log = append(s.log, what)
	lane := Main
	if strings.HasPrefix(what, "h ") {
		lane = Hedge
	}
	if strings.Contains(what, " ") && !s.running[lane] {
		return
	}
	switch _, name, _ := strings.Cut(what, " "); name {
	case "content":
		s.tell(Event{Kind: Content, Lane: lane})
	case "held":
		s.tell(Event{Kind: Held, Lane: lane})
	case "release":
		s.tell(Event{Kind: Release, Lane: lane})
	case "ok":
		s.end(lane, llm.None)
	case "fails":
		s.end(lane, llm.Reset)
	case "refuses":
		s.end(lane, llm.ClientFault)
	default:
		switch what {
		case "time":
			if at := s.x.Wake(); !at.IsZero() {
				s.now = at
			}
			s.tell(Event{Kind: Timer})
		case "gone":
			s.tell(Event{Kind: Gone})
		case "shutdown":
			s.tell(Event{Kind: Shutdown})
		}
	}
}

func (s *shell) end(lane Lane, class llm.Class) {
	s.running[lane], s.stopping[lane] = false, false
	s.tell(of(lane, ended(class)))
}

// finish lets what still runs end, and time pass, until the exchange is over.
func (s *shell) finish() {
	for range 20 {
		switch {
		case s.over:
			if !s.x.Over() || s.x.Record().Result == "" || s.running != [lanes]bool{} {
				s.wrong("it is over, but running %v, result %q", s.running, s.x.Record().Result)
			}
			return
		case s.running[Hedge]:
			s.step("h fails")
		case s.running[Main]:
			s.step("m fails")
		default:
			s.step("time")
		}
	}
	s.wrong("it does not end")
}

func (s *shell) tell(e Event) {
	for _, a := range slices.Clone(s.x.Next(s.now, e)) {
		if s.over {
			s.wrong("action %d after the end", a.Kind)
		}
		switch a.Kind {
		case Dispatch:
			if s.running[a.Lane] || len(s.committed) > 0 || a.Lease.Deployment() == nil {
				s.wrong("dispatch on lane %d, running %v, committed %v", a.Lane, s.running, s.committed)
			}
			s.running[a.Lane] = true
		case Cancel:
			if !s.running[a.Lane] || s.stopping[a.Lane] {
				s.wrong("cancel of lane %d, running %v, being stopped %v", a.Lane, s.running, s.stopping)
			}
			s.stopping[a.Lane] = true
		case Commit:
			if s.committed = append(s.committed, a.Lane); len(s.committed) > 1 || s.stopping[a.Lane] {
				s.wrong("committed to %v, being stopped %v", s.committed, s.stopping)
			}
		case Finish, Fail:
			s.over = true
			if s.running != [lanes]bool{} {
				s.wrong("the end while running %v", s.running)
			}
		case Wait:
		}
	}
	if other := Main; len(s.committed) > 0 {
		if s.committed[0] == Main {
			other = Hedge
		}
		if s.running[other] && !s.stopping[other] {
			s.wrong("committed to lane %d while lane %d goes on", s.committed[0], other)
		}
	}
	if n := len(s.x.Record().Attempts); n > 3 {
		s.wrong("%d attempts", n)
	}
}

// TestWhereRepeatingIsUseless: an SDK would repeat an error of ours by itself; it is told not to where that is in vain, or
// where an engine may have done what must not be done twice.
func TestWhereRepeatingIsUseless(t *testing.T) {
	f := func(name string, class llm.Class, sent, repeatable, final bool) {
		t.Helper()
		b := newBench(t, Plan{Repeatable: repeatable, MaxAttempts: 1}, route.Facts{}, pool(t, "m", 1, route.Limits{}))
		b.do(Event{Kind: Started}, Dispatch)
		failure := b.do(ended(class, func(e *End) { e.Sent, e.Held = sent, false }), Fail)[0].Failure
		if failure.Final != final {
			t.Errorf("%s: %+v", name, failure)
		}
	}
	f("our credential", llm.Auth, true, true, true)
	f("broken", llm.Reset, true, true, false)
	f("broken, not to be done twice", llm.Reset, true, false, true)
	f("broken before it was sent", llm.Reset, false, false, false)
	f("a timeout, not to be done twice", llm.Timeout, true, false, true)
	f("rate limited, not to be done twice", llm.RateLimited, true, false, false)
}

// TestWhatIsUsualDoesNotShrinkWithHedges: each slow attempt loses, so that its time is never seen whole. What is seen of it
// counts, or the wait before a hedge would shrink to what hedges take.
func TestWhatIsUsualDoesNotShrinkWithHedges(t *testing.T) {
	b := hedged(t, Plan{}, pool(t, "m", 3, route.Limits{}))
	for range 100 {
		b.budget.parts, b.budget.hedgeParts = 10*part, 10*part
		b.x = b.exchange(Plan{Hedge: true, Repeatable: true}, route.Facts{Stream: true})
		b.do(Event{Kind: Started}, Dispatch)
		b.now = b.x.Wake()
		b.do(Event{Kind: Timer}, Dispatch)
		b.after(200*time.Millisecond).do(of(Hedge, Event{Kind: Content}), Commit, Cancel)
		b.do(of(Main, ended(llm.Reset)))
		b.do(of(Hedge, ended(llm.None)), Finish)
	}
	b.x = b.exchange(Plan{Hedge: true, Repeatable: true}, route.Facts{Stream: true})
	b.do(Event{Kind: Started}, Dispatch)
	if wait := b.x.Wake().Sub(b.now); wait < usually {
		t.Errorf("a hedge begins after %v, want %v or more", wait, usually)
	}
	b.x.Close(b.now)
	b.idle()
}
