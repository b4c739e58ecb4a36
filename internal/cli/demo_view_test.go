package cli

import (
	"os"
	"strings"
	"testing"
	"time"
)

// testFrame is a moment in which an engine is out and another one is behind.
func testFrame() frame {
	const ms = time.Millisecond
	return frame{
		strategy: "round_robin", step: 1, now: 7500 * ms, until: 15 * time.Second,
		rows: []row{
			{name: "fast", state: "closed", share: 0.36, inFlight: 5, p50: 24 * ms, p99: 113 * ms},
			{name: "medium", state: "open", reason: "connect", out: 1234 * ms, share: 0.28, p50: 41 * ms, p99: 239 * ms},
			{name: "slow", state: "closed", share: 0.36, inFlight: 32, queued: 18, p50: 661 * ms, p99: 1420 * ms},
			{name: "all", share: 1, inFlight: 37, queued: 18, p50: 47 * ms, p99: 1200 * ms},
		},
		asked: 220, complete: 180, running: 37, toldCut: 3, moved: 1,
		cuts: []count{{"open", 12}, {"already_tried", 1}},
		events: []event{
			{1 * time.Second, "an old event"}, {6000 * ms, "medium is killed: all its connections are reset"},
			{6200 * ms, "the balancer takes medium out: reset"}, {9000 * ms, "medium is started again"}, {9600 * ms, "the balancer uses medium again, after 2.59 s"},
		},
	}
}

// drawn is what a terminal of that width shows.
func drawn(lines []line, width int) string {
	var b strings.Builder
	for _, l := range lines {
		var one strings.Builder
		l.write(&one, width, false)
		b.WriteString(strings.TrimRight(one.String(), " ") + "\n")
	}
	return b.String()
}

