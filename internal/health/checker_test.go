package health

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
	"evenkeel/internal/upstream"
)

// inBubble runs a test in virtual time, with a world that works.
func inBubble(t *testing.T, names string, test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, names)
		w.run()
		defer w.stop()
		test(t, w)
	})
}

// TestEveryTargetOncePerInterval: and not all at once.
func TestEveryTargetOncePerInterval(t *testing.T) {
	const names = "abcdefghijklmnopqrstuvwxyz"
	inBubble(t, names, func(t *testing.T, w *world) {
		p := w.plan(names, "openai")
		w.checker.Set(p)
		pass(p.Interval)
		cells := make([]int, 5)
		for round := range 4 {
			for name, f := range w.fakes {
				asked := f.all()
				if len(asked) != round+1 {
					t.Fatalf("after %d intervals %s was probed %d times", round+1, name, len(asked))
				}
				if round > 0 {
					gap := asked[round].at.Sub(asked[round-1].at)
					if gap < p.Interval-coarsest || gap > p.Interval+coarsest {
						t.Errorf("%s was probed after %v", name, gap)
					}
				} else {
					cells[asked[0].at.Sub(start)*5/(p.Interval+1)]++
				}
			}
			pass(p.Interval)
		}
		if slices.Min(cells) == 0 || slices.Max(cells) > 12 {
			t.Errorf("by fifths of the interval %v were probed", cells)
		}
	})
}

// TestNoInterval: nothing is sent where nothing is asked for, and nothing costs where there is no prompt.
func TestNoInterval(t *testing.T) {
	inBubble(t, "ab", func(t *testing.T, w *world) {
		p := w.plan("ab", "vllm")
		p.Interval = 0
		w.checker.Set(p)
		pass(time.Hour)
		if n := w.fakes["a"].count(); n != 0 {
			t.Errorf("%d probes without an interval", n)
		}
		p = w.plan("ab", "vllm")
		p.Prompt = ""
		w.checker.Set(p)
		pass(time.Minute)
		if a := w.fakes["a"].all(); len(a) != 4 || a[0].method != http.MethodGet || a[3].path != "/health" {
			t.Errorf("without a prompt: %+v", a)
		}
	})
}

// TestNeverTwoAtATime: a probe that takes longer than the interval delays the next.
func TestNeverTwoAtATime(t *testing.T) {
	inBubble(t, "a", func(t *testing.T, w *world) {
		p := w.plan("a", "openai")
		p.Interval, p.Timeout = time.Second, 10*time.Second
		var running, most atomic.Int32
		w.fakes["a"].become(func(stop *upstream.Stop, r *upstream.Request) (*http.Response, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(4500 * time.Millisecond) // of the bubble
			return well(stop, r)
		})
		w.checker.Set(p)
		pass(46 * time.Second)
		if n := w.fakes["a"].count(); most.Load() != 1 || n < 10 || n > 11 {
			t.Errorf("%d probes, %d at a time", n, most.Load())
		}
	})
}

// TestRequestsSpareProbes: who has answered a request within the interval is not asked.
func TestRequestsSpareProbes(t *testing.T) {
	inBubble(t, "a", func(t *testing.T, w *world) {
		w.checker.Set(w.plan("a", "openai"))
		for range 20 {
			w.succeed("a")
			pass(5 * time.Second)
		}
		if n := w.fakes["a"].count(); n != 0 {
			t.Errorf("%d probes beside requests that succeed", n)
		}
		pass(45 * time.Second)
		if n := w.fakes["a"].count(); n != 2 && n != 3 {
			t.Errorf("%d probes in 3 intervals without requests, the first of which began with one; want 2 or 3", n)
		}
	})
}

