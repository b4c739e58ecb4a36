package cli

import (
	"strings"
	"testing"

	"evenkeel/internal/sim"
)

// What makes no sense is refused with the flag, its value and what it may be, and not simulated to numbers that make none.
func TestSimulateLimits(t *testing.T) {
	file := in(t, map[string]string{
		"one.csv":  "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,480,10\n",
		"once.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,480,10\n2023-11-16 18:17:03.97,480,10\n",
		"fast.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,480,10\n2023-11-16 18:17:03.9700001,480,10\n",
		"slow.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2014-11-16 18:17:03.97,480,10\n2023-11-16 18:17:03.97,480,10\n",
	})
	bad := func(code int, want string, args ...string) {
		t.Helper()
		got, stdout, stderr := command(append([]string{"simulate"}, args...)...)
		if got != code || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q; want %d and %q", args, got, stdout, stderr, code, want)
		}
	}
	made := func(args ...string) []string {
		return append([]string{"--workload", "reasoning", "--strategy", "least_tokens"}, args...)
	}
	played := func(path string, args ...string) []string {
		return append([]string{"--trace", path, "--strategy", "least_tokens"}, args...)
	}
	bad(2, "--rho must be from 0.001 to 100, is +Inf", made("--rho", "inf")...)
	bad(2, "--rho must be from 0.001 to 100, is 0", made("--rho", "0")...)
	bad(2, "--rho must be from 0.001 to 100, is 1e-09", made("--rho", "1e-9")...)
	bad(2, "--rho must be from 0.001 to 100, is -1", made("--rho", "-1")...)
	bad(2, "--rate must be from 0.001 to 1000000, is 1e+300", made("--rate", "1e300")...)
	bad(2, "--speed must be from 0.001 to 1000000, is 1e-300", played(excerpt, "--speed", "1e-300")...)
	bad(2, "--copies must be from 1 to 10000, is 100000000", played(excerpt, "--copies", "100000000")...)
	bad(2, "--balancers must be from 1 to 10000, is 1000000", made("--balancers", "1000000")...)
	bad(2, "--balancers 10000, each of which knows 100 deployments: together these must be 100000 at most", made("--balancers", "10000", "--deployments", "100")...)
	bad(2, "--requests must be from 1 to 100000000, is 0", made("--requests", "0")...)
	bad(2, "--seeds must be from 1 to 1000, is 1000000", made("--seeds", "1000000")...)
	bad(2, "--slo-ttft must be from 1ms to 24h0m0s, is -1s", made("--slo-ttft", "-1s")...)
	bad(2, "--scrape must be from 1ms to 24h0m0s, is 1ns", made("--scrape", "1ns")...)
	bad(2, "each from 0 to 1000000000", made("--price", "1,inf,1")...)
	bad(2, "--rate 0.001 makes 0.001 requests a second, of which 1000000 take more than 10 years", made("--rate", "0.001", "--requests", "1000000")...)
	bad(2, "--speed 0.001 makes 7.04e-12 requests a second, of which 2 take more than 10 years", played(file("slow.csv"), "--speed", ".001")...)

	bad(1, "one.csv: its 1 request came at one time", played(file("one.csv"))...)
	bad(1, "once.csv: its 2 requests came at one time", played(file("once.csv"), "--rate", "3")...)
	bad(2, "the trace makes 9.95e+06 requests a second, expected at most 1000000", played(file("fast.csv"))...)
	bad(2, "--workload azure-code has the format azure (AzureLLMInferenceTrace_code.csv), and --trace "+excerpt+" has the format mooncake", played(excerpt, "--workload", "azure-code")...)

	long := simulateFlags{copies: 10_000}
	if err := long.checkTrace(sim.NewTrace(0, append(make([]sim.Row, 20_000), sim.Row{At: 1})...)); err == nil || !strings.Contains(err.Error(), "--copies 10000 of a trace of 20001 requests are more than 100000000") {
		t.Errorf("got %v", err)
	}
}
