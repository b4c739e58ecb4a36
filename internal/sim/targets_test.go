package sim

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// The tests of this package hold the simulator, with the production router, exchange and strategies in it, against values
// that are known: from queueing theory, from papers, or exact. The time unit of queues is a request's mean service, a second.
// With -full they run at the size at which their tolerance is about three standard errors, which takes many minutes; without,
// smaller, and three measured standard errors are allowed. With -update docs/simulator.md is written anew.
var (
	full   = flag.Bool("full", false, "validate against known values at full size")
	update = flag.Bool("update", false, "write the table in docs/simulator.md anew")
)

// target is a known value and what was measured.
type target struct {
	name, expected, measured, allowed string
	missed                            bool
	note                              string // why it is missed
}

// absent are known values of mechanisms that the product does not have: nothing of ours would run. The note says what it does instead.
var absent = []target{
	{name: "S20 a client that throttles itself, ten times the capacity offered, K = 2 and 1.1: what the backend gets", expected: "2, 1.09 times its capacity", note: "breakers and the retry budget bound an outage"},
	{name: "S22 concurrency limits after Vegas, capacity 100 and 30", expected: "106, 33", note: "limits are given"},
	{name: "S23 concurrency limits after Gradient2, capacity 100", expected: "> 300", note: "limits are given"},
	{name: "S24 tenants by VTC, one floods ten to one: ratio of what they get", expected: "1", note: "tenants have quotas"},
	{name: "S36 spill between priorities at 71, 50 and 25 % healthy", expected: "99/1, 70/30, 35/65", note: "`failover` moves all at once, and its hysteresis brings all back"},
	{name: "S40 weights from reported utilisation: 100 a second, half used, 10 errors", expected: "166.7", note: "weights are given"},
	{name: "S42 drops by time in the queue (CoDel)", expected: "0, 100, 170.7, 228.4, 278.4 ms", note: "those who wait have a deadline, and are refused at once if it cannot be kept"},
}

var targets []target

// row holds a measured value against the expected one; e is the standard error of the measurement, 0 if it is not known. The
// tolerance is relative.
func row(t *testing.T, name string, got, e, want, tolerance float64) {
	t.Helper()
	off := got/want - 1
	stated := tolerance
	if !*full && !math.IsInf(e, 1) {
		tolerance = max(tolerance, 3*e/want)
	}
	t.Logf("%-60s expected %8.4f   measured %8.4f   off %+6.2f %%   allowed %.1f %%", name, want, got, 100*off, 100*tolerance)
	missed := !(math.Abs(off) <= tolerance)
	targets = append(targets, target{name, short(want), short(got), fmt.Sprintf("± %s %%", short(100*stated)), missed, ""})
	if missed {
		t.Errorf("%s: %.4f, want %.4f ± %.1f %%", name, got, want, 100*tolerance)
	}
}

// relation states what must hold between measured values, in words.
func relation(t *testing.T, name, expected, measured string, ok bool) {
	t.Helper()
	t.Logf("%-60s expected %s   measured %s", name, expected, measured)
	targets = append(targets, target{name, expected, measured, "", !ok, ""})
	if !ok {
		t.Errorf("%s: %s, want %s", name, measured, expected)
	}
}

// differs notes a value that the product does not have, and why.
func differs(t *testing.T, name string, got, published float64, why string) {
	t.Helper()
	t.Logf("%-60s published %8.4f   measured %8.4f   %s", name, published, got, why)
	targets = append(targets, target{name, short(published), short(got), "", true, why})
}

// short writes a number with four significant digits.
func short(x float64) string { return strings.TrimSuffix(fmt.Sprintf("%.4g", x), "e+00") }

const targetsPage = "../../docs/simulator.md"

// The table stands between these lines of the page.
const tableBegins, tableEnds = "<!-- Written by a test: go test ./internal/sim -full -update -timeout 0 -->\n", "<!-- Written by a test up to here -->\n"

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	whole := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.bench").Value.String() == "" && flag.Lookup("test.fuzz").Value.String() == ""
	if len(targets) == 0 || !whole { // as under the race detector, where they do not run
		os.Exit(code)
	}
	if err := compare(*update); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		code = 1
	}
	os.Exit(code)
}

// compare demands that the page has a row for each target, or writes them.
func compare(write bool) error {
	page, err := os.ReadFile(targetsPage)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(page), tableBegins)
	table, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table", targetsPage)
	}
	if write {
		return os.WriteFile(targetsPage, []byte(before+tableBegins+tableOf(targets)+tableEnds+after), 0o644)
	}
	for _, x := range slices.Concat(targets, absent) {
		if !strings.Contains(table, "| "+x.name+" |") {
			return fmt.Errorf("%s has no row for %q; write it anew: go test ./internal/sim -full -update -timeout 0", targetsPage, x.name)
		}
	}
	return nil
}

func tableOf(targets []target) string {
	number := func(name string) (n int) {
		fmt.Sscanf(name, "S%d", &n)
		return n
	}
	targets = append(targets, absent...)
	slices.SortStableFunc(targets, func(a, b target) int { return number(a.name) - number(b.name) })
	var b strings.Builder
	size := "the size that `make test` takes"
	if *full {
		size = "full size"
	}
	fmt.Fprintf(&b, "\nMeasured at %s.\n", size)
	b.WriteString("\n| target | expected | measured | allowed | |\n| --- | --- | --- | --- | --- |\n")
	for _, x := range targets {
		holds := "holds"
		switch {
		case x.measured == "":
			holds = "not in the product: " + x.note
		case x.missed && x.note != "":
			holds = "**differs**: " + x.note
		case x.missed:
			holds = "**differs**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", x.name, x.expected, x.measured, x.allowed, holds)
	}
	b.WriteString("\n")
	return b.String()
}
