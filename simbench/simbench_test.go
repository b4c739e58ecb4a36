package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"go/build"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"evenkeel/internal/sim/study"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMatrix(t *testing.T) {
	all := matrix()
	names := map[string]bool{}
	for i := range all {
		names[all[i].name()] = true
	}
	if len(names) != len(all) || len(all) < 80 {
		t.Errorf("%d names for %d rows, want one for each of 80 or more", len(names), len(all))
	}
	for name := range quickRows {
		if !names[name] {
			t.Errorf("the quick row %s is none of the matrix", name)
		}
	}
	covers(t, all)
	quick, err := selected(options{quick: true, only: "*"})
	if err != nil || len(quick) != len(quickRows)+2 {
		t.Errorf("%d quick rows, %v, want %d and the whole trace twice", len(quick), err, len(quickRows))
	}
	some, err := selected(options{only: "reasoning/sglang/*/*", seeds: 3})
	if err != nil || len(some) != 2 || some[0].seeds != 3 {
		t.Errorf("got %+v, %v", some, err)
	}
	if _, err := selected(options{only: "nothing"}); err == nil || !strings.Contains(err.Error(), "--list") {
		t.Errorf("got %v, want how to list rows", err)
	}
}

// covers checks that there is a row for each workload before each engine that it asks something of, and of the traces with reuse for each load and each size of
// fleet; and one for all that balancers may not know and that may befall engines.
func covers(t *testing.T, all []spec) {
	t.Helper()
	need := func(what string, in func(*spec) bool) {
		t.Helper()
		if !slices.ContainsFunc(all, func(s spec) bool { return s.Variant == "" && in(&s) }) {
			t.Errorf("no row has %s", what)
		}
	}
	engines := append([]string{"fifo"}, batching...)
	for _, w := range []string{"mooncake-conversation", "mooncake-synthetic", "azure-code", "azure-conversation", "multi-turn", "reasoning"} {
		for _, e := range engines {
			if w == "reasoning" && e == "fifo" { // its engines decode for nothing, which is all that there is to do
				continue
			}
			need(w+" before "+e, func(s *spec) bool { return s.Workload == w && s.Engine == e })
		}
		need(w+" at 0.7", func(s *spec) bool { return s.Workload == w && s.Rho == .7 })
	}
	for _, w := range []string{"mooncake-conversation", "mooncake-synthetic"} {
		for _, rho := range []float64{.7, .9, 1, 1.15} {
			need(fmt.Sprintf("%s at %v", w, rho), func(s *spec) bool { return s.Workload == w && s.Rho == rho })
		}
		for _, n := range []int{4, 8, 16, 64} {
			need(fmt.Sprintf("%s before %d", w, n), func(s *spec) bool { return s.Workload == w && s.N == n })
		}
	}
	for _, v := range []string{
		"scrapes-none", "scrapes-5s", "balancers-4", "cache-quarter", "cache-16x", "tokens-half", "tokens-double", "half-slow", "small-kv", "cold", "slows-tenfold",
	} {
		if !slices.ContainsFunc(all, func(s spec) bool { return s.Variant == v }) {
			t.Errorf("no row is of the variant %s", v)
		}
	}
}

// TestHoldout: no row, seed or half of a trace is in both, and each workload and engine of the one is in the other but for the engine that
// is new.
func TestHoldout(t *testing.T) {
	m, h := matrix(), holdout()
	names, engines := map[string]bool{}, map[string]bool{}
	for i := range m {
		names[m[i].name()], engines[m[i].Engine] = true, true
	}
	if engines[heldEngine] {
		t.Errorf("the engine %s is in the matrix", heldEngine)
	}
	if len(h) < 70 {
		t.Errorf("%d rows", len(h))
	}
	tr, err := readTraces(options{root: ".."})
	if err != nil {
		t.Fatal(err)
	}
	held := false
	for i := range h {
		s := &h[i]
		held = held || s.Engine == heldEngine
		if names[s.name()] || s.seed(0) <= uint64(fullSeeds) {
			t.Errorf("%s, with the seed %d at first, is in the matrix", s.name(), s.seed(0))
		}
		twin := *s
		if twin.Holdout = false; tr.has(s) && tr.of(s).trace != nil && tr.of(s).digest == tr.of(&twin).digest {
			t.Errorf("%s plays the half that is tuned by", s.name())
		}
		if _, err := s.row(tr); err != nil {
			t.Error(err)
		}
	}
	if !held {
		t.Errorf("no row has the engine %s", heldEngine)
	}
	if some, err := selected(options{holdout: true, quick: true, only: "*"}); err != nil || len(some) == 0 || !some[0].Holdout || some[0].Lengths != quickLengths {
		t.Errorf("of a quick hold-out: %+v, %v", some, err)
	}
}

