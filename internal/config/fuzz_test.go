package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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
		start := time.Now()
		_, _, err := Load([]File{{"bomb.yaml", []byte(text)}}, env())
		took := time.Since(start)
		t.Logf("%-26s %7d bytes %8s", name, len(text), took.Round(time.Millisecond))
		if err == nil && name != "unknown links" {
			t.Errorf("%s: loads", name)
		}
		// About 0.1 s each. The bound is loose, for slow and busy machines; a bomb that goes off takes hours.
		if took > 30*time.Second {
			t.Errorf("%s: took %s", name, took)
		}
	}
}

// FuzzLoad feeds any bytes as a config file. It must not panic, nor take long, nor repeat a secret; what loads keeps what
// validation promises.
func FuzzLoad(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(paths) == 0 {
		f.Fatal("no seeds", err)
	}
	examples, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range append(paths, examples...) {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	const hidden = "hidden-0f9b1c"
	from := sources{
		env:  func(string) (string, bool) { return hidden, true },
		read: func(_, name string) (string, error) { return hidden, nil },
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		start := time.Now()
		c, warnings, err := load([]File{{"fuzz.yaml", data}}, from)
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("took %s", took)
		}
		text := lines(warnings)
		if err != nil {
			var problems Problems
			if !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("error %T %v, want Problems", err, err)
			}
			text += err.Error()
		} else if invalid := c.Validate(checkStrategy); invalid != nil {
			text += invalid.Error()
		} else {
			checkPromises(t, c)
		}
		if strings.Contains(text, hidden) {
			t.Errorf("a secret is in %q", text)
		}
	})
}

func checkPromises(t *testing.T, c *Config) {
	names := map[string]bool{}
	for _, e := range c.Endpoints {
		if names[e.Name] || e.Name == "" || strings.ContainsAny(e.Name, "/# \n") {
			t.Errorf("endpoint name %q", e.Name)
		}
		names[e.Name] = true
		if again, err := canonicalURL(e.URL); err != nil || again != e.URL {
			t.Errorf("URL %q: %v", e.URL, err)
		}
		if !(e.Weight >= 0) || strings.ContainsAny(e.APIKey.Reveal(), "\r\n\x00") {
			t.Errorf("weight or key of %q", e.Name)
		}
	}
	for _, m := range c.Models {
		for _, p := range m.Providers {
			if !names[p.Name] || p.Model == "" || !(p.Weight >= 0) {
				t.Errorf("provider %+v", p)
			}
		}
	}
	if c.Deadlines.Connect <= 0 || c.MaxBody <= 0 || c.Retry.MaxAttempts < 1 || len(c.Endpoints) == 0 {
		t.Errorf("got %+v", c)
	}
}
