package report

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"evenkeel/internal/engine"
	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
	"evenkeel/internal/sim"
	"evenkeel/internal/strategy"
)

// tenants gives every other request of a source to each of two tenants.
type tenants struct {
	sim.Source
	n int
}

func (s *tenants) Next(r *sim.Request) bool {
	ok := s.Source.Next(r)
	r.Tenant = []string{"<blue>", "red"}[s.n%2]
	s.n++
	return ok
}

const (
	fleetSize = 3
	length    = 10 * time.Minute
	burnIn    = time.Minute
)

// simulate runs sessions over a small fleet, and watches.
func simulate(t *testing.T, name string, seed uint64) Run {
	t.Helper()
	c, err := engine.Preset("vllm-8192")
	if err != nil {
		t.Fatal(err)
	}
	s, err := strategy.New(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	source, err := sim.NewSessions(seed, sim.SessionOptions{
		Rate: .5, Turns: sim.Law{Mean: 4}, Systems: 10, Zipf: 1, System: sim.Law{Mean: 2000}, Question: sim.Law{Mean: 500, CV: 1},
		Answer: sim.Law{Mean: 200, CV: 1}, Gap: sim.Law{Mean: 20, CV: 1}, Block: 64,
	})
	if err != nil {
		t.Fatal(err)
	}
	goal := sim.Goal{TTFT: 150 * time.Millisecond}
	w := NewWatch(WatchOptions{
		Deployments: []string{"e0/m", "e1/m", "e2/m"}, BurnIn: burnIn, Goal: goal, Choices: true,
		Cost: func(a *exchange.Attempt) float64 { return 1e-6 * float64(a.Outcome.InputTokens) },
	})
	o := sim.Options{
		Seed: seed, Strategy: s, Source: &tenants{Source: source}, Stream: true, BurnIn: burnIn, Goal: goal, Plan: exchange.Plan{MaxAttempts: 1}, Record: w.Record,
	}
	for range fleetSize {
		e, err := sim.NewEngine(c)
		if err != nil {
			t.Fatal(err)
		}
		o.Servers = append(o.Servers, e)
	}
	fleet, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.Finish(length); err != nil {
		t.Fatal(err)
	}
	return Run{Seed: seed, Result: fleet.Result(), Watch: w}
}

func sample(t *testing.T) *Report {
	t.Helper()
	r := &Report{
		Title: "a <b> & c", Facts: []Fact{{"engines", "3 × vllm-8192"}}, Note: "an excerpt", Priced: true, Goal: sim.Goal{TTFT: 150 * time.Millisecond},
	}
	names := []string{"round_robin", "least_tokens"}
	for _, name := range names {
		r.Policies = append(r.Policies, Policy{Name: name})
	}
	for seed := range uint64(2) {
		r.Add([]Run{simulate(t, names[0], seed+1), simulate(t, names[1], seed+1)})
	}
	return r
}

// TestWatchAgrees: what a Watch adds up is what the simulation measured.
func TestWatchAgrees(t *testing.T) {
	run := simulate(t, "least_tokens", 3)
	w, s := run.Watch, run.Result
	if w.all.Completed() != s.Results[exchange.Complete] || w.all.Requests == 0 || w.all.TTFT.Count() != s.TTFT.Count() {
		t.Errorf("watched %+v, measured %v", w.all.Results, s.Results)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9*math.Abs(want) {
			t.Errorf("%s: watched %v, measured %v", what, got, want)
		}
	}
	near("TTFT", w.all.TTFT.Mean(), s.TTFT.Mean())
	near("goodput", w.all.Good.Mean(), s.Goodput)
	near("hit share", float64(w.all.CachedTokens)/float64(w.all.PromptTokens), s.HitShare)
	if g := s.Goodput; g <= 0 || g >= 1 {
		t.Errorf("a goodput of %v tells nothing", g)
	}
	parts := 0
	for _, tally := range w.tenants {
		parts += tally.Requests
	}
	if parts != w.all.Requests || len(w.tenants) != 2 {
		t.Errorf("tenants sent %d of %d requests", parts, w.all.Requests)
	}
	good, ended := 0.0, 0.0
	for i, n := range w.ended.bins {
		ended += n
		good += w.good.bins[i]
	}
	near("goodput over time", good/ended, s.Goodput)
	near("dollars", w.all.Dollars.Mean()*float64(w.all.Dollars.Count()), 1e-6*float64(w.all.PromptTokens))
	if w.firsts == nil || slices.ContainsFunc(w.firsts, func(c choice) bool { return c.at < 0 || c.equal>>c.at&1 == 0 }) {
		t.Error("some request went nowhere, or where it should not, as it seems")
	}
}

// TestWatchLoad: the load over time adds up to what requests took.
func TestWatchLoad(t *testing.T) {
	run := simulate(t, "round_robin", 4)
	h := run.Watch.heat()
	sum := 0.0
	for _, row := range h.rows {
		for k, held := range row {
			if from := float64(k) * h.width; from >= burnIn.Seconds() && from+h.width <= length.Seconds() {
				sum += held * h.width
			}
		}
	}
	want := 0.0
	for _, held := range run.Result.InSystem {
		want += held * (length - burnIn).Seconds()
	}
	if math.Abs(sum-want) > .05*want { // the first and the last column are not whole
		t.Errorf("%v request-seconds, want about %v", sum, want)
	}
}

func TestTimeline(t *testing.T) {
	var line timeline
	line.spread(0, 1)
	line.spread(10, 12.5)
	line.spread(1000, 1000.5)
	if len(line.bins) > mostBins || line.width != 16 {
		t.Fatalf("%d bins of %v s", len(line.bins), line.width)
	}
	if line.bins[0] != 3.5 || line.bins[62] != .5 {
		t.Errorf("bins %v", line.bins)
	}
	var across timeline
	across.spread(.0625, .3125)
	if want := []float64{.0625, .125, .0625}; !slices.Equal(across.bins, want) {
		t.Errorf("bins %v, want %v", across.bins, want)
	}
}

// TestRows: rows carry what was measured, and differences are of the same requests.
func TestRows(t *testing.T) {
	r := sample(t)
	rows := r.Rows()
	if rows[0].Versus != nil || rows[1].Versus == nil || len(rows[1].Tenants) != 2 || rows[0].Seeds != 2 {
		t.Fatalf("rows %+v", rows)
	}
	a, b := &rows[0], &rows[1]
	want := (r.Policies[1].Runs[0].Result.TTFT.Mean() + r.Policies[1].Runs[1].Result.TTFT.Mean()) / 2
	if *b.TTFTMean != want || math.Abs(*b.Versus.TTFTMean-(*b.TTFTMean-*a.TTFTMean)) > 1e-9 || b.Versus.Requests != b.Requests || b.Requests != a.Requests || b.Completed+b.Failed != b.Requests {
		t.Errorf("got %+v", b)
	}
	if b.Versus.TTFTInterval == nil || b.TTFTInterval == nil || *b.Versus.TTFTInterval <= 0 {
		t.Fatalf("no intervals: %+v", b.Versus)
	}
	if *b.Versus.Cost != *b.Cost-*a.Cost || *b.Cost <= 0 {
		t.Errorf("costs %v and %v, a difference of %v", *a.Cost, *b.Cost, *b.Versus.Cost)
	}
	if x := b.Tenants[0]; x.Tenant != "<blue>" || x.Requests == 0 || x.TTFTChange == nil || *x.TTFTChange == 0 {
		t.Errorf("got %+v", x)
	}
	if sum := b.Tenants[0].Requests + b.Tenants[1].Requests; sum != b.Requests {
		t.Errorf("tenants have %d of %d requests", sum, b.Requests)
	}
}

// TestJSON: one object per policy, under the names that scripts rely on.
func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := sample(t).JSON(&b); err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	if err := json.Unmarshal(b.Bytes(), &rows); err != nil || len(rows) != 2 {
		t.Fatalf("%v\n%s", err, b.Bytes())
	}
	for _, row := range rows {
		for _, name := range []string{"ttft_mean_seconds", "ttft_p50_seconds", "ttft_p99_seconds", "itl_p99_seconds", "goodput", "hit_share", "cost_dollars", "imbalance", "requests"} {
			if x, ok := row[name].(float64); !ok || !(x > 0) {
				t.Errorf("%s is %v in %v", name, row[name], row["strategy"])
			}
		}
	}
	if got := slices.Sorted(maps.Keys(rows[1]["versus"].(map[string]any))); len(got) != 13 || !slices.Contains(got, "ttft_mean_interval_seconds") {
		t.Errorf("versus has %q", got)
	}
}