func TestHalves(t *testing.T) {
	f := func(text string, headed bool, first, second string) {
		t.Helper()
		if a, b := halves([]byte(text), headed); string(a) != first || string(b) != second {
			t.Errorf("%q: %q and %q, want %q and %q", text, a, b, first, second)
		}
	}
	f("a\nb\nc\n", false, "a\nb\n", "c\n")
	f("a\nb", false, "a\n", "b")
	f("h\na\nb\n", true, "h\na\n", "h\nb\n")
	f("", true, "", "")
}

func TestFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		if _, err := parse(args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
	}
	f("there are only flags", "rows")
	f("--seeds -1", "--seeds=-1")
	f("--workers 0", "--workers=0")
	f("--only", "--only=[")
	if _, err := readTraces(options{traces: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "--traces names the folder") {
		t.Errorf("got %v", err)
	}
}

// TestKeys: whatever a result follows from changes its key.
func TestKeys(t *testing.T) {
	s := spec{Workload: "w", Engine: "e", N: 1, Rho: .5, Lengths: 1, Most: 2, Least: 1}
	base := cell{Spec: &s, Requests: 5, Trace: "trace", Policy: "policy", Version: "version", Seed: 1}
	keys := []string{base.key()}
	differs := func(change func(*cell)) {
		t.Helper()
		c, s := base, s
		c.Spec = &s
		change(&c)
		if slices.Contains(keys, c.key()) {
			t.Error("two results have one key")
		}
		keys = append(keys, c.key())
	}
	for _, change := range []func(*spec){
		func(s *spec) { s.Workload = "x" }, func(s *spec) { s.Engine = "x" }, func(s *spec) { s.N++ }, func(s *spec) { s.Rho++ },
		func(s *spec) { s.NoCache = true }, func(s *spec) { s.Variant = "x" }, func(s *spec) { s.Holdout = true },
	} {
		differs(func(c *cell) { change(c.Spec) })
	}
	differs(func(c *cell) { c.Requests++ })
	differs(func(c *cell) { c.Seed++ })
	differs(func(c *cell) { c.Trace = "other" })
	differs(func(c *cell) { c.Policy = "other" })
	differs(func(c *cell) { c.Version = "other" })
	s.seeds, s.quick, s.Most = 9, true, 99
	if base.key() != keys[0] {
		t.Error("how many seeds there are, or may be requests, changes what one of them is")
	}
}

