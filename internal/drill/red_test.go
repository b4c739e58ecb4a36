//go:build !race

package drill

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"evenkeel/tests/harness"
)

// A row that passes whatever the program does proves nothing. Here every fast row runs without the defence that it is about, and must fail.
func TestRed(t *testing.T) {
	_, err := Run(t.Context(), Options{Program: undefendedProgram(t), Rows: rows(), Jobs: 4, undefended: true, Done: func(r Result) {
		switch {
		case r.Passed:
			t.Errorf("%s passes without its defence. Measured: %s", r.ID, r.Measured)
		case r.kept:
			t.Errorf("%s could not be run without its defence: %s", r.ID, r.Problem)
		}
		t.Logf("%-4s %5.1f s  failed: %-5v %s: %.300s", r.ID, r.Seconds, !r.Passed, r.Measured, r.Problem)
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// Every row says how its defence is switched off, and every change to the source is used.
func TestEachRowHasItsDefence(t *testing.T) {
	changes := readChanges(t)
	used := map[string]bool{}
	for _, r := range Rows() {
		if r.off.defence == "" || r.off.settings == nil && r.off.change == "" {
			t.Errorf("%s does not say how its defence is switched off", r.ID)
		}
		if name := r.off.change; name != "" {
			used[name] = true
			if !slices.ContainsFunc(changes, func(c change) bool { return c.name == name }) {
				t.Errorf("%s: testdata/undefended.txt has no change %q", r.ID, name)
			}
		}
	}
	for _, c := range changes {
		if !used[c.name] {
			t.Errorf("no row uses the change %q", c.name)
		}
	}
}

// change is one replacement in one file.
type change struct{ name, file, find, make string }

// readChanges reads testdata/undefended.txt, and fails where a text is not found exactly once.
func readChanges(t *testing.T) (all []change) {
	t.Helper()
	text, err := os.ReadFile("testdata/undefended.txt")
	if err != nil {
		t.Fatal(err)
	}
	var c change
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		switch {
		case strings.HasPrefix(line, "== "):
			c = change{name: strings.TrimSuffix(strings.Fields(line)[1], ":")}
		case strings.HasPrefix(line, "file "):
			c.file = strings.TrimSpace(line[len("file "):])
		case word == "find":
			c.find = rest
		case word == "make":
			c.make = strings.ReplaceAll(rest, "OFF", fmt.Sprintf("undefended(%q)", c.name))
			all = append(all, c)
		}
	}
	for _, c := range all {
		source, err := os.ReadFile(filepath.Join(harness.Root(t), c.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), c.find); n != 1 {
			t.Errorf("%s: %s holds %q %d times, want once: the defence has moved, so must the change", c.name, c.file, c.find, n)
		}
	}
	return all
}

// helpers are the lines of code that changes need beside them, by package directory.
func helpers(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/undefended.txt")
	if err != nil {
		t.Fatal(err)
	}
	code, dir := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		if file, ok := strings.CutPrefix(line, "file "); ok {
			dir = path.Dir(strings.TrimSpace(file))
			code[dir] += ""
		}
		if more, ok := strings.CutPrefix(line, "code\t"); ok {
			code[dir] += more
		}
	}
	return code
}

// undefendedProgram builds the program with all changes in it, each of which its environment can choose.
func undefendedProgram(t *testing.T) string {
	t.Helper()
	root, dir := harness.Root(t), t.TempDir()
	overlay := map[string]string{}
	put := func(file, text string) {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(root, file)] = to
	}
	changed := map[string]string{}
	for _, c := range readChanges(t) {
		if changed[c.file] == "" {
			source, err := os.ReadFile(filepath.Join(root, c.file))
			if err != nil {
				t.Fatal(err)
			}
			changed[c.file] = string(source)
		}
		if !strings.Contains(changed[c.file], c.find) { // another change has wrapped it
			t.Fatalf("%s: %q is not there any more after other changes", c.name, c.find)
		}
		changed[c.file] = strings.Replace(changed[c.file], c.find, c.make, 1)
	}
	for file, text := range changed {
		put(file, text)
	}
	for pkg, code := range helpers(t) {
		imports := `import "os"`
		if strings.Contains(code, "io.") {
			imports += "\nimport \"io\""
		}
		put(pkg+"/undefended_drill.go", fmt.Sprintf("package %s\n\n%s\n\nvar undefendedName = os.Getenv(%q)\n\nfunc undefended(name string) bool { return undefendedName == name }\n\n%s",
			path.Base(pkg), imports, undefendedVariable, code))
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	file, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "evenkeel")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", file, "-o", program, "./cmd/evenkeel")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build of the program without defences: %v\n%s", err, out)
	}
	return program
}

// What the parsers of the tests' own file and of the metrics read.
func TestParseMetrics(t *testing.T) {
	s := parseMetrics("# HELP x y\nx{a=\"1\",b=\"2\"} 3\nx{a=\"2\"} 4.5\ny 1e3\nbroken\nz nan-ish\n")
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{{"x", nil, 7.5}, {"x", []string{`a="1"`}, 3}, {"x", []string{`a="1"`, `b="3"`}, 0}, {"y", nil, 1000}, {"z", nil, 0}} {
		if got := s.sum(c.name, c.labels...); got != c.want {
			t.Errorf("sum of %s %v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

// The list of rows is the one that is promised: each once, in order.
func TestTheList(t *testing.T) {
	want := regexp.MustCompile(`^(R[1-9]|R[12]\d|R3\d|R40|R4[2-6]|R5[1-9]|R6\d|R7[0-3])$`)
	last := 0
	for _, r := range Rows() {
		if !want.MatchString(r.ID) || r.number() <= last {
			t.Errorf("%s is not of the list, or stands twice", r.ID)
		}
		last = r.number()
	}
	if n := len(Rows()); n != 68 {
		t.Errorf("%d rows, want 68", n)
	}
}