// TestNothingMeasured: a simulation that was interrupted before anything came has a report all the same, and no NaN.
func TestNothingMeasured(t *testing.T) {
	r := &Report{Title: "nothing", Policies: []Policy{{Name: "a"}, {Name: "b"}}}
	empty := func() Run {
		return Run{Seed: 1, Result: &sim.Result{}, Watch: NewWatch(WatchOptions{Deployments: []string{"a"}})}
	}
	r.Add([]Run{empty(), empty()})
	for name, write := range map[string]func(io.Writer) error{"JSON": r.JSON, "text": r.Text, "HTML": r.HTML} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
			t.Errorf("%s has a number that is none:\n%s", name, b.String())
		}
	}
}

// replies makes a run of requests one after the other, each answered after so many seconds, or, below 0, refused.
func replies(seed uint64, seconds func(n int) float64) Run {
	x := Run{Seed: seed, TraceShare: 1, Result: &sim.Result{Imbalance: 1}, Watch: NewWatch(WatchOptions{Deployments: []string{"a"}})}
	for n := range 400 {
		at := sim.Epoch.Add(time.Duration(n) * time.Second)
		rec := &exchange.Record{Result: exchange.Refused, Status: 429, Started: at, Ended: at}
		rec.Facts.ID = strconv.Itoa(n + 1)
		if s := seconds(n); s >= 0 {
			rec.Result, rec.Status = exchange.Complete, 200
			rec.Content = at.Add(time.Duration(s * float64(time.Second)))
			rec.Ended = rec.Content
			rec.Attempts = []exchange.Attempt{{Deployment: "a", Started: at, Ended: rec.Ended, Outcome: route.Outcome{Answered: true, InputTokens: 100, CachedTokens: n % 2 * 50, OutputTokens: 1}}}
			x.Result.TTFT.Add(n, s)
		}
		x.Watch.Record(&sim.Request{At: time.Duration(n) * time.Second, Tenant: []string{"short", "long"}[n%2]}, rec)
	}
	return x
}

