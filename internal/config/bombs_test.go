//go:build unix

package config

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cpuTime is what the process has used: on a busy machine the clock on the wall says little.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestBombs loads files that are small and mean much, or are as large as allowed. Each is refused, or read, at once.
func TestBombs(t *testing.T) {
	list := func(name string, times int) string {
		return strings.TrimSuffix(strings.Repeat("*"+name+",", times), ",")
	}
	var nested, merged strings.Builder
	nested.WriteString("profiles:\n  a0: {hedge: &a0 [x, x, x, x, x, x, x, x, x]}\n")
	merged.WriteString("profiles:\n  a0: {hedge: &a0 {a: 1, b: 2}}\n")
	for i := 1; i < 40; i++ {
		before := fmt.Sprintf("a%d", i-1)
		fmt.Fprintf(&nested, "  a%d: {hedge: &a%d [%s]}\n", i, i, list(before, 9))
		fmt.Fprintf(&merged, "  a%d: {hedge: &a%d {<<: [%s]}}\n", i, i, list(before, 9))
	}
	var wide strings.Builder // a map of many keys, merged many times
	wide.WriteString("profiles:\n  a: {hedge: &wide {")
	for i := range 10_000 {
		fmt.Fprintf(&wide, "k%d: 1, ", i)
	}
	wide.WriteString("}}\n  b: {hedge: {<<: [" + list("wide", maxAliases) + "]}}\n")

	const size = 256 << 10
	fill := func(head, line string) string {
		return head + strings.Repeat(line, (size-len(head))/len(line))
	}
	many := func(head, line string, n int) string { // numbered lines
		var b strings.Builder
		b.WriteString(head)
		for i := 0; i < n && b.Len() < size; i++ {
			fmt.Fprintf(&b, line, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"one megabyte of aliases": "profiles:\n  a: {hedge: &a x}\n  b:\n    hedge:\n" + strings.Repeat("    - *a\n", 125_000),
		"nested aliases":          nested.String(),
		"nested merges":           merged.String(),
		"wide merges":             wide.String(),
		"aliases to the limit":    "profiles:\n  a: {hedge: &a [" + strings.Repeat("x, ", 100) + "]}\n  b:\n    hedge:\n" + strings.Repeat("    - *a\n", maxAliases),
		"brackets":                strings.Repeat("[", size),
		"dashes":                  strings.Repeat("- ", size),
		"question marks":          strings.Repeat("? ", size),
		"braces":                  strings.Repeat("{a: ", size),
		"open quote":              "a: \"" + strings.Repeat("x", size),
		"one key again and again": fill("", "a: b\n"),
		"long key":                strings.Repeat("k", size),
		"unknown endpoints":       many("endpoints: {a: {url: http://a}}\nmodels:\n", "  m%d: {providers: [{name: q}]}\n", 1e6),
		"endpoints without url":   many("endpoints:\n", "  e%d: {}\n", 1e6),
		"unknown links":           many("models:\n", "  model%[1]d: {fallback_chain: [mode%[1]d]}\n", 1e6),
		"long list of models":     fill("endpoints: {a: {url: http://a, models: [", "x,") + "]}}",
		"too large":               strings.Repeat("#", maxFile+1),
	} {
		before := cpuTime(t)
		_, _, err := Load([]File{{"bomb.yaml", []byte(text)}}, env())
		took := cpuTime(t) - before
		t.Logf("%-26s %7d bytes %8s", name, len(text), took.Round(time.Millisecond))
		if err == nil && name != "unknown links" {
			t.Errorf("%s: loads", name)
		}
		// Measured: 0.7 s at most, 3 s under the race detector. There, what grows with the square of the file takes 25 s and
		// more, and a bomb that goes off takes hours.
		if took > 10*time.Second {
			t.Errorf("%s: took %s", name, took)
		}
	}
}
