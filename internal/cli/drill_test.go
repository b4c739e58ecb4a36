package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/internal/drill"
)

// The drill starts this very test binary as the program under test.
func TestDrill(t *testing.T) {
	t.Setenv(asProgram, "1")
	code, out, errs := command("drill", "--row", "R70,r12")
	if code != exitOK || !strings.Contains(out, "R12  pass") || !strings.Contains(out, "R70  pass") || !strings.Contains(out, "2 rows passed.") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	code, out, errs = command("drill", "--row", "R70", "--json")
	var results []drill.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil || code != exitOK || len(results) != 1 || !results[0].Passed || results[0].ID != "R70" || !strings.Contains(errs, "R70  pass") {
		t.Errorf("exit code %d, %v\n%s%s", code, err, out, errs)
	}
}

func TestDrillOwnConfiguration(t *testing.T) {
	t.Setenv(asProgram, "1")
	file := filepath.Join(t.TempDir(), "mine.yaml")
	text := `
listen: 192.0.2.1:443
virtual_keys: [{name: a, sha256: e7fe1d1be4ad38c4d6a5f92a2b5ab1e2ad7a59ba9fb0d0c0a3ad3ff4c4b41d7a}]
endpoints:
  one: {url: "https://192.0.2.7:8000", api_key: "${NOT_SET_HERE}", kind: openai, limits: {rpm: 1}}
  two: {url: "dns+http://nowhere.invalid:8000"}
models:
  chat: {providers: [{name: one, model: x}, {name: two, model: y}], fallback_chain: [other]}
  other: {providers: [{name: two}]}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := command("drill", "--config", file, "--row", "R1,R12")
	if code != exitOK || !strings.Contains(out, "2 rows passed.") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

// What is served for the drill is no traffic of anybody's: it must not get into the trace that a simulation replays.
func TestDrillLeavesTheTraceAlone(t *testing.T) {
	t.Setenv(asProgram, "1")
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace.jsonl")
	file := write(t, filepath.Join(dir, "lb.yaml"), `
trace: {path: `+trace+`}
endpoints: {one: {url: "http://192.0.2.7:8000", models: [m]}, two: {url: "http://192.0.2.8:8000", models: [m]}}
`)
	if code, out, errs := command("drill", "--config", file, "--row", "R12"); code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	if _, err := os.Stat(trace); !os.IsNotExist(err) {
		t.Errorf("the drill has recorded its own traffic (%v)", err)
	}
}

// A configuration whose endpoints are in a file of their own is run as the balancer itself would read it.
func TestDrillReadsTheFileOfEndpoints(t *testing.T) {
	t.Setenv(asProgram, "1")
	dir := t.TempDir()
	main := write(t, filepath.Join(dir, "lb.yaml"), `
endpoints_file: fleet.json
endpoints: {one: {weight: 2}}
models:
  chat: {providers: [{name: one, model: x}, {name: two, model: y}, {name: gone}]}
  other: {providers: [{name: gone}]}
`)
	fleet := write(t, filepath.Join(dir, "fleet.json"), `{"endpoints": {"one": {"url": "http://192.0.2.7:8000"}, "two": {"url": "http://192.0.2.8:8000"}}}`)
	code, out, errs := command("drill", "--config", main, "--row", "R1")
	if code != exitOK || !strings.Contains(out, "1 row passed.") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if err := os.Remove(fleet); err != nil {
		t.Fatal(err)
	}
	code, out, errs = command("drill", "--config", main, "--row", "R1")
	if code != exitFailure || !strings.Contains(errs, "endpoints_file: open "+fleet) {
		t.Errorf("without the file: exit code %d\n%s%s", code, out, errs)
	}
}

func TestDrillMistakes(t *testing.T) {
	f := func(want string, wantCode int, args ...string) {
		t.Helper()
		code, out, errs := command(append([]string{"drill"}, args...)...)
		if code != wantCode || !strings.Contains(out+errs, want) {
			t.Errorf("%q: exit code %d\n%s%s", args, code, out, errs)
		}
	}
	f(`there is no row "R999"`, exitUsage, "--row", "R999")
	f("row R16 needs the drill's own fleet", exitUsage, "--row", "R16", "--config", "x.yaml")
	f("no such file", exitFailure, "--row", "R1", "--config", "/no/such/file.yaml")
	f("no such file", exitFailure, "--row", "R1", "--program", "/no/such/program")
	f("--jobs must be at least 1", exitUsage, "--jobs", "0")
	f("R46  SIGTERM while streams are open", exitOK, "--list")
}
