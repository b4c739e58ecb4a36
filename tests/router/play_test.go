//go:build !race

package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/console"
	"evenkeel/tests/harness"
	"evenkeel/tests/realengine"
)

// turn is a question as it was asked, and its answer.
type turn struct {
	at  time.Duration // since the start of all
	err error
	realengine.Answer
	forecast *console.Forecast // of the deployment that it went to; nil = not known
}

// pins says where a talk is to stay; nil = wherever the balancer sends it.
type pins func(talk int) string

// play has all talks, each in its turn, until the time is over, and returns their turns in order of time. A talk that meets an
// error ends with it.
func play(ctx context.Context, url, model string, talks []talk, pin pins, within time.Duration) []turn {
	turns := make([][]turn, len(talks))
	start := time.Now()
	var all sync.WaitGroup
	for i := range talks {
		all.Go(func() { turns[i] = have(ctx, url, model, &talks[i], i, pin, start, within) })
	}
	all.Wait()
	flat := slices.Concat(turns...)
	slices.SortFunc(flat, func(a, b turn) int { return int(a.at - b.at) })
	return flat
}

// have has one talk.
func have(ctx context.Context, url, model string, k *talk, number int, pin pins, start time.Time, within time.Duration) (turns []turn) {
	header := http.Header{"X-Session-Id": {k.session}}
	if pin != nil {
		header.Set("X-Evenkeel-Pin", pin(number))
	}
	messages := []realengine.Message{{Role: "system", Content: k.system}}
	next := start.Add(k.at)
	for n, question := range k.questions {
		if next.Sub(start) > within || !harness.WaitUntil(ctx, next) {
			return turns
		}
		messages = append(messages, realengine.Message{Role: "user", Content: question})
		a, err := realengine.Ask(ctx, realengine.Question{
			URL: url, Model: model, Messages: messages, Tokens: k.answers[n], Seed: 100*number + n, Header: header,
		})
		turns = append(turns, turn{at: a.Sent.Sub(start), err: err, Answer: a})
		if err != nil {
			return turns
		}
		messages = append(messages, realengine.Message{Role: "assistant", Content: a.Text})
		next = time.Now().Add(k.pauses[n])
	}
	return turns
}

// learnForecasts asks the balancer what it expected of each turn.
func learnForecasts(t *testing.T, lb *harness.Balancer, turns []turn) {
	t.Helper()
	for i := range turns {
		if turns[i].err != nil {
			continue
		}
		var e console.Explanation
		id := turns[i].Header.Get("X-Evenkeel-Id")
		harness.Eventually(t, 10*time.Second, "request "+id+" can be explained", func() bool {
			status, body, err := harness.Get(lb.AdminURL + "/explain/" + id)
			return err == nil && status == http.StatusOK && json.Unmarshal(body, &e) == nil
		})
		d := e.Attempts[len(e.Attempts)-1].Decision
		for _, c := range d.Candidates {
			if c.Deployment == d.Chosen {
				turns[i].forecast = c.Forecast
			}
		}
	}
}

// figures are what counts of some turns.
type figures struct {
	turns, failed   int
	mean, p50, p99  float64 // seconds to the first token
	prompt          float64 // mean tokens
	cached          float64 // share of the prompts' tokens that engines found in their caches
	forecast        float64 // share that was thought to be there, NaN = not known
	off             float64 // of forecasts: the mean difference of a prompt's cached tokens, as a share of the prompt, whichever way
	forecastSeconds float64 // mean logarithm of the time to the first token over what was forecast, whichever way
	examples        []error
}

// summarize takes the turns that were asked after a time.
func summarize(turns []turn, after time.Duration) (f figures) {
	var ttft []float64
	var prompt, cached, expected, off, logs float64
	known, timed := 0, 0.0
	for i := range turns {
		u := &turns[i]
		switch {
		case u.at < after && u.err == nil:
			continue
		case u.err != nil:
			f.failed++
			if len(f.examples) < 3 {
				f.examples = append(f.examples, u.err)
			}
			continue
		}
		f.turns++
		ttft = append(ttft, u.TTFT.Seconds())
		f.mean += u.TTFT.Seconds()
		prompt, cached = prompt+float64(u.Prompt), cached+float64(u.Cached)
		w := u.forecast
		if w == nil { // nothing at all was expected
			w = &console.Forecast{}
		} else {
			known++
		}
		expected += float64(w.CachedTokens)
		off += math.Abs(float64(w.CachedTokens - u.Cached))
		if seconds := w.WaitSeconds + w.PrefillSeconds; seconds > 0 {
			logs += math.Abs(math.Log(u.TTFT.Seconds() / seconds))
			timed++
		}
	}
	n := float64(f.turns)
	f.mean, f.prompt, f.cached, f.forecast, f.off, f.forecastSeconds = f.mean/n, prompt/n, cached/prompt, expected/prompt, off/prompt, logs/timed
	if known == 0 {
		f.forecast, f.off, f.forecastSeconds = math.NaN(), math.NaN(), math.NaN()
	}
	slices.Sort(ttft)
	f.p50, f.p99 = quantile(ttft, 0.5), quantile(ttft, 0.99)
	return f
}

// quantile is the least value that at least this share of the values are not above (nearest rank); NaN if there are none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

func (f figures) String() string {
	text := fmt.Sprintf("%d turns of %.0f tokens, %d failed: TTFT %.3f s mean, %.3f s median, %.3f s p99; cached %.3f", f.turns, f.prompt, f.failed, f.mean, f.p50, f.p99, f.cached)
	if !math.IsNaN(f.forecast) {
		text += fmt.Sprintf(", %.3f were thought to be, off by %.3f of a prompt in the mean; forecasts of seconds off by a factor of %.2f", f.forecast, f.off, math.Exp(f.forecastSeconds))
	}
	if f.failed > 0 {
		text += fmt.Sprintf("; among the errors: %v", errors.Join(f.examples...))
	}
	return text
}

func answered(seconds float64, prompt, cached int) realengine.Answer {
	return realengine.Answer{TTFT: time.Duration(seconds * 1e9), Prompt: prompt, Cached: cached}
}

func TestSummarize(t *testing.T) {
	u := func(at, ttft time.Duration, prompt, cached, forecast int) turn {
		return turn{at: at, Answer: realengine.Answer{TTFT: ttft, Prompt: prompt, Cached: cached},
			forecast: &console.Forecast{CachedTokens: forecast, WaitSeconds: 0.5, PrefillSeconds: 0.5}}
	}
	f := summarize([]turn{
		u(0, time.Hour, 1000, 0, 1000), // before it counts
		u(2*time.Second, 1*time.Second, 100, 40, 50),
		u(3*time.Second, 3*time.Second, 300, 160, 150),
		{at: 4 * time.Second, err: errors.New("no")},
	}, time.Second)
	want := figures{turns: 2, failed: 1, mean: 2, p50: 1, p99: 3, prompt: 200, cached: 0.5, forecast: 0.5, off: 0.05, forecastSeconds: math.Log(3) / 2}
	if f.examples = nil; f.String() != want.String() {
		t.Errorf("got  %v\nwant %v", f, want)
	}
}
