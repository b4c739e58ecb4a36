package cli

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
)

func TestScheduleIsSeeded(t *testing.T) {
	span := 40 * time.Second
	one := schedule(1, span)
	if !slices.Equal(one, schedule(1, span)) {
		t.Error("the same seed gave other traffic")
	}
	if slices.Equal(one, schedule(2, span)) {
		t.Error("another seed gave the same traffic")
	}
	if short := schedule(1, span/2); !slices.Equal(short, one[:len(short)]) {
		t.Error("a shorter span is not the beginning of a longer one")
	}
}

func TestScheduleIsWhatItSays(t *testing.T) {
	span := 100 * time.Second
	all := schedule(3, span)
	// 2800 are expected; four standard deviations of a Poisson count are 212.
	if n := len(all); n < 2588 || n > 3012 {
		t.Errorf("%d requests in %v", n, span)
	}
	var before time.Duration
	long, prompt, output := 0, 0, 0
	for _, a := range all {
		if a.at < before || a.at >= span || a.prompt < 40 || a.prompt > 2000 || a.output < 12 || a.output > 120 {
			t.Fatalf("%+v after %v", a, before)
		}
		before, prompt, output = a.at, prompt+a.prompt, output+a.output
		if a.prompt >= 800 {
			long++
		}
	}
	n := float64(len(all))
	if share := float64(long) / n; share < 0.21 || share > 0.29 {
		t.Errorf("%.2f of the requests are long", share)
	}
	// What demoEngines says of its capacity rests on these.
	if p, o := float64(prompt)/n, float64(output)/n; p < 400 || p > 480 || o < 39 || o > 45 {
		t.Errorf("a request has %.0f tokens of prompt and %.1f of output in the mean", p, o)
	}
}

func TestBody(t *testing.T) {
	seen := map[string]bool{}
	for n, a := range []arrival{{prompt: 40, output: 12}, {prompt: 2000, output: 120}, {prompt: 40, output: 12}} {
		var body struct {
			Model     string
			Stream    bool
			MaxTokens int `json:"max_tokens"`
			Messages  []struct{ Role, Content string }
		}
		if err := json.Unmarshal(a.body(n), &body); err != nil {
			t.Fatal(err)
		}
		text := body.Messages[0].Content
		if body.Model != demoModel || !body.Stream || body.MaxTokens != a.output || len(text) != 4*a.prompt || seen[text] {
			t.Errorf("%+v became %+v", a, body)
		}
		seen[text] = true
	}
}

func TestPlan(t *testing.T) {
	p := newPlan(10 * time.Second)
	if p.kill != 4*time.Second || p.back != 6*time.Second || len(p.traffic) == 0 || p.traffic[len(p.traffic)-1].at >= p.half {
		t.Errorf("kill at %v, back at %v, %d requests", p.kill, p.back, len(p.traffic))
	}
}
