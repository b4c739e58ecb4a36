package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(&out, []string{"returns"}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "## returns\n\n| replicas | ") || strings.Count(got, "\n") < 7 || strings.Contains(got, "## herd") {
		t.Errorf("%s", got)
	}
	if err := run(&out, []string{"herds"}); err == nil || !strings.Contains(err.Error(), `no table is called "herds": there are [cost coverage`) {
		t.Errorf("%v", err)
	}
}

// TestDecisions: what is measured is there, and more deployments cost more.
func TestDecisions(t *testing.T) {
	few, bytes, err := decisions("least_tokens", 10)
	if err != nil {
		t.Fatal(err)
	}
	many, _, err := decisions("least_tokens", 500)
	if err != nil {
		t.Fatal(err)
	}
	if few <= 0 || many < 3*few || bytes < 1000 || bytes > 50_000 {
		t.Errorf("%v µs among 10, %v µs among 500, %v bytes for each", few, many, bytes)
	}
}
