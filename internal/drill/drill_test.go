//go:build !race

package drill

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/internal/mock"
	"evenkeel/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// rows are those that DRILL names, as in DRILL=R1,R7; unset, all that are fast.
func rows() []string {
	if list := os.Getenv("DRILL"); list != "" {
		return strings.Split(list, ",")
	}
	return nil
}

// TestManyEngines: a configuration may have more endpoints than there are letters.
func TestManyEngines(t *testing.T) {
	b := &Bench{ctx: t.Context()}
	defer b.close()
	names := map[string]bool{}
	for range 60 {
		names[b.engine(mock.Config{}).Name()] = true
	}
	if len(names) != 60 || !names["z"] || !names["a1"] || !names["h2"] {
		t.Errorf("%d names: %v", len(names), names)
	}
}

// TestOwnFailureDomains: what fails together in somebody's configuration does so among the mocks, which are all on one host.
func TestOwnFailureDomains(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.yaml")
	text := `
endpoints:
  a: {url: "http://10.0.0.1:8000", models: [m]}
  b: {url: "dns+http://engines:8000", models: [m]}
  c: {url: "http://[fd00::7]:8000", models: [m], failure_domain: rack-1}
  d: {kind: openai, models: [m]}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	own, err := readOwned([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	b := &Bench{ctx: t.Context(), owned: own}
	defer b.close()
	b.fleet(4, mock.Config{})
	for name, want := range map[string]any{"a": "10.0.0.1", "b": "engines", "c": "rack-1", "d": nil} {
		if got := mapAt(b.endpoints, name)["failure_domain"]; got != want {
			t.Errorf("%s fails with %v, want %v", name, got, want)
		}
	}
}

// Every fast row passes against the program as it is.
func TestRows(t *testing.T) {
	_, err := Run(t.Context(), Options{Program: harness.Program(t), Rows: rows(), Jobs: 3, Done: func(r Result) {
		if !r.Passed {
			t.Errorf("%s %s: %s\nmeasured: %s", r.ID, r.Fault, r.Problem, r.Measured)
		}
		t.Logf("%-4s %5.1f s  passed: %-5v %s: %s", r.ID, r.Seconds, r.Passed, r.Promise, r.Measured)
	}})
	if err != nil {
		t.Fatal(err)
	}
}
