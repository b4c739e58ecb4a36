// Package harness starts the programs that tests need beside the test process:
// the balancer itself, real engines, official clients. Whatever it starts is
// ended by its own process id when the test ends.
package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// Root returns the folder that holds go.mod.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func root() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return "", fmt.Errorf("these tests need the source tree, and a test binary built without -trimpath: %w", err)
	}
	return dir, nil
}

// Python returns the interpreter that has the packages of
// tests/sdk/requirements.txt and tests/realengine/requirements.txt. Where it is
// missing the test is skipped, but on CI it fails.
func Python(t testing.TB) string {
	t.Helper()
	python := filepath.Join(Root(t), ".cache", "venv", "bin", "python")
	need(t, python)
	return python
}

// Node returns the interpreter for the programs of tests/sdk/node; their
// packages are installed beside them. Where they are missing the test is
// skipped, but on CI it fails.
func Node(t testing.TB) string {
	t.Helper()
	need(t, filepath.Join(Root(t), "tests", "sdk", "node", "node_modules"))
	node, err := exec.LookPath("node")
	if err != nil {
		missing(t, "node")
	}
	return node
}

func need(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		missing(t, path)
	}
}

func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is missing: run `make setup`", what)
	}
	t.Skipf("%s is missing: run `make setup`", what)
}

// WaitUntil waits for a time, and reports whether it came before ctx ended.
func WaitUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
