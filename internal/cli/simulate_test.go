package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/sim"
)

// excerpt is a trace that is in the repository.
const excerpt = "../sim/testdata/mooncake_conversation_300.jsonl"

// simulated runs simulate, which must succeed, and returns what it prints.
func simulated(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := command(append([]string{"simulate"}, args...)...)
	if code != exitOK || stderr != "" {
		t.Fatalf("%q: exit code %d, stderr %q", args, code, stderr)
	}
	return stdout
}

// rowsOf runs simulate and returns its rows by strategy.
func rowsOf(t *testing.T, args ...string) map[string]map[string]any {
	t.Helper()
	var rows []map[string]any
	if text := simulated(t, append(args, "--json")...); json.Unmarshal([]byte(text), &rows) != nil {
		t.Fatalf("%q: no rows:\n%s", args, text)
	}
	out := map[string]map[string]any{}
	for _, r := range rows {
		out[r["strategy"].(string)] = r
	}
	return out
}

// in writes files into a new directory and returns their paths by name.
func in(t *testing.T, files map[string]string) func(name string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return func(name string) string { return filepath.Join(dir, name) }
}

// The examples of the help run as they are written, where the repository is checked out.
func TestSimulateExamples(t *testing.T) {
	if raceEnabled {
		t.Skip("30,000 requests, of which the race detector would see nothing new")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir()) // the examples write beside the checkout
	for _, name := range []string{"internal", "examples"} {
		if err := os.Symlink(filepath.Join(root, name), name); err != nil {
			t.Fatal(err)
		}
	}
	ran := 0
	for l := range strings.Lines(newSimulate().Example) {
		args := strings.Fields(l)[2:]
		text := simulated(t, args...)
		if !strings.Contains(text, "TTFT mean") || !strings.Contains(text, "Against ") {
			t.Errorf("%q says:\n%s", args, text)
		}
		ran++
	}
	if page, err := os.ReadFile("report.html"); ran != 3 || err != nil || !bytes.Contains(page, []byte("<svg")) {
		t.Errorf("%d examples ran, and the page is of %d bytes (%v)", ran, len(page), err)
	}
}

// Equal seeds give equal output to the byte, however many processors there are; other seeds give another.
func TestSimulateIsDeterministic(t *testing.T) {
	file := in(t, map[string]string{"page.html": "", "traffic.jsonl": recordedTrace()})
	page := file("page.html")
	run := func(procs int, seed string) (out [3]string) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		args := []string{"--trace", file("traffic.jsonl"), "--speed", "3", "--seeds", "2", "--strategy", "p2c_ewma,least_tokens,peer:sglang", "--seed", seed}
		out[0] = simulated(t, append(args, "--explain-diff", "--html", page)...)
		out[1] = simulated(t, append(args, "--json")...)
		html, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		out[2] = string(html)
		return out
	}
	one, two, other := run(1, "7"), run(2, "7"), run(2, "8")
	for i, name := range []string{"the table", "the JSON", "the page"} {
		if one[i] != two[i] {
			t.Errorf("%s differs:\n%s\n%s", name, one[i], two[i])
		}
		if one[i] == other[i] {
			t.Errorf("%s is the same for another seed", name)
		}
	}
}

// The rows have what scripts rely on, and a policy that balances badly is worse.
func TestSimulateRows(t *testing.T) {
	rows := rowsOf(t, "--trace", excerpt, "--strategy", "least_tokens,round_robin,peer:production-stack", "--price", "2,1,8")
	for name, r := range rows {
		for _, field := range []string{"ttft_mean_seconds", "ttft_p50_seconds", "ttft_p99_seconds", "itl_p99_seconds", "goodput", "hit_share", "cost_dollars", "imbalance"} {
			if x, ok := r[field].(float64); !ok || x < 0 || x == 0 && field != "goodput" {
				t.Errorf("%s: %s is %v", name, field, r[field])
			}
		}
	}
	ours, theirs := rows["least_tokens"]["ttft_mean_seconds"].(float64), rows["round_robin"]["ttft_mean_seconds"].(float64)
	if len(rows) != 3 || ours >= theirs {
		t.Errorf("%d rows; a TTFT of %v s for least_tokens and %v s for round_robin", len(rows), ours, theirs)
	}
	if d := rows["round_robin"]["versus"].(map[string]any); d["strategy"] != "least_tokens" || math.Abs(d["ttft_mean_seconds"].(float64)-(theirs-ours)) > 1e-9 {
		t.Errorf("against the first: %v", d)
	}
	if origin, _ := rows["peer:production-stack"]["origin"].(string); origin == "" {
		t.Error("it is not said where another router's policy is from")
	}
}

