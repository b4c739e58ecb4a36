package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// full is a disk without room behind a few bytes.
type full struct{ room int }

var errNoRoom = errors.New("no space left on device")

func (f *full) Write(p []byte) (int, error) {
	if len(p) > f.room {
		return 0, errNoRoom
	}
	f.room -= len(p)
	return len(p), nil
}

// TestLostOutput: a command whose result did not reach its reader has failed, and says so once.
func TestLostOutput(t *testing.T) {
	file := in(t, map[string]string{"a.yaml": "endpoints: {a: {url: 'http://a:1', models: [x]}}"})
	f := func(code int, args ...string) {
		t.Helper()
		for _, room := range []int{0, 10} {
			var stderr bytes.Buffer
			if got := Main(args, &full{room}, &stderr); got != code || strings.Count(stderr.String(), errNoRoom.Error()) != 1 || !strings.HasPrefix(stderr.String(), "evenkeel: ") {
				t.Errorf("%q: exit code %d, stderr %q", args, got, stderr.String())
			}
		}
		if code, _, stderr := command(args...); code != exitOK {
			t.Errorf("%q with room: exit code %d, stderr %q", args, code, stderr)
		}
	}
	f(exitFailure)
	f(exitFailure, "--help")
	f(exitFailure, "--version")
	f(exitFailure, "version")
	for _, c := range newRoot().Commands() {
		f(exitFailure, c.Name(), "--help")
	}
	f(exitFailure, "simulate", "--list")
	f(exitFailure, "simulate", "--workload", "reasoning", "--strategy", "least_tokens", "--requests", "100", "--seeds", "1")
	f(exitFailure, "simulate", "--workload", "reasoning", "--strategy", "least_tokens", "--requests", "100", "--seeds", "1", "--json")
	f(exitFailure, "check", file("a.yaml"))
	f(exitFailure, "drill", "--list")
}
