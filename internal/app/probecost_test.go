package app

import (
	"strings"
	"testing"
)

func TestProbeCosts(t *testing.T) {
	f := func(health, endpoints, want, warning string) {
		t.Helper()
		c := parse(t, "health_checks: {"+health+"}\n"+endpoints)
		var got []string
		for _, p := range ProbeCosts(c) {
			got = append(got, p.String())
		}
		if text := strings.Join(got, "\n"); text != want {
			t.Errorf("%s costs\n%s\nwant\n%s", health, text, want)
		}
		w, isDear := dear(c)
		if isDear != (warning != "") || isDear && w.String() != warning {
			t.Errorf("%s: warning %q, want %q", health, w, warning)
		}
	}
	const one = "endpoints: {a: {url: http://a}}\n"
	f("", one, "", "")
	f("interval: 15s", one, "", "")
	f("interval: 0s, probe_prompt: hi", one, "", "")
	f("interval: 15s, probe_prompt: ready?!, probe_max_tokens: 3", one, "a, if it serves one model only: 5760 × (10 + 3) = 74880 tokens", "")
	f("interval: 15s, probe_prompt: ready?!", "endpoints: {p: {url: 'dns+http://p', models: [m]}, q: {url: 'dns+http://q'}}\n",
		"p/m, at each address: 5760 × (10 + 16) = 149760 tokens\nq, at each address, if it serves one model only: 5760 × (10 + 16) = 149760 tokens", "")
	const priced = "endpoints: {a: {url: http://a, models: [x, y]}, b: {url: http://b}}\n" +
		"models: {m: {providers: [{name: a, model: x, price: {input: 2.5, output: 10}}, {name: b}]}, n: {providers: [{name: b, model: m, price: {request: 0.001}}]}}\n"
	f("probe_prompt: ready?!", priced, `a/x: 2880 × ((10 × 2.5 $ + 16 × 10 $) / 1000000) = 0.53 $
a/y: 2880 × (10 + 16) = 74880 tokens
b/m: 2880 × ((10 × 0 $ + 16 × 0 $) / 1000000 + 0.001 $) = 2.88 $`,
		"test.yaml:3:17: health_checks.probe_prompt: the probes cost up to 3.41 $ a day at the prices of providers; a longer interval, or a shorter answer (probe_max_tokens), costs less")
	f("probe_prompt: ready?!, interval: 1h", priced, `a/x: 24 × ((10 × 2.5 $ + 16 × 10 $) / 1000000) = 0.00 $
a/y: 24 × (10 + 16) = 624 tokens
b/m: 24 × ((10 × 0 $ + 16 × 0 $) / 1000000 + 0.001 $) = 0.02 $`, "")
}