// TestExpectationIsAskedForBesideRequests: what they do not say is asked for now and then.
func TestExpectationIsAskedForBesideRequests(t *testing.T) {
	inBubble(t, "a", func(t *testing.T, w *world) {
		p := w.plan("a", "openai")
		p.Expect = regexp.MustCompile("yes")
		w.checker.Set(p)
		traffic := func(d time.Duration) {
			for range d / (5 * time.Second) {
				w.succeed("a")
				pass(5 * time.Second)
			}
		}
		traffic(15 * time.Second)
		if n, s := w.fakes["a"].count(), w.view("a").Breaker; n != 1 || s.State != route.Degraded || s.Reason != "probe_expect" {
			t.Fatalf("after %d probes with results %v: %+v", n, w.said(), s)
		}
		w.fakes["a"].become(answering(200, events, chunk(`"content":"yes"`, ""), chunk("", "stop"), done))
		traffic(15 * time.Second) // while it is degraded, each turn is taken
		if n, s := w.fakes["a"].count(), w.state("a"); n != 2 || s != route.Closed {
			t.Fatalf("after %d probes it is %v", n, s)
		}
		traffic(20 * 15 * time.Second)
		if n := w.fakes["a"].count(); n != 4 {
			t.Errorf("%d probes in 20 intervals with requests, want 2", n-2)
		}
	})
}

// TestFailuresOpenAndSuccessesClose: three of the one, two of the other, and no request is needed.
func TestFailuresOpenAndSuccessesClose(t *testing.T) {
	inBubble(t, "a", func(t *testing.T, w *world) {
		w.fakes["a"] = &fake{reply: answering(500, "application/json", "{}")}
		p := w.plan("a", "openai")
		w.checker.Set(p)
		pass(2 * p.Interval)
		if s := w.state("a"); s != route.Closed {
			t.Errorf("after 2 failures it is %v", s)
		}
		pass(p.Interval)
		if b := w.view("a").Breaker; b.State != route.Open || b.Rule != route.RuleProbe || b.Reason != "server_error" {
			t.Errorf("after 3 failures it is %+v", b)
		}
		w.fakes["a"].become(well)
		pass(p.Interval)
		if s := w.state("a"); s != route.Open {
			t.Errorf("after 1 success it is %v", s)
		}
		pass(p.Interval)
		if s := w.state("a"); s != route.SlowStart {
			t.Errorf("after 2 successes it is %v", s)
		}
		for i, r := range w.said() {
			if changed := i == 0 || i == 3; r.Changed != changed || i == 3 && r.Before != Failed || i == 0 && r.Before != "" || r.Name != "a/m" || r.Page {
				t.Errorf("result %d: %+v", i, r)
			}
		}
	})
}

// TestSlowProbesDegrade: where a threshold is set, the probes are held against it, and against each other.
func TestSlowProbesDegrade(t *testing.T) {
	inBubble(t, "a", func(t *testing.T, w *world) {
		w.router.Configure(route.Options{Health: route.Health{TTFTThreshold: 800 * time.Millisecond}})
		w.fakes["a"] = &fake{reply: answering(200, events, "", "", chunk(`"content":"hi"`, ""), chunk("", "stop"), done)}
		p := w.plan("a", "openai")
		w.checker.Set(p)
		pass(6 * p.Interval)
		if b := w.view("a").Breaker; b.State != route.Degraded || b.Reason != "slow" {
			t.Errorf("at 2 s for each first token it is %+v", b)
		}
		w.fakes["a"].become(answering(200, events, "~", chunk(`"content":"hi"`, ""), chunk("", "stop"), done))
		pass(6 * p.Interval)
		if s := w.state("a"); s != route.Closed {
			t.Errorf("when it is fast again it is %v", s)
		}
	})
}