// A yardstick is no router: it is measured, and its choices are not explained.
func TestSimulateReference(t *testing.T) {
	text := simulated(t, "--trace", excerpt, "--strategy", "least_tokens,reference:late-first", "--explain-diff")
	if !strings.Contains(text, "reference:late-first") || strings.Contains(text, "disagree") {
		t.Errorf("got\n%s", text)
	}
}

// Traces are known by what they begin with.
func TestSimulateFormats(t *testing.T) {
	file := in(t, map[string]string{"bom.csv": "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.97,480,10\r\n2023-11-16 18:17:05.97,480,10\r\n"})
	for _, path := range []string{excerpt, "../sim/testdata/azure_code_300.csv", "../sim/testdata/azure_conv_300.csv", file("bom.csv")} {
		if text := simulated(t, "--trace", path, "--strategy", "least_tokens", "--burn-in", "0"); !strings.Contains(text, filepath.Base(path)) {
			t.Errorf("%s:\n%s", path, text)
		}
	}
	if text := simulated(t, "--trace", "../sim/testdata/azure_conv_300.csv", "--workload", "azure-conversation", "--format", "azure", "--speed", "2", "--strategy", "least_tokens"); !strings.Contains(text, "chats, an hour of Azure") {
		t.Errorf("got\n%s", text)
	}
}