// TestVersionsCoverTheCode: a result is made anew when any code changes that it may follow from.
func TestVersionsCoverTheCode(t *testing.T) {
	var covered []string
	for _, folders := range kindFolders {
		covered = append(covered, folders...)
	}
	known := map[string]bool{}
	var visit func(folder string)
	visit = func(folder string) {
		if known[folder] {
			return
		}
		known[folder] = true
		if !slices.Contains(covered, folder) {
			t.Errorf("results follow from %s, whose code their versions do not cover", folder)
		}
		p, err := build.ImportDir(filepath.Join("..", filepath.FromSlash(folder)), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range p.Imports {
			if inner, ok := strings.CutPrefix(path, "evenkeel/"); ok {
				visit(inner)
			}
		}
	}
	visit("internal/sim/study")
	if len(known) < 8 {
		t.Errorf("only %v were found", known)
	}
}

func TestStore(t *testing.T) {
	name := filepath.Join(t.TempDir(), "deep", "results")
	open := func() *store {
		t.Helper()
		s, err := openStore(name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	for _, k := range []string{"a", "b"} {
		if err := s.put(&result{Key: k, Outcome: &study.Outcome{Policy: k, TTFTMean: .1}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, whole[:len(whole)-5], 0o644); err != nil { // as a crash leaves it
		t.Fatal(err)
	}
	s = open()
	if a := s.get("a"); a == nil || a.Outcome.TTFTMean != .1 || s.get("b") != nil {
		t.Errorf("after a line that is cut off: %+v and %+v", a, s.get("b"))
	}
	if err := s.put(&result{Key: "b", Outcome: &study.Outcome{Policy: "b", TTFTMean: .1}}); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(name); err != nil || !bytes.Equal(again, whole) {
		t.Errorf("the file is\n%s\nwant\n%s (%v)", again, whole, err)
	}
	if err := os.WriteFile(name, []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := openStore(name); err == nil || !strings.Contains(err.Error(), ":1: expected a result") {
		t.Errorf("got %v", err)
	}
}

// TestPacked: results that are kept with the report are known to whoever has nothing else, but for those of code that is no more; and equal
// results are equal files, whatever order they were played in.
func TestPacked(t *testing.T) {
	folder := t.TempDir()
	packed := filepath.Join(folder, "deep", "results.jsonl.gz")
	versions := map[kind]string{ours: "o", peer: "p"}
	fill := func(name string, keys ...string) *store {
		t.Helper()
		s, err := openStore(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.close() })
		for _, k := range keys {
			if err := s.put(&result{Key: k, Row: "row", Version: k[:1], Outcome: &study.Outcome{Policy: k, TTFTMean: .1}}); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	bytesOf := func(s *store) []byte {
		t.Helper()
		if err := s.pack(packed, versions); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(packed)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	one, two, other := bytesOf(fill("a", "o1")), bytesOf(fill("b", "p1", "o1")), bytesOf(fill("c", "o1", "p1", "x1"))
	if bytes.Equal(one, two) || !bytes.Equal(two, other) {
		t.Error("want the same file for the same results, without x1 of a version that is no more, and another for fewer")
	}
	s := fill("new")
	if err := s.unpack(packed); err != nil {
		t.Fatal(err)
	}
	if s.get("o1") == nil || s.get("p1") == nil || s.get("x1") != nil {
		t.Errorf("known: %v", s.known)
	}
	if err := s.unpack(filepath.Join(folder, "none")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(packed, []byte("no"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.unpack(packed); err == nil || !strings.Contains(err.Error(), packed) {
		t.Errorf("of a file that is none: %v", err)
	}
}

// TestTwoRuns: two that write to one file of results at a time lose none.
func TestTwoRuns(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results")
	var open [2]*store
	for i := range open {
		s, err := openStore(name)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		open[i] = s
	}
	for i := range 10 {
		if err := open[i%2].put(&result{Key: strconv.Itoa(i), Outcome: &study.Outcome{Policy: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := openStore(name)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if len(s.known) != 10 {
		t.Errorf("%d of 10 results are there", len(s.known))
	}
}

// TestVersions: a kind of policy has another version once its code has changed, and only its code; tests are no code.
func TestVersions(t *testing.T) {
	root := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, folders := range kindFolders {
		for _, folder := range folders {
			write(folder+"/x.go", folder)
		}
	}
	write("simbench/variants.go", "")
	versions := func() map[kind]string {
		t.Helper()
		v, err := codeVersions(root)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := versions()
	write("internal/sim/x_test.go", "test")
	write("internal/sim/notes.md", "notes")
	if after := versions(); after[ours] != before[ours] || after[peer] != before[peer] {
		t.Error("a test makes another version")
	}
	write("internal/sim/peers/x.go", "other")
	if after := versions(); after[peer] == before[peer] || after[ours] != before[ours] || after[reference] != before[reference] {
		t.Error("peers have changed, and only they must have another version")
	}
	before = versions()
	write("internal/route/x.go", "other")
	if after := versions(); after[ours] == before[ours] || after[peer] != before[peer] {
		t.Error("the router has changed, and only Evenkeel's strategies must have another version by their text")
	}
	if _, err := codeVersions(t.TempDir()); err == nil || !strings.Contains(err.Error(), "root of the repository") {
		t.Errorf("got %v", err)
	}
}

// TestConduct: what other policies do makes their version, whatever the code of the router looks like; any policy that does
// something else makes another.
func TestConduct(t *testing.T) {
	all, err := policies()
	if err != nil {
		t.Fatal(err)
	}
	with := func(names ...string) map[kind]string {
		t.Helper()
		some := slices.DeleteFunc(slices.Clone(all), func(p policy) bool { return !slices.Contains(names, p.Name) })
		does, err := conduct(t.Context(), options{root: "..", workers: 2}, some)
		if err != nil {
			t.Fatal(err)
		}
		return does
	}
	a, b, c := with("peer:lmetric", "predicted_wait"), with("peer:lmetric"), with("peer:sglang")
	if a[peer] != b[peer] || a[bound] != b[bound] || a[ours] != "" {
		t.Errorf("twice the same: %v and %v", a, b)
	}
	if b[peer] == c[peer] || b[peer] == "" || b[bound] != c[bound] {
		t.Errorf("lmetric does %v, sglang does %v", b, c)
	}
}

// made is a row in which policies have these mean times to the first token, for each seed.
func made(means map[string][]float64, thirds [3]float64) *played {
	p := &played{spec: spec{Workload: "w", Engine: "fifo", N: 8, Rho: .9}, outcomes: map[string][]*study.Outcome{}}
	for name, all := range means {
		for i, m := range all {
			p.outcomes[name] = append(p.outcomes[name], &study.Outcome{Policy: name, Seed: uint64(i + 1), TTFTMean: m, TTFTP99: 10 * m, Thirds: thirds, Goodput: 1})
		}
	}
	for i := range 3 {
		p.bounds = append(p.bounds, &study.Outcome{Seed: uint64(i + 1), TTFTMean: .5})
	}
	return p
}

var cast = []policy{{study.Policy{Name: "a"}, ours}, {study.Policy{Name: "b"}, peer}, {study.Policy{Name: "c"}, peer}, {study.Policy{Name: "oracle"}, reference}, {study.Policy{Name: "sage"}, reference}}

func TestContenders(t *testing.T) {
	p := made(map[string][]float64{"a": {1, 1}, "b": {1.2, 1.3}, "c": {3, 3}, "oracle": {.8, .8}, "sage": {.9, .9}}, [3]float64{1, 1, 1})
	p.outcomes["c"][0].TTFTP99, p.outcomes["c"][1].TTFTP99 = 8, 8 // a bad mean, and the best p99
	var names []string
	for _, c := range contenders(p, cast) {
		names = append(names, c.Name)
	}
	if want := "a b c oracle"; strings.Join(names, " ") != want {
		t.Errorf("got %v, want %s: a is the best, b near, c has the best p99, and of the yardsticks the best goes on", names, want)
	}
	p.outcomes["c"][0].TTFTP99, p.outcomes["c"][1].TTFTP99 = 30, 30
	if some := contenders(p, cast); len(some) != 3 {
		t.Errorf("%d go on, want a, b and oracle", len(some))
	}
	for _, o := range p.outcomes["a"] {
		o.TTFTMean, o.TTFTP99 = .1, 1
	}
	if some := contenders(p, cast); len(some) != 3 {
		t.Errorf("%d go on, want a, b and oracle: b is the best of other routers, far from a as it is", len(some))
	}
	p = made(map[string][]float64{"a": {1}, "b": {1}, "c": {9}, "oracle": {.8}, "sage": {.9}}, [3]float64{1, 1, 9})
	p.outcomes["b"][0].Goodput = .7
	if some := contenders(p, cast); len(some) != 3 || some[1].Name != "c" {
		t.Errorf("of an overloaded row %v go on, want a, c and oracle: by goodput, not by time", some)
	}
}

func TestDigest(t *testing.T) {
	means := map[string][]float64{"a": {2, 4, 3}, "b": {1, 2, 1.5}, "c": {9}, "oracle": {.8, .8, .8}}
	d := digest(made(means, [3]float64{1, 1, 1.4}), cast)
	if !d.stable || d.broken != "" || d.bound != .5 || d.reference() != .8 {
		t.Errorf("stable %v, broken %q, bound %v, reference %v", d.stable, d.broken, d.bound, d.reference())
	}
	if e := d.entries[0]; e.policy.Name != "b" || e.meanRatio.Estimate != 1 {
		t.Errorf("the best is %s at %+v", e.policy.Name, e.meanRatio)
	}
	if r := d.entry("a").meanRatio; math.Abs(r.Estimate-2) > 1e-9 || math.Abs(r.High-2) > 1e-9 {
		t.Errorf("a is twice b with each seed: %+v", r)
	}
	if r := d.entry("c").meanRatio; math.Abs(r.Estimate-9) > 1e-9 { // with the one seed that both have
		t.Errorf("c is 9 times b: %+v", r)
	}
	if digest(made(means, [3]float64{1, 1, 1.6}), cast).stable {
		t.Error("a row whose last third waits 1.6 times as long is stable")
	}
	means["sage"] = []float64{.1} // with one seed, which may be an easy one
	if d := digest(made(means, [3]float64{1, 1, 1}), cast); d.reference() != .8 {
		t.Errorf("the reference is %v, want that of all seeds", d.reference())
	}
	delete(means, "sage")
	means["a"] = []float64{2, .4, 3}
	if d := digest(made(means, [3]float64{1, 1, 1}), cast); d.broken != "a" {
		t.Errorf("a beat what is possible with one seed, and broken is %q", d.broken)
	}
}

// TestOverloaded: where backlog grows under every policy, goodput decides, and no times are shown.
func TestOverloaded(t *testing.T) {
	p := made(map[string][]float64{"a": {2, 2, 2}, "b": {1, 1, 1}}, [3]float64{1, 1, 9})
	for _, o := range p.outcomes["b"] {
		o.Goodput = .1
	}
	d := digest(p, cast)
	if d.stable || d.entries[0].policy.Name != "a" || d.leader().policy.Name != "a" {
		t.Errorf("stable %v, %s is the first and %s the leader, want a", d.stable, d.entries[0].policy.Name, d.leader().policy.Name)
	}
	var text bytes.Buffer
	d.write(document{&text})
	if got := text.String(); strings.Contains(got, "TTFT") || !strings.Contains(got, "| a | 3 | **1.000** |") {
		t.Errorf("the table is\n%s", got)
	}
}

func TestStandings(t *testing.T) {
	var tables []*table
	for _, b := range []float64{1, 4} {
		tables = append(tables, digest(made(map[string][]float64{"a": {2, 2, 2}, "b": {b, b, b}}, [3]float64{1, 1, 1}), cast))
	}
	tables = append(tables, digest(made(map[string][]float64{"a": {1, 1, 1}, "b": {99, 99, 99}}, [3]float64{1, 1, 9}), cast)) // not stable
	all, rows := standings(tables, cast, groups[0].in)
	if rows != 2 || len(all) != 2 {
		t.Fatalf("%d rows, %+v", rows, all)
	}
	for _, s := range all { // each is the best once, and twice as slow as the best once
		if s.rows != 2 || s.near != 1 || math.Abs(s.mean.Estimate-math.Sqrt2) > 1e-9 || math.Abs(s.worst-2) > 1e-9 {
			t.Errorf("%+v", s)
		}
	}
}

func TestLogScale(t *testing.T) {
	s := logScale{from: 100, to: 300, low: 1, high: 100}
	for x, want := range map[float64]float64{.1: 100, 1: 100, 10: 200, 100: 300, 1e6: 300} {
		if got := s.at(x); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v is at %v, want %v", x, got, want)
		}
	}
	if got := s.ticks(); !slices.Equal(got, []float64{1, 2, 5, 10, 20, 50, 100}) {
		t.Errorf("ticks %v", got)
	}
}

// bounded is a writer that cancels when it has seen so many lines.
type bounded struct {
	bytes.Buffer
	lines  int
	cancel context.CancelFunc
}

func (w *bounded) Write(p []byte) (int, error) {
	w.lines -= bytes.Count(p, []byte("\n"))
	if w.lines <= 0 && w.cancel != nil {
		w.cancel()
	}
	return w.Buffer.Write(p)
}

// TestSimbench: a run that was stopped goes on where it was, one that was finished plays nothing, and both write the same report, whose
// plots are XML.
func TestSimbench(t *testing.T) {
	folder := t.TempDir()
	o := options{root: "..", quick: true, results: filepath.Join(folder, "results"), write: filepath.Join(folder, "report.md")}
	specs := []spec{
		{Workload: "azure-code", Engine: "vllm-2048", N: 2, Rho: .7, Lengths: 1, Most: 1000, Least: 400, seeds: 3},
		{Workload: "mooncake-conversation", Engine: "fifo", N: 2, Rho: .7, NoCache: true, Lengths: 1, Most: 1000, Least: 400, seeds: 3},
		{Workload: "mooncake-synthetic", Engine: "fifo", N: 2, Rho: .7, Lengths: 1, Most: 1000, Least: 400, seeds: 3},
	}
	all, err := policies()
	if err != nil {
		t.Fatal(err)
	}
	some := slices.DeleteFunc(all, func(p policy) bool {
		return !slices.Contains([]string{"least_tokens", "predicted_wait", "round_robin", "peer:sglang", "reference:exact-1", "reference:late-first"}, p.Name)
	})
	run := func(ctx context.Context, workers int, out io.Writer) (report []byte, size int64, err error) {
		t.Helper()
		o.workers = workers
		b := &bench{options: o, out: out, policies: some, versions: map[kind]string{}}
		if b.traces, err = readTraces(o); err != nil {
			return nil, 0, err
		}
		if b.store, err = openStore(o.results); err != nil {
			return nil, 0, err
		}
		defer func() { err = errors.Join(err, b.store.close()) }()
		rows, err := b.play(ctx, specs)
		info, failed := os.Stat(o.results)
		if failed != nil {
			t.Fatal(failed)
		}
		if err != nil {
			return nil, info.Size(), err
		}
		if err := b.report(ctx, rows); err != nil {
			return nil, info.Size(), err
		}
		report, err = os.ReadFile(o.write)
		return report, info.Size(), err
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, stopped, err := run(ctx, 1, &bounded{lines: 2, cancel: cancel}) // the line about the row without an excerpt, and the first row
	if !errors.Is(err, context.Canceled) || stopped == 0 {
		t.Fatalf("a run that was stopped says %v, and left %d bytes", err, stopped)
	}
	first, finished, err := run(t.Context(), 2, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	again, after, err := run(t.Context(), 2, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if stopped >= finished || after != finished || !bytes.Equal(first, again) {
		t.Errorf("%d bytes when stopped, %d when finished, %d the time after; alike reports: %v", stopped, finished, after, bytes.Equal(first, again))
	}
	for _, want := range []string{"excerpts of 300 requests", "azure-code/vllm-2048/n2/rho0.7", "peer:sglang", "reference:exact-1", "**predicted_wait**", "## Judgement of `" + judged() + "`"} {
		if !bytes.Contains(first, []byte(want)) {
			t.Errorf("the report does not have %q", want)
		}
	}
	var judgement bytes.Buffer
	judging := o
	judging.judge, judging.write, judging.workers = true, "", 2
	for _, results := range []string{o.results, filepath.Join(folder, "none")} {
		judging.results = results
		b := &bench{options: judging, out: &judgement, policies: some, versions: map[kind]string{}}
		if b.traces, err = readTraces(o); err != nil {
			t.Fatal(err)
		}
		if b.store, err = openStore(judging.results); err != nil {
			t.Fatal(err)
		}
		err := errors.Join(b.judgeStored(t.Context(), specs), b.store.close())
		if empty := results != o.results; empty != (err != nil) || empty && !strings.Contains(err.Error(), "without --judge") {
			t.Errorf("the judgement of %s: %v", results, err)
		}
	}
	if got := judgement.String(); !strings.HasSuffix(got, "2 of 3 rows are played.\n") || !strings.Contains(got, "(b) against the best other policy of each row") {
		t.Errorf("the judgement is\n%s", got)
	}
	plots, err := filepath.Glob(filepath.Join(folder, "report", "*.svg"))
	if err != nil || len(plots) < 2 {
		t.Fatalf("plots: %v, %v", plots, err)
	}
	for _, p := range plots {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for d := xml.NewDecoder(bytes.NewReader(text)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", p, err)
			}
		}
		if bytes.Contains(text, []byte("NaN")) || bytes.Contains(text, []byte("Inf")) {
			t.Errorf("%s has a number that is none", p)
		}
	}
}