// TestWhoIsNotAsked: those who are not to be, or about whom more is known already.
func TestWhoIsNotAsked(t *testing.T) {
	f := func(name string, want int, change func(*world, *Plan)) {
		t.Helper()
		inBubble(t, "a", func(t *testing.T, w *world) {
			p := w.plan("a", "openai")
			change(w, p)
			w.checker.Set(p)
			pass(3 * p.Interval)
			if n := w.fakes["a"].count(); n != want {
				t.Errorf("%s: %d probes, want %d", name, n, want)
			}
		})
	}
	order := func(kind, name string, o route.Override) func(*world, *Plan) {
		return func(w *world, _ *Plan) {
			if err := w.router.Override(time.Now(), kind, name, o); err != nil {
				w.t.Error(err)
			}
		}
	}
	f("all is well", 3, func(*world, *Plan) {})
	f("drained", 0, order("deployment", "a/m", route.Drain))
	f("disabled", 0, order("deployment", "a/m", route.Disable))
	f("its endpoint is drained", 0, order("endpoint", "a", route.Drain))
	f("nobody answers there", 0, func(w *world, _ *Plan) { w.router.Observe(time.Now(), scope("a"), false) })
	f("not to be asked", 0, func(_ *world, p *Plan) { p.Endpoints[0].Deployments[0].Ask = false })
	f("another address has the name", 0, func(_ *world, p *Plan) { p.Endpoints[0].URL = "http://b" })
	f("asked to be left alone", 1, func(w *world, _ *Plan) {
		l, _ := w.router.Pick(time.Now(), route.Query{Model: "a", Facts: &route.Facts{Model: "a"}})
		l.Done(time.Now(), route.Outcome{Verdict: route.DeploymentFault, Fault: route.RateLimited, Answered: true, Status: 429, RetryAfter: 30 * time.Second})
	})
}

// TestPages: what the pages of engines say degrades, and neither opens nor closes anything.
func TestPages(t *testing.T) {
	f := func(want route.BreakerState, reply func(*upstream.Stop, *upstream.Request) (*http.Response, error)) {
		t.Helper()
		inBubble(t, "a", func(t *testing.T, w *world) {
			w.fakes["a"] = &fake{reply: reply}
			p := w.plan("a", "vllm")
			p.Prompt = ""
			w.checker.Set(p)
			pass(2 * p.Interval)
			if s := w.state("a"); s != route.Closed {
				t.Errorf("after 2 pages it is %v", s)
			}
			pass(8 * p.Interval)
			if b := w.view("a").Breaker; b.State != want || want == route.Degraded && b.Reason != "health_page" {
				t.Errorf("after 10 pages it is %+v, want %v", b, want)
			}
			w.fakes["a"].become(answering(200, "", "ok"))
			pass(p.Interval)
			if s := w.state("a"); s != route.Closed {
				t.Errorf("after a good page it is %v", s)
			}
		})
	}
	f(route.Closed, answering(200, "text/plain"))
	f(route.Closed, answering(404, "text/html", "<html>"))
	f(route.Closed, answering(401, "application/json", "{}"))
	f(route.Closed, answering(301, "text/html"))
	f(route.Closed, answering(429, "text/html"))
	f(route.Closed, answering(501, "text/html"))
	f(route.Degraded, answering(503, "application/json", "{}"))
	f(route.Degraded, answering(500, "text/plain", "dead"))
	f(route.Degraded, answering(200, "text/plain", "o", "!"))
	f(route.Degraded, answering(200, "text/plain", "..."))
}

// TestUnreachableIsTheEndpointsMatter: the deployment is not blamed, and discovery will see the endpoint return.
func TestUnreachableIsTheEndpointsMatter(t *testing.T) {
	inBubble(t, "a", func(t *testing.T, w *world) {
		w.fakes["a"] = &fake{reply: func(*upstream.Stop, *upstream.Request) (*http.Response, error) {
			return nil, &upstream.Error{Class: llm.Connect, Unreachable: true, Err: context.DeadlineExceeded}
		}}
		w.checker.Set(w.plan("a", "openai"))
		pass(15 * time.Second)
		if !w.router.Out(scope("a")) || w.state("a") != route.Closed {
			t.Errorf("the deployment is %v, the endpoint out: %v", w.state("a"), w.router.Out(scope("a")))
		}
		pass(time.Minute)
		if n := w.fakes["a"].count(); n != 1 {
			t.Errorf("%d probes of an endpoint that is out, want the one that found out", n)
		}
	})
}

