package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the messages of testdata/*.bad.yaml beside them")

// checkStrategy stands for the table of strategies.
func checkStrategy(s Strategy) error {
	known := []string{"least_tokens", "p2c_ewma", "predicted_wait"}
	options := struct {
		HalfLife  time.Duration
		ColdAfter time.Duration
	}{HalfLife: 10 * time.Second}
	switch s.Name {
	case "least_tokens", "predicted_wait":
		return s.Decode(&struct{}{})
	case "p2c_ewma":
		return s.Decode(&options)
	default:
		return fmt.Errorf("unknown strategy %q%s", s.Name, DidYouMean(s.Name, known))
	}
}

// badEnv has one variable with a secret, which no message may show, and one that is empty.
func badEnv(name string) (string, bool) {
	switch name {
	case "CANARY":
		return canary, true
	case "EMPTY":
		return "", true
	}
	return "", false
}

const canary = "sk-CANARY-0123456789"

// TestBadFiles compares the messages about each testdata/*.bad.yaml with the text beside it. Messages are part of the
// interface: they must be understood without the documentation.
func TestBadFiles(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.bad.yaml")
	if err != nil || len(paths) < 20 {
		t.Fatalf("found %d files, %v", len(paths), err)
	}
	for _, name := range paths {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		golden := strings.TrimSuffix(name, ".yaml") + ".txt"
		c, _, err := Load([]File{{filepath.ToSlash(name), data}}, badEnv)
		if c != nil {
			err = c.Validate(checkStrategy)
		}
		var problems Problems
		if !errors.As(err, &problems) {
			t.Errorf("%s: got %v, want Problems", name, err)
			continue
		}
		got := strings.ReplaceAll(problems.Error(), "testdata/", "") + "\n"
		if strings.Contains(got, "sk-CANARY") {
			t.Errorf("%s: a secret is in the message:\n%s", name, got)
		}
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s:\ngot\n%swant\n%s", name, got, want)
		}
	}
}
