package config

import (
	"strings"
	"testing"
)

func TestHedgeThatNeverTakesEffectWarns(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		c, _, err := load([]File{{"a.yaml", []byte(text + "\nendpoints: {gpu-1: {url: http://10.0.0.1:8000, models: [chat]}}\n")}}, sources{env: env()})
		if err != nil {
			t.Fatal(err)
		}
		v := newValidator(c)
		v.content()
		var got []string
		for _, w := range v.warnings {
			got = append(got, w.Path+": "+w.Text)
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("%s\ngot  %q\nwant %q", text, got, want)
		}
	}
	f("hedge: {enabled: true}", "")
	f("retry: {max_attempts: 1}", "")
	f("hedge: {enabled: true, models: [chat]}", "")
	f("hedge: {enabled: true, models: [caht]}", `hedge.models[0]: no model "caht" is configured; it matters only if an endpoint serves it; did you mean "chat"?`)
	f("retry: {max_attempts: 1}\nhedge: {enabled: true}", "hedge.enabled: never takes effect: a hedge is a second attempt, and retry.max_attempts is 1")
	f("retry: {budget_ratio: 0.01}\nhedge: {enabled: true}", "hedge.budget_ratio: 0.05 is never reached: hedges take from the retry budget too, and retry.budget_ratio is 0.01")
}