// TestWhoLeftIsNotProbed, and what was found of it meanwhile is thrown away.
func TestWhoLeftIsNotProbed(t *testing.T) {
	inBubble(t, "ab", func(t *testing.T, w *world) {
		p := w.plan("ab", "openai")
		w.fakes["a"].become(answering(200, events, "", "", "!"))
		w.checker.Set(p)
		for w.fakes["a"].count() == 0 {
			pass(100 * time.Millisecond)
		}
		w.checker.Set(w.plan("b", "openai")) // while a is being asked
		pass(4 * p.Interval)
		if n := w.fakes["a"].count(); n != 1 {
			t.Errorf("%d probes of a", n)
		}
		for _, r := range w.said() {
			if r.Name != "b/m" {
				t.Errorf("a result of who left: %+v", r)
			}
		}
		if n := w.fakes["b"].count(); n < 4 || n > 5 {
			t.Errorf("%d probes of b, whose turns stay", n)
		}
	})
}

// TestWhoReturnsIsNotProbedTwice at a time: a reload may take a target away and bring it back while it is being asked.
func TestWhoReturnsIsNotProbedTwice(t *testing.T) {
	inBubble(t, "ab", func(t *testing.T, w *world) {
		plan := func(names string) *Plan {
			p := w.plan(names, "openai")
			p.Interval, p.Timeout = time.Second, time.Minute
			return p
		}
		w.fakes["a"], w.fakes["b"] = &fake{reply: answering(200, events, "...")}, &fake{reply: well}
		w.checker.Set(plan("ab"))
		pass(2 * time.Second)
		w.checker.Set(plan("b"))
		w.checker.Set(plan("ab"))
		pass(30 * time.Second)
		if n := w.fakes["a"].count(); n != 1 {
			t.Errorf("%d probes at a time", n)
		}
		pass(2 * time.Minute)
		if n := w.fakes["a"].count(); n < 2 || n > 3 {
			t.Errorf("%d probes after the first one has ended, want it to go on", n)
		}
	})
}

// TestWhatProbesFoundEndsWithThem: who is degraded by probes is not so for ever once a reload has switched them off.
func TestWhatProbesFoundEndsWithThem(t *testing.T) {
	f := func(name string, before func(*Plan), off func(*Plan)) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, "a", func(t *testing.T, w *world) {
				p := w.plan("a", "vllm")
				before(p)
				w.checker.Set(p)
				pass(4 * p.Interval)
				if s := w.state("a"); s != route.Degraded {
					t.Fatalf("%v, want degraded", s)
				}
				p = w.plan("a", "vllm")
				before(p)
				off(p)
				w.checker.Set(p)
				if s := w.state("a"); s != route.Closed {
					t.Errorf("%v after its probes were switched off, want closed", s)
				}
				pass(time.Minute)
				if s := w.state("a"); s != route.Closed {
					t.Errorf("%v a minute later", s)
				}
			})
		})
	}
	unexpected := func(p *Plan) { p.Expect = regexp.MustCompile("^no$") }
	f("no interval", unexpected, func(p *Plan) { p.Interval = 0 })
	f("no prompt", unexpected, func(p *Plan) { p.Prompt = "" })
	f("not asked", unexpected, func(p *Plan) { p.Endpoints[0].Deployments[0].Ask = false })
	page := func(p *Plan) {
		p.Prompt = ""
		p.Endpoints[0].Caller.(*fake).become(answering(503, "text/plain", "dead"))
	}
	f("no pages", page, func(p *Plan) { p.Interval = 0 })
	f("a kind without a page", page, func(p *Plan) { p.Endpoints[0].Kind = kind("openai") })
}

// TestRunEndsItsProbes: nothing is running once it returns.
func TestRunEndsItsProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		p := w.plan("a", "openai")
		p.Timeout = time.Hour
		w.fakes["a"].become(answering(200, events, "..."))
		w.checker.Set(p)
		w.run()
		pass(p.Interval)
		begun := time.Now()
		w.stop()
		if took := time.Since(begun); took > time.Second || w.fakes["a"].count() != 1 || len(w.said()) != 0 {
			t.Errorf("it took %v, after %d probes with results %v", took, w.fakes["a"].count(), w.said())
		}
	})
}