// TestNothingAnswered: who answers nothing has no times, rather than none at all to wait.
func TestNothingAnswered(t *testing.T) {
	r := &Report{Policies: []Policy{{Name: "a"}, {Name: "b"}}}
	r.Add([]Run{replies(1, func(int) float64 { return 1 }), replies(1, func(int) float64 { return -1 })})
	rows := r.Rows()
	f := func(got []string, want string) {
		t.Helper()
		if text := strings.Join(got, " "); text != want {
			t.Errorf("got %q, want %q", text, want)
		}
	}
	f(r.results(rows).rows[1], "b - - - - - - 0.0 % - 1.00 400 400")
	f(r.differences(rows).rows[0], "b - - - - - -100.0 pp 0.0 pp - +400 +400")
	f(r.byTenant(rows).rows[1], "long b 200 200 200 - - 0.0 % - -")
	f(r.remarks(rows), "b against a: times and hit share are compared on the 0 of 400 requests that both answered.")
	var b bytes.Buffer
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	tenant := got[1]["tenants"].([]any)[0].(map[string]any)
	for _, of := range []struct {
		object map[string]any
		names  []string
	}{
		{got[1], []string{"ttft_mean_seconds", "ttft_p50_seconds", "ttft_p90_seconds", "ttft_p99_seconds", "itl_mean_seconds", "itl_p99_seconds", "response_mean_seconds", "response_p99_seconds", "hit_share"}},
		{got[1]["versus"].(map[string]any), []string{"ttft_mean_seconds", "ttft_mean_interval_seconds", "ttft_p99_seconds", "hit_share"}},
		{tenant, []string{"ttft_mean_seconds", "ttft_p99_seconds", "hit_share", "ttft_mean_change_seconds", "ttft_mean_change_interval_seconds"}},
	} {
		for _, name := range of.names {
			if x, there := of.object[name]; x != nil || !there {
				t.Errorf("%s is %v (there: %v), want null", name, x, there)
			}
		}
	}
}