// A trace may come from another command.
func TestSimulateStandardInput(t *testing.T) {
	f := func(text string) (string, error) {
		root, out := newRoot(), &bytes.Buffer{}
		root.SetIn(strings.NewReader(text))
		root.SetOut(out)
		root.SetArgs([]string{"simulate", "--trace", "-", "--strategy", "least_tokens"})
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	text, err := os.ReadFile(excerpt)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f(string(text)); err != nil || !strings.Contains(got, "standard input\n") || !strings.Contains(got, "300 in ") {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := f("{}"); err == nil || !strings.HasPrefix(err.Error(), "standard input:1: ") {
		t.Errorf("got %v", err)
	}
}

// What is wrong is told with its place and what was expected.
func TestSimulateErrors(t *testing.T) {
	file := in(t, map[string]string{
		"empty.jsonl":    "",
		"column.csv":     "TIMESTAMP,Context,GeneratedTokens\n",
		"word.csv":       "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,many,10\n",
		"negative.jsonl": `{"timestamp": -5, "input_length": 10, "output_length": 5, "hash_ids": [1]}`,
		"order.jsonl": `{"timestamp": 1000, "input_length": 10, "output_length": 5, "hash_ids": [1]}` + "\n" +
			`{"timestamp": 400, "input_length": 10, "output_length": 5, "hash_ids": [1]}`,
		"member.jsonl":   `{"timestamp": 0, "output_length": 5, "hash_ids": [1]}`,
		"broken.jsonl":   `{"timestamp": 0, `,
		"two.yaml":       "endpoints: {a: {url: 'http://a:1', models: [x, y]}}",
		"one.yaml":       "endpoints: {a: {url: 'http://a:1', models: [x]}}",
		"other.yaml":     "endpoints: {a: {url: 'http://a:1', models: [z]}}",
		"bad.yaml":       "endpoints: {a: {url: 'http://a:1'}}\nstrategy: best\n",
		"none/notes.txt": "",
	})
	bad := func(code int, want string, args ...string) {
		t.Helper()
		got, stdout, stderr := command(append([]string{"simulate"}, args...)...)
		if got != code || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q; want %d and %q", args, got, stdout, stderr, code, want)
		}
	}
	trace := func(name string) []string {
		return []string{"--strategy", "least_tokens", "--trace", file(name)}
	}
	bad(1, "no such file or directory", trace("absent")...)
	bad(1, "empty.jsonl", trace("empty.jsonl")...)
	bad(1, `column.csv:1: the header is "TIMESTAMP,Context,GeneratedTokens", expected "TIMESTAMP,ContextTokens,GeneratedTokens"`, trace("column.csv")...)
	bad(1, `word.csv:2: ContextTokens is "many", expected a whole number`, trace("word.csv")...)
	bad(1, "negative.jsonl:1: timestamp is -5, expected milliseconds from 0", trace("negative.jsonl")...)
	bad(1, "order.jsonl:2: it is 600ms before the row above, expected rows in order of time", trace("order.jsonl")...)
	bad(1, "member.jsonl:1: expected the member input_length, in tokens", trace("member.jsonl")...)
	bad(1, "broken.jsonl:1: expected a JSON object such as", trace("broken.jsonl")...)
	bad(1, `header is "{\"timestamp`, append(trace("negative.jsonl"), "--format", "azure")...)
	bad(2, `there is no format "csv"; there are azure, mooncake, recorded`, append(trace("word.csv"), "--format", "csv")...)

	made := func(args ...string) []string { return append([]string{"--workload", "multi-turn"}, args...) }
	bad(2, `there is no strategy "best". There are round_robin, weighted`, made("--strategy", "best")...)
	bad(2, "of other routers peer:", made("--strategy", "best")...)
	bad(2, `no router's policy is called "best": there are `, made("--strategy", "peer:best")...)
	bad(2, "least_tokens is in the list twice", made("--strategy", "least_tokens,round_robin,least_tokens")...)
	bad(2, `unknown workload "chat": there are mooncake-conversation`, "--workload", "chat", "--strategy", "least_tokens")
	bad(2, "give its file (AzureLLMInferenceTrace_code.csv) by --trace", "--workload", "azure-code", "--strategy", "least_tokens")
	bad(2, "leave one of them out", append(trace("negative.jsonl"), "--workload", "bursty")...)
	bad(2, "say what comes in: --trace FILE, or --workload with one of multi-turn", "--strategy", "least_tokens")
	bad(2, "say what is to be compared: --strategy a,b with some of round_robin", made()...)
	bad(2, `--engine: there is no preset "h200"; there are dynamo-mock`, made("--strategy", "least_tokens", "--engine", "h200")...)
	bad(2, `"a" is an endpoint of a configuration`, made("--strategy", "least_tokens", "--engine", "a=fifo")...)
	bad(2, "give one of them", made("--strategy", "least_tokens", "--rho", "1", "--rate", "1")...)
	bad(2, "--speed is for a trace", made("--strategy", "least_tokens", "--speed", "2")...)
	bad(2, "--seeds must be from 1 to 1000, is 0", made("--strategy", "least_tokens", "--seeds", "0")...)
	bad(2, "--deployments must be from 1 to 10000, is -1", made("--strategy", "least_tokens", "--deployments", "-1")...)
	bad(2, "--burn-in must be from 0 to 0.99, is 1", made("--strategy", "least_tokens", "--burn-in", "1")...)
	bad(2, "--rate must be from 0.001 to 1000000, is NaN", made("--strategy", "least_tokens", "--rate", "NaN")...)
	bad(2, "--price takes three numbers", made("--strategy", "least_tokens", "--price", "1,2")...)
	bad(2, "--price must be numbers such as 2.5,1.25,10", made("--strategy", "least_tokens", "--price", "cheap")...)
	bad(2, "--explain-diff=3", made("--strategy", "least_tokens", "--explain-diff", "2")...)
	bad(1, "--html: ", made("--strategy", "least_tokens", "--html", file("no/page.html"))...)

	compare := func(a, b string, args ...string) []string {
		return made(append([]string{"--baseline", file(a), "--candidate", file(b)}, args...)...)
	}
	bad(2, "give either --strategy, or --baseline", compare("one.yaml", "one.yaml", "--strategy", "least_tokens")...)
	bad(2, "go together", made("--baseline", file("one.yaml"))...)
	bad(2, "say which by --model (x, y)", compare("two.yaml", "one.yaml")...)
	bad(2, `--engine b=fifo: no endpoint is named "b"`, compare("one.yaml", "one.yaml", "--engine", "b=fifo")...)
	bad(2, "--engine has 2 presets for all endpoints", compare("one.yaml", "one.yaml", "--engine", "fifo,sglang")...)
	bad(1, `no endpoint serves the model "x"`, compare("one.yaml", "other.yaml")...)
	bad(1, `no endpoint serves the model "w"`, compare("one.yaml", "one.yaml", "--model", "w")...)
	bad(1, `bad.yaml:2:1: strategy: unknown strategy "best"`, compare("one.yaml", "bad.yaml")...)
	bad(1, "holds no .yaml file", compare("one.yaml", "none")...)
	bad(1, "no such file or directory", compare("absent.yaml", "one.yaml")...)
}

// Two strategies that must differ are told apart, with the numbers of both decisions.
func TestSimulateExplainDiff(t *testing.T) {
	text := simulated(t, "--trace", excerpt, "--strategy", "round_robin,least_tokens", "--explain-diff=4")
	if !regexp.MustCompile(`round_robin and least_tokens disagree on where to send \d+ of 300 requests first \(seed 1\); of \d+ more, lots decided`).MatchString(text) {
		t.Fatalf("got\n%s", text)
	}
	stories := strings.Split(text, "\nrequest ")[1:]
	if len(stories) != 4 {
		t.Fatalf("%d requests are explained:\n%s", len(stories), text)
	}
	chose := regexp.MustCompile(`(?m)^  (round_robin|least_tokens): (e\d/m), chosen by (round_robin|least_tokens)`)
	for _, s := range stories {
		both := chose.FindAllStringSubmatch(s, -1)
		if len(both) != 2 || both[0][2] == both[1][2] || both[0][1] != both[0][3] {
			t.Errorf("choices %q in\n%s", both, s)
		}
		for _, want := range []string{"last_pick", "work_tokens/weight", "first content after", "> "} {
			if !strings.Contains(s, want) {
				t.Errorf("no %q in\n%s", want, s)
			}
		}
	}
	if same := simulated(t, "--trace", excerpt, "--strategy", "least_tokens", "--explain-diff"); strings.Contains(same, "disagree") {
		t.Errorf("one strategy disagrees with itself:\n%s", same)
	}
}

// An interrupted simulation tells what there is, the same time for all.
func TestSimulateInterrupted(t *testing.T) {
	f := simulateFlags{workload: "reasoning", strategies: []string{"least_tokens", "round_robin"}, engines: []string{defaultEngine}, requests: 600, seed: 1, seeds: 2, balancers: 1, burnIn: .1}
	x, err := f.experiment()
	if err != nil {
		t.Fatal(err)
	}
	interrupted := func(after int) (string, error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		draws := 0
		b := newBar(&bytes.Buffer{}, x.total())
		b.now = func() time.Time { // asked after each part
			if draws++; draws == after {
				cancel()
			}
			return time.Time{}
		}
		r, err := x.run(ctx, b)
		if err != nil {
			return "", err
		}
		for i := range r.Policies {
			if n := len(r.Policies[i].Runs); n != 1 {
				t.Errorf("%s has %d runs", r.Policies[i].Name, n)
			}
		}
		var text bytes.Buffer
		err = r.Text(&text)
		return text.String(), err
	}
	if text, err := interrupted(runSlices / 2); err != nil || !strings.Contains(text, "Interrupted: the first 50 % of the time were simulated") {
		t.Errorf("in the first seed: %v\n%s", err, text)
	}
	if text, err := interrupted(runSlices); err != nil || !strings.Contains(text, "Interrupted: the first 100 % of the time were simulated, and requests that still ran are not counted") {
		t.Errorf("when all had come: %v\n%s", err, text)
	}
	if text, err := interrupted(runSlices + 20); err != nil || !strings.Contains(text, "Interrupted: 1 of 2 seeds were simulated") {
		t.Errorf("in the second seed: %v\n%s", err, text)
	}
	if text, err := interrupted(1); !errors.Is(err, errNothingMeasured) {
		t.Errorf("at once: %v\n%s", err, text)
	}
}

// What comes before the simulation can be interrupted too: a trace that is being read, or fitted to.
func TestSimulateInterruptedBefore(t *testing.T) {
	for _, args := range [][]string{{"--strategy", "least_tokens"}, {"--fit"}} {
		in, unread := io.Pipe() // nobody writes
		ctx, cancel := context.WithCancel(t.Context())
		root := newRoot()
		root.SetIn(in)
		root.SetOut(io.Discard)
		root.SetArgs(append([]string{"simulate", "--trace", "-"}, args...))
		ended := make(chan error)
		go func() { ended <- root.ExecuteContext(ctx) }() // ends with ctx
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, errNothingMeasured) {
				t.Errorf("%q: %v", args, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%q: it goes on", args)
		}
		_ = unread.Close()
	}
}

func TestSimulateBar(t *testing.T) {
	var out bytes.Buffer
	b := newBar(&out, 200)
	begun := time.Now()
	b.begun = begun
	b.draw(50)
	if out.Len() > 0 {
		t.Errorf("no terminal, but it shows %q", out.String())
	}
	if got, want := b.line(begun.Add(6*time.Second)).String(), strings.Repeat("█", 7)+strings.Repeat("░", 23)+"  25 %  50 of 200 requests, 18s left"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSimulateList(t *testing.T) {
	text := simulated(t, "--list")
	for _, want := range []string{"multi-turn ", "--trace AzureLLMInferenceTrace_code.csv", "vllm-8192 ", "least_tokens ", "peer:sglang "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Whatever a trace holds, it is read or refused with its name, and what is read can be played.
func FuzzParseTrace(f *testing.F) {
	for _, text := range []string{
		"", "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,480,10\n", `{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}`,
		recordedTrace()[:1500], `{"evenkeel_trace":1}`, `{"evenkeel_trace":2}` + "\n", "{", "[]", "\x00\xff", "TIMESTAMP", " \n\n{}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		read, _, err := parseTrace(bytes.NewReader(data), "file", "")
		if err != nil {
			if read != nil || !strings.HasPrefix(err.Error(), "file:") {
				t.Errorf("%v and %q", read, err)
			}
			return
		}
		p, err := sim.NewReplay(1, read, sim.ReplayOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for r := (sim.Request{}); p.Next(&r); n++ {
			if r.PromptTokens < 1 || r.OutputTokens < 1 || r.At < 0 {
				t.Fatalf("%+v", r)
			}
		}
		if n != read.Len() {
			t.Errorf("%d of %d requests came", n, read.Len())
		}
	})
}
