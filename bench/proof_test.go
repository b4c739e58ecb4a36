package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// world is an evenkeel and its engines as the bench sees them.
type world struct {
	requests, input, cached, output int
	lines                           string // of the log
	prompt, generated               int
	started, completed              int
	explain                         map[string]string
}

const explained = `{"id":%q,"result":"complete","attempts":[{"deployment":"a/m","decision":{"chosen":"a/m","candidates":[{},{},{}]}}]}`

func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/metrics":
		fmt.Fprintf(out, "# HELP evenkeel_requests_total Requests.\nevenkeel_requests_total{api=\"chat\",model=\"m\",result=\"complete\"} %d\n", w.requests)
		for kind, n := range map[string]int{"input": w.input, "cached_input": w.cached, "output": w.output} {
			fmt.Fprintf(out, "evenkeel_tokens_total{deployment=\"a/m\",kind=%q,model=\"m\",source=\"reported\"} %d\n", kind, n)
		}
		fmt.Fprint(out, "evenkeel_requests_total{model=\"other\"} 9\nevenkeel_overhead_seconds_sum 0.5\n")
	case r.URL.Path == "/engines":
		fmt.Fprintf(out, `[{"stats":{"started":%d,"completed":%d,"prompt_tokens":%d,"output_tokens":%d}}]`, w.started, w.completed, w.prompt, w.generated)
	case r.URL.Path == "/explain":
		fmt.Fprintf(out, `{"kept":%d}`, len(w.explain))
	case w.explain[strings.TrimPrefix(r.URL.Path, "/explain/")] != "":
		io.WriteString(out, w.explain[strings.TrimPrefix(r.URL.Path, "/explain/")])
	default:
		http.NotFound(out, r)
	}
}

// No way of counting, logging or explaining wrong goes unseen.
func TestEveryMismatchIsSeen(t *testing.T) {
	const line = "time=x level=INFO msg=exchange id=a\n"
	f := func(name, want string, change func(*world)) {
		t.Helper()
		w := &world{}
		s := httptest.NewServer(w)
		defer s.Close()
		log := filepath.Join(t.TempDir(), "log")
		e := &balancer{admin: s.URL, client: s.Client(), process: &process{name: "it", log: log, done: make(chan struct{})}}
		b := &bed{places: map[string]place{"m": {evenkeel: way{balancer: e}}}, mocks: map[string]string{"m": s.URL}}
		if err := os.WriteFile(log, []byte(line), 0o600); err != nil { // of before
			t.Fatal(err)
		}
		w.requests, w.input = 5, 7
		before, err := b.books("m")
		if err != nil {
			t.Fatal(err)
		}
		l := &load{cell: cell{model: "m"}}
		l.clients = []*client{{load: l, tally: tally{complete: 2}, answered: []answered{{"x", time.Unix(1, 0)}, {"y", time.Unix(2, 0)}}}}
		*w = world{requests: 7, input: 10, cached: 3, output: 8, lines: line + line, prompt: 6, generated: 8, started: 2, completed: 2,
			explain: map[string]string{"x": fmt.Sprintf(explained, "x"), "y": fmt.Sprintf(explained, "y")}}
		change(w)
		if err := os.WriteFile(log, []byte(line+"msg=other\n"+w.lines+"time=x level=INFO msg=exch"), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), settlePatience)
		if want != "" {
			close(e.process.done) // so that nothing is waited for
		}
		defer cancel()
		var p proof
		if err := b.prove(ctx, before, l, &p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := strings.Join(p.problems, "\n")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: problems %q, want %q", name, got, want)
		}
		if want == "" && (p.asked != 2 || p.explained != 2 || p.explainedOf != 2 || p.inReach != 2 || p.input != 6 || p.output != 8) {
			t.Errorf("%s: %+v", name, p)
		}
	}
	f("all is right", "", func(*world) {})
	f("a request not counted", "2 requests were made; evenkeel counts 1 and logs 2", func(w *world) { w.requests-- })
	f("a request counted twice", "2 requests were made; evenkeel counts 3 and logs 2", func(w *world) { w.requests++ })
	f("a line missing", "evenkeel counts 2 and logs 1", func(w *world) { w.lines = line })
	f("a request tried twice", "the engines count 3", func(w *world) { w.started, w.completed = 3, 3 })
	f("prompt tokens", "evenkeel metered 5 and 8 tokens, the engines count 6 and 8", func(w *world) { w.cached-- })
	f("output tokens", "evenkeel metered 6 and 9 tokens, the engines count 6 and 8", func(w *world) { w.output++ })
	f("not explained", "after the load: y: explain does not know it", func(w *world) { delete(w.explain, "y"); w.explain["z"] = "{}" })
	f("explained as another", "after the load: x: not one attempt", func(w *world) { w.explain["x"] = fmt.Sprintf(explained, "y") })
	f("explained without candidates", "after the load: y: not one attempt", func(w *world) { w.explain["y"] = strings.Replace(fmt.Sprintf(explained, "y"), "{},{},{}", "{}", 1) })
}

// A running load's newest answer is asked about while it runs.
func TestWitness(t *testing.T) {
	w := &world{explain: map[string]string{"x": fmt.Sprintf(explained, "x")}}
	s := httptest.NewServer(w)
	defer s.Close()
	e := &balancer{admin: s.URL, client: s.Client()}
	l := &load{}
	f := func(id string) proof {
		l.latest.Store(&id)
		ctx, cancel := context.WithTimeout(t.Context(), 3*askEvery)
		defer cancel()
		var p proof
		e.witness(ctx, l, &p)
		return p
	}
	if p := f("x"); p.sampled != 1 || p.sampledOf != 1 || len(p.problems) > 0 {
		t.Errorf("of one that is known: %+v", p)
	}
	if p := f("y"); p.sampled != 0 || p.sampledOf != 1 || len(p.problems) != 1 {
		t.Errorf("of one that is not known: %+v", p)
	}
}

func TestHeldStreamsMustStay(t *testing.T) {
	c := cell{model: "m", tokens: 2, stream: true}
	n := 0
	measure := func() (int64, error) { n++; return 5, nil }
	release := make(chan struct{})
	staying := serve(t, func(w io.Writer) bool {
		io.WriteString(w, chunked("1\n\n", "2\n\n", "3\n\n4\n\n"))
		<-release
		return false
	})
	defer close(release)
	if total, err := open(t.Context(), c, way{addresses: []string{staying}}, 40, measure); err != nil || total != 5 || n != 1 {
		t.Errorf("open: %d, %v, measured %d times", total, err, n)
	}
	f := func(raw, want string) {
		t.Helper()
		ending := serve(t, func(w io.Writer) bool { io.WriteString(w, raw); return false })
		_, err := open(t.Context(), c, way{addresses: []string{ending}}, 3, measure)
		if err == nil || !strings.Contains(err.Error(), want) || n != 1 {
			t.Errorf("open: %v, want %q; measured %d times", err, want, n)
		}
	}
	f(chunked("1\n\n2\n\n")+"0\r\n\r\n", "one of 3 streams was not held open: a clean end")
	f(chunked("1\n\n2\n\n"), "one of 3 streams was not held open: body: unexpected EOF")
}