// TestSurvivorsAreNoFaster: who refuses what takes long is not faster on what both answer.
func TestSurvivorsAreNoFaster(t *testing.T) {
	long := func(n int) float64 { return 1 + 8*float64(n%2) }
	r := &Report{Policies: []Policy{{Name: "all"}, {Name: "easy"}}}
	r.Add([]Run{replies(1, long), replies(1, func(n int) float64 {
		if n%2 == 1 {
			return -1
		}
		return 1.5
	})})
	rows := r.Rows()
	d := rows[1].Versus
	if d.Requests != 200 || math.Abs(*d.TTFTMean-.5) > 1e-9 || math.Abs(*d.TTFTP99-.5) > 1e-9 || *d.TTFTInterval > 1e-9 || *d.HitShare != 0 || *d.Goodput != -.5 {
		t.Errorf("got %+v", d)
	}
	if got := r.differences(rows).rows[0][2]; got != "+50.0 %" {
		t.Errorf("a change of %s", got)
	}
	want := "easy against all: times and hit share are compared on the 200 of 400 requests that both answered."
	if got := r.remarks(rows); !slices.Contains(got, want) {
		t.Errorf("remarks %q, want %q", got, want)
	}
	if x := rows[1].Tenants; x[0].TTFTChange != nil || math.Abs(*x[1].TTFTChange-.5) > 1e-9 {
		t.Errorf("tenants %+v", x)
	}
}

func TestDiffering(t *testing.T) {
	at := func(k int32, equal ...int) choice {
		c := choice{at: k}
		for _, e := range equal {
			c.equal |= 1 << e
		}
		return c
	}
	x := &Watch{o: WatchOptions{Deployments: []string{"a", "b"}}, index: map[string]int{"a": 0, "b": 1}}
	y := &Watch{o: WatchOptions{Deployments: []string{"b", "a", "c"}}, index: map[string]int{"b": 0, "a": 1, "c": 2}}
	for _, c := range []struct {
		x, y choice
		want string
	}{
		{at(0, 0), at(1, 1), "same"}, {at(1, 1), at(0, 0), "same"}, {at(nowhere), at(nowhere), "same"}, {at(unseen), at(0, 0), "same"},
		{at(0, 0), at(0, 0), "differ"}, {at(0, 0), at(2, 2), "differ"}, {at(nowhere), at(2, 2), "differ"},
		{at(0, 0, 1), at(0, 0, 1), "lot"}, {at(0, 0, 1), at(0, 0), "differ"}, {at(0, 0), at(0, 0, 1), "differ"},
	} {
		x.firsts, y.firsts = append(x.firsts, c.x), append(y.firsts, c.y)
		got := "same"
		one, two := *x, *y
		one.firsts, two.firsts = []choice{c.x}, []choice{c.y}
		switch _, differ, byLot := Differing(&one, &two, 1); {
		case differ == 1:
			got = "differ"
		case byLot == 1:
			got = "lot"
		}
		if got != c.want {
			t.Errorf("%+v and %+v: %s, want %s", c.x, c.y, got, c.want)
		}
	}
	if got, differ, byLot := Differing(x, y, 2); differ != 5 || byLot != 1 || !slices.Equal(got, []int{4, 5}) {
		t.Errorf("got %v of %d, and %d by lot, want [4 5] of 5, and 1", got, differ, byLot)
	}
}

