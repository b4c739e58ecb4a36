package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/engine"
)

// written is the file of an engine.
func written(tb testing.TB, c engine.Config, about string) string {
	tb.Helper()
	var b bytes.Buffer
	if err := writeEngine(&b, c, about); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

// Every preset can be written and is read as it was, but for curves that are code.
func TestEngineFile(t *testing.T) {
	for _, name := range engine.Presets() {
		want, err := engine.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		if want.Timing.Decode != nil {
			want.Timing.Decode, want.Timing.Sequence = nil, 1e-5
		}
		want.Load, want.WarmUpSteps, want.WarmUpFactor = 90*time.Second, 3, 2.5
		text := written(t, want, name+"\nand more\x1b[2J\r: {")
		if got, err := parseEngine([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: read as\n%+v, %v\nwant\n%+v\n%s", name, got, err, want, text)
		}
	}
}

const smallEngine = "scheduler: mixed\nstep_tokens: 512\nmax_sequences: 8\nblock_tokens: 16\nblocks: 100\ntiming: {base: 0.01, token: 1e-5}\n"

func TestEngineFileErrors(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if _, err := parseEngine([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	if _, err := parseEngine([]byte(smallEngine)); err != nil {
		t.Fatal(err)
	}
	f("", ": expected an engine, as simulate --fit-to writes it")
	f("[]", ": expected an engine")
	f("a: [", "it is not YAML")
	f(smallEngine+"x: y: z\n", ":7: it is not YAML")
	f(smallEngine+"blocs: 7\n", `:7: unknown key "blocs"; did you mean "blocks"?`)
	f(smallEngine+"Blocks: 7\n", `:7: unknown key "Blocks"; did you mean "blocks"?`)
	f(strings.Replace(smallEngine, "token:", "tokens:", 1), `:6: unknown key "timing.tokens"; did you mean "timing.token"?`)
	f(strings.Replace(smallEngine, "mixed", "vllm", 1), `:1: scheduler is "vllm", expected one of mixed, prefill-first, slots, fifo, legacy`)
	f(strings.Replace(smallEngine, "512", "many", 1), `:2: step_tokens is "many", expected a whole number from 0 to 16777216`)
	f(strings.Replace(smallEngine, "16", "1000000", 1), `:4: block_tokens is "1000000", expected a whole number from 0 to 65536`)
	f(strings.Replace(smallEngine, "100", "[1]", 1), ":5: blocks: expected one value: blocks of the KV cache")
	f(strings.Replace(smallEngine, "0.01", "-1", 1), `:6: timing.base is "-1", expected a number such as 0.006, not negative`)
	f(strings.Replace(smallEngine, "0.01", ".inf", 1), `:6: timing.base is ".inf", expected a number`)
	f(smallEngine+"load: 15\n", `:7: load is "15", expected a duration with its unit such as 15s`)
	f(strings.Replace(smallEngine, "{base: 0.01, token: 1e-5}", "fast", 1), ":6: timing: expected base, prefill, token")
	f("scheduler: fifo\nblocks: 5\nblock_tokens: 16\n", ": timing.base is missing: of a step")
	f("timing: {base: 1}\n", ": scheduler is missing: how steps are composed")
	f(strings.Replace(smallEngine, "blocks: 100\n", "", 1), ": blocks is 0 with the scheduler mixed: it must be at least 1")
	f(strings.Replace(smallEngine, "8", "600", 1), ": max_sequences 600 is above step_tokens 512")
	f(strings.Replace(smallEngine, "0.01", "5000", 1), ": timing.base is 5000: it is in seconds")
	f(strings.Repeat("#", mostEngineFile+1), ": is larger than 1 MiB")
}

func FuzzParseEngine(f *testing.F) {
	for _, name := range engine.Presets() {
		c, err := engine.Preset(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(written(f, c, name)))
	}
	f.Add([]byte(smallEngine))
	f.Add([]byte("scheduler: &a mixed\ntiming: *a"))
	f.Add([]byte("timing: {base: 1, base: 2}\n? [x]\n: y\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseEngine(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), ":") {
				t.Errorf("%q does not go on behind a file's name", err)
			}
			return
		}
		if _, err := engine.New(c); err != nil {
			t.Errorf("%+v is no engine: %v", c, err)
		}
		if again, err := parseEngine([]byte(written(t, c, string(text)))); err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v is read again as %+v, %v", c, again, err)
		}
	})
}

// A fitted engine is written, and named in the place of a preset from then on, with the same result as in the run that fitted it.
func TestSimulateFitTo(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("trace.jsonl"), []byte(recordedTrace()), 0o600); err != nil {
		t.Fatal(err)
	}
	played := []string{"--trace", at("trace.jsonl"), "--strategy", "least_tokens,round_robin"}
	json := func(more string, name string) string {
		t.Helper()
		code, stdout, stderr := command(append([]string{"simulate", "--json", more, at(name)}, played...)...)
		if code != exitOK || !strings.Contains(stdout, "ttft_mean_seconds") {
			t.Fatalf("exit code %d, %s", code, stderr)
		}
		return stdout
	}
	if during, after := json("--fit-to", "e.yaml"), json("--engine", "e.yaml"); during != after {
		t.Errorf("with the file it is\n%s\nwhen it was fitted it was\n%s", after, during)
	}
	text, err := os.ReadFile(at("e.yaml"))
	if err != nil || !strings.HasPrefix(string(text), "# An engine whose times were fitted to ") {
		t.Errorf("%v\n%s", err, text)
	}
	bad := func(code int, want string, args ...string) {
		t.Helper()
		if got, stdout, stderr := command(args...); got != code || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q; want %d and %q", args, got, stdout, stderr, code, want)
		}
	}
	if err := os.WriteFile(at("bad.yaml"), []byte("scheduler: mixed\nblocs: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fit := []string{"simulate", "--trace", at("trace.jsonl")}
	bad(2, "--fit-to gpu=x.yaml: no engine of its own is fitted to that; with this --engine write FILE", append(fit, "--fit-to", "gpu=x.yaml")...)
	bad(2, "with this --engine write a=FILE", append(fit, "--engine", "a=fifo", "--fit-to", "x.yaml")...)
	bad(1, "--fit-to: open ", append(fit, "--fit-to", at("no/e.yaml"))...)
	bad(1, "--engine: "+at("bad.yaml")+`:2: unknown key "blocs"`, "simulate", "--workload", "reasoning", "--strategy", "least_tokens", "--engine", at("bad.yaml"))
	bad(1, "--engine: "+at("bad.yaml")+`:2: unknown key "blocs"`, "mock", "--ports", "0", "--engine", at("bad.yaml"))
	bad(1, "no such file or directory", "mock", "--ports", "0", "--engine", at("absent.yaml"))
	bad(2, `--engine: there is no preset "h200"; there are`, "mock", "--ports", "0", "--engine", "h200")
}
