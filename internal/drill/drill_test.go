//go:build !race

package drill

import (
	"os"
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