// TestHTML: the page is well-formed, complete, and needs nothing from elsewhere.
func TestHTML(t *testing.T) {
	var b bytes.Buffer
	if err := sample(t).HTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	checkBalanced(t, page)
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode {
			counts[n.Data]++
			for _, a := range n.Attr {
				if slices.Contains([]string{"src", "href", "srcset", "data", "action", "style"}, a.Key) || strings.HasPrefix(a.Key, "on") {
					t.Errorf("<%s> has %s=%q", n.Data, a.Key, a.Val)
				}
			}
		}
	}
	if counts["script"]+counts["link"]+counts["img"]+counts["iframe"] > 0 || counts["figure"] != 5 || counts["table"] != 3 {
		t.Errorf("elements %v", counts)
	}
	if url := regexp.MustCompile(`(?i)[a-z]+://|url\(|@import`).FindString(page); url != "" {
		t.Errorf("the page refers to something: %q", url)
	}
	for _, want := range []string{"a &lt;b&gt; &amp; c", "&lt;blue&gt;", "an excerpt", "prefers-color-scheme: dark", "least_tokens"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if bad := regexp.MustCompile(`NaN|Inf|<nil>|%!`).FindString(page); bad != "" {
		t.Errorf("the page has %q", bad)
	}
}

// checkBalanced fails if elements are not closed in order: browsers repair that in ways of their own.
func checkBalanced(t *testing.T, page string) {
	t.Helper()
	void := []string{"meta"}
	var open []string
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch kind := z.Next(); kind {
		case html.ErrorToken:
			if z.Err() != io.EOF || len(open) > 0 {
				t.Errorf("at the end %v, open are %q", z.Err(), open)
			}
			return
		case html.StartTagToken:
			if name, _ := z.TagName(); !slices.Contains(void, string(name)) {
				open = append(open, string(name))
			}
		case html.EndTagToken:
			name, _ := z.TagName()
			if n := len(open); n == 0 || open[n-1] != string(name) {
				t.Fatalf("</%s> closes %q", name, open)
			}
			open = open[:len(open)-1]
		}
	}
}

// TestAxes: marks are round numbers that enclose what is shown.
func TestAxes(t *testing.T) {
	f := func(log bool, low, high float64, want ...float64) {
		t.Helper()
		a := axis{log: log}
		a.fit(low, high)
		got := a.ticks()
		same := len(got) == len(want)
		for i := 0; same && i < len(got); i++ {
			same = math.Abs(got[i]-want[i]) < 1e-9
		}
		if !same || a.low > low || a.high < high {
			t.Errorf("%v to %v: marks at %v from %v to %v, want %v", low, high, got, a.low, a.high, want)
		}
	}
	f(false, 0, 1, 0, .2, .4, .6, .8, 1)
	f(false, 0, 37, 0, 10, 20, 30, 40)
	f(true, .03, 4, .02, .05, .1, .2, .5, 1, 2, 5)
	f(true, .002, 90, .01, .1, 1, 10, 100)
	f(true, .5, .5, .5, 1)
}

// A table of very many tenants shows the busiest.
func TestManyTenants(t *testing.T) {
	var all []TenantRow
	for i := range 50 {
		all = append(all, TenantRow{Tenant: string(rune('A' + i)), Requests: i * 7 % 50})
	}
	got := busiest(all)
	if len(got) != mostTenants || !slices.IsSorted(got) {
		t.Fatalf("%q", got)
	}
	for i := range all {
		if want := all[i].Requests >= 30; slices.Contains(got, all[i].Tenant) != want {
			t.Errorf("a tenant with %d requests is shown: %v", all[i].Requests, !want)
		}
	}
	rows := []Row{{Strategy: "a", Tenants: all}}
	if table := new(Report).byTenant(rows); len(table.rows) != mostTenants || !strings.Contains(table.title, "30 more") {
		t.Errorf("%d rows, titled %q", len(table.rows), table.title)
	}
}