func equalText(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPicture(t *testing.T) {
	f := testFrame()
	equalText(t, drawn(f.picture(80), 79), `
Evenkeel demo   1 of 2: round_robin   ━━━━━━━━━━━━────────────  7.5 s

engine  state               share  in flight  queued  TTFT p50      p99
fast    serving              36 %          5       0     24 ms   113 ms
medium  out 1.2 s: connect   28 %          0       0     41 ms   239 ms
slow    serving              36 %         32      18    661 ms   1.42 s
all                         100 %         37      18     47 ms   1.20 s

fast    █████
medium
slow    ██████████████▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
        █ running  ▒ queued at the engine

requests 220   complete 180   running 37   failed 0
cut by the kill and told so 3   moved to another engine 1
could not be chosen: out after failures 12, already tried by this request 1

   6.0 s  medium is killed: all its connections are reset
   6.2 s  the balancer takes medium out: reset
   9.0 s  medium is started again
   9.6 s  the balancer uses medium again, after 2.59 s
`)
}

func TestPictureOfANarrowTerminal(t *testing.T) {
	f := testFrame()
	f.rows[1].state, f.failed, f.cuts, f.events = "half_open", 2, nil, nil
	equalText(t, drawn(f.picture(45), 44), `
Evenkeel demo   1 of 2: round_robin   7.5 s

engine  state               TTFT p50      p9
fast    serving                24 ms   113 m
medium  on trial               41 ms   239 m
slow    serving               661 ms   1.42
all                            47 ms   1.20

fast    █████
medium
slow    ██████████████▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
        █ running  ▒ queued at the engine

requests 220   complete 180   running 37   f
cut by the kill and told so 3   moved to ano
could not be chosen: -

`)
}

func TestBarsFitTheTerminal(t *testing.T) {
	f := testFrame()
	f.rows[2].inFlight, f.rows[2].queued = 400, 300
	for _, width := range []int{1, 5, 9, 10, 40, 80, 200} {
		for _, l := range f.bars(width)[:3] {
			if n := l.width(); n > max(width-1, 8) {
				t.Errorf("a bar of %d columns on a terminal of %d: %s", n, width, l)
			}
		}
	}
	f.rows[2].inFlight, f.rows[2].queued = 3, 9 // counted a moment later
	if got := f.bars(80)[2].String(); got != "slow    ▒▒▒" {
		t.Errorf("%q", got)
	}
}

func TestPlainLine(t *testing.T) {
	f := testFrame()
	equalText(t, f.plain().String(), `   7.5 s  fast 36 %, 5 in flight, TTFT p50 24 ms p99 113 ms`+
		` | medium 28 %, 0 in flight, TTFT p50 41 ms p99 239 ms, OUT connect`+
		` | slow 36 %, 32 in flight (18 queued), TTFT p50 661 ms p99 1.42 s`+
		` | all 100 %, 37 in flight (18 queued), TTFT p50 47 ms p99 1.20 s`)
}

func TestBrief(t *testing.T) {
	f := func(d time.Duration, want string) {
		t.Helper()
		if got := brief(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	f(0, "-")
	f(-time.Second, "-")
	f(1234*time.Microsecond, "1.2 ms")
	f(10*time.Millisecond, "10 ms")
	f(999*time.Millisecond, "999 ms")
	f(999600*time.Microsecond, "1.00 s")
	f(9990*time.Millisecond, "9.99 s")
	f(9996*time.Millisecond, "10.0 s")
	f(123*time.Second, "123 s")
}

// testTally has one sample for each percent.
func testTally(strategy string, unit time.Duration, shares [3]uint64, queue int) *tally {
	engines := []string{"fast", "medium", "slow"}
	t := newTally(strategy, engines)
	t.asked, t.complete, t.toldCut, t.moved, t.tokens, t.span = 301, 298, 3, 1, 9000, 10*time.Second
	for i := range 100 {
		t.first("slow", time.Duration(i+1)*unit)
	}
	for i, e := range engines {
		t.engines[e].picks = shares[i]
	}
	t.engines["slow"].longestQueue = queue
	return t
}

func TestReport(t *testing.T) {
	engines := []string{"fast", "medium", "slow"}
	a, b := testTally("round_robin", 40*time.Millisecond, [3]uint64{38, 24, 38}, 29), testTally("least_tokens", 5*time.Millisecond, [3]uint64{57, 24, 19}, 1)
	equalText(t, drawn(demoReport(a, b, engines, 79), 79), `

                                  round_robin  least_tokens
  requests                                301           301
    complete                              298           298
    cut by the kill, client told            3             3
    failed                                  0             0
  moved to another engine                   1             1
  TTFT mean                            2.02 s        252 ms
       p50                             2.00 s        250 ms
       p99                             3.96 s        495 ms
  tokens per second                       900           900
  share of fast                          38 %          57 %
  share of medium                        24 %          24 %
  share of slow                          38 %          19 %
  longest queue at fast                     0             0
  longest queue at medium                   0             0
  longest queue at slow                    29             1

Same traffic, same kill: under least_tokens the p99 of the time to first token
(TTFT) is 8.0 times shorter.

Why: round_robin gives every engine as many requests as the others, and slow
cannot serve its part (38 %): up to 29 queued there. least_tokens goes by how
soon each engine is likely to answer: slow got 19 %, and no more than 1 queued.

602 requests: 596 complete, 6 cut by the kill and told so, 0 failed.
`)
	equalText(t, a.summary().String(), "round_robin   301 requests, 3 cut, 0 failed, TTFT p50 2.00 s, p99 3.96 s")
}

// TestReportStaysHonest where the default did not win, requests failed, or there is nothing to compare.
func TestReportStaysHonest(t *testing.T) {
	engines := []string{"fast", "medium", "slow"}
	a, b := testTally("round_robin", 10*time.Millisecond, [3]uint64{1, 1, 1}, 2), testTally("least_tokens", 20*time.Millisecond, [3]uint64{1, 1, 1}, 2)
	a.complete, a.failed, b.dropped = 296, map[string]int{"status 503 evenkeel_no_capacity": 2}, 4
	text := drawn(demoReport(a, b, engines, 200), 0)
	mustContain(t, text, "This time least_tokens was no better", "(TTFT) is 2.0 times longer", "594 complete, 6 cut by the kill and told so, 2 failed, 4 dropped when interrupted.",
		"    dropped when interrupted                0             4\n", "  2 failed under round_robin: status 503 evenkeel_no_capacity")
	if strings.Contains(text, "Why") {
		t.Errorf("it explains what did not happen:\n%s", text)
	}
	mustContain(t, drawn(demoReport(a, a, engines, 79), 79), "both strategies were about equal")
	mustContain(t, drawn(demoReport(a, newTally("least_tokens", engines), engines, 79), 79), "Nothing can be compared")
}

// TestReportOfAShortRun makes nothing of a small difference, and speaks of no queue where there was none.
func TestReportOfAShortRun(t *testing.T) {
	engines := []string{"fast", "medium", "slow"}
	a, b := testTally("round_robin", 11*time.Millisecond, [3]uint64{1, 1, 1}, 3), testTally("least_tokens", 10*time.Millisecond, [3]uint64{2, 1, 1}, 0)
	text := drawn(demoReport(a, b, engines, 200), 0)
	mustContain(t, text, "about equal")
	if strings.Contains(text, "times shorter") || strings.Contains(text, "Why") {
		t.Error(text)
	}
	b.ttft = testTally("", 5*time.Millisecond, [3]uint64{}, 0).ttft
	mustContain(t, drawn(demoReport(a, b, engines, 300), 0), "2.2 times shorter", "slow got 25 %, and none queued.")
}

// TestCutWords are those of explain.
func TestCutWords(t *testing.T) {
	doc, err := os.ReadFile("../../docs/explain.md")
	if err != nil {
		t.Fatal(err)
	}
	for reason, words := range cutWords {
		mustContain(t, string(doc), "| `"+reason+"` | "+words+" |")
	}
}

// TestWhatRemains of a half: its events too, where the picture that showed them is gone.
func TestWhatRemains(t *testing.T) {
	p := &phase{tally: newTally("round_robin", nil), events: testFrame().events[1:]}
	const summary = "round_robin   0 requests, 0 cut, 0 failed, TTFT p50 -, p99 -\n"
	equalText(t, drawn(p.remains(false), 0), summary)
	equalText(t, drawn(p.remains(true), 0), summary+`   6.0 s  medium is killed: all its connections are reset
   6.2 s  the balancer takes medium out: reset
   9.0 s  medium is started again
   9.6 s  the balancer uses medium again, after 2.59 s
`)
}

func TestNameToType(t *testing.T) {
	f := func(want, started, path string, inPath bool) {
		t.Helper()
		if got := nameToType(started, path, inPath); got != want {
			t.Errorf("%s (%s, in PATH: %t): got %q, want %q", started, path, inPath, got, want)
		}
	}
	f("evenkeel", "evenkeel", "/usr/bin/evenkeel", true)
	f("evenkeel", "/usr/bin/evenkeel", "/usr/bin/evenkeel", true)
	f("bin/evenkeel", "bin/evenkeel", "/src/bin/evenkeel", false)
	f(`.\evenkeel.exe`, `.\evenkeel.exe`, `C:\evenkeel.exe`, false)
	f("evenkeel", "evenkeel", "/opt/evenkeel", false)
	f("go run ./cmd/evenkeel", "/tmp/go-build12/b001/exe/evenkeel", "/tmp/go-build12/b001/exe/evenkeel", false)
	f("go run ./cmd/evenkeel", "/home/a/.cache/go-build/7f/7f01-d/evenkeel", "/home/a/.cache/go-build/7f/7f01-d/evenkeel", false)
}

func TestNextSteps(t *testing.T) {
	f := &demoFleet{data: "http://127.0.0.1:1111", admin: "http://127.0.0.1:2222"}
	equalText(t, drawn(nextSteps(f, "evenkeel", false), 0), `

Next: your own engines (vLLM, SGLang, llama.cpp, Ollama, ...) behind it:
  evenkeel serve http://gpu-1:8000 http://gpu-2:8000
  curl -N http://127.0.0.1:8080/v1/chat/completions \
    -H 'content-type: application/json' \
    -d '{"model": "YOUR-MODEL", "stream": true, "max_tokens": 40,
         "messages": [{"role": "user", "content": "Hello"}]}'
  evenkeel explain last   # why did it go where it went?
`)
	equalText(t, drawn(nextSteps(f, "bin/evenkeel", true), 0), `

Balancer and engines stay up until Ctrl-C. Try, in another terminal:
  curl -N http://127.0.0.1:1111/v1/chat/completions \
    -H 'content-type: application/json' \
    -d '{"model": "demo-model", "stream": true, "max_tokens": 40,
         "messages": [{"role": "user", "content": "Hello"}]}'
  bin/evenkeel explain --admin-url http://127.0.0.1:2222 last
  curl 'http://127.0.0.1:2222/deployments?format=text'

Next: your own engines (vLLM, SGLang, llama.cpp, Ollama, ...) behind it:
  bin/evenkeel serve http://gpu-1:8000 http://gpu-2:8000
  bin/evenkeel explain last   # why did it go where it went?
`)
}

func TestWrap(t *testing.T) {
	f := func(text string, width int, want ...string) {
		t.Helper()
		if got := wrap(text, width); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%q in %d columns: %q", text, width, got)
		}
	}
	f("", 10)
	f("one  two three", 7, "one two", "three")
	f("one", 0, "one")
	f("größe zwei", 10, "größe zwei")
}
