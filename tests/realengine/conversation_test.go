//go:build !race

package realengine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/sim/fit"
	"evenkeel/tests/harness"
)

var vocabulary = strings.Fields(`about after again along answer around become before begin between book bridge bring build call carry
	change city clear close cloud cold could country course deep different door down draw drive early earth east enough evening every`)

// say returns so many words.
func say(rng *rand.Rand, n int) string {
	words := make([]string, n)
	for i := range words {
		words[i] = vocabulary[rng.IntN(len(vocabulary))]
	}
	return strings.Join(words, " ")
}

// calibration asks each server questions of all lengths, some with a beginning that it knows, first one by one and then at random
// times, and returns what it saw.
func calibration(t *testing.T, servers []*Server) []fit.Observation {
	t.Helper()
	start := time.Now()
	answers, err := interviews(t.Context(), servers, 15, 25)
	if err != nil {
		t.Fatal(err)
	}
	var seen []fit.Observation
	for i, s := range servers {
		for _, a := range answers[i] {
			seen = append(seen, fit.Observation{
				Deployment: s.URL, At: a.Sent.Sub(start), PromptTokens: a.Prompt, CachedTokens: a.Cached, OutputTokens: a.Output, TTFT: a.TTFT, Total: a.Total,
			})
		}
	}
	return seen
}

// interviews asks all servers at the same time, each so many questions of either kind.
func interviews(ctx context.Context, servers []*Server, alone, crowded int) ([][]Answer, error) {
	answers, errs := make([][]Answer, len(servers)), make([]error, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() {
			answers[i], errs[i] = interview(ctx, s.URL, rand.New(rand.NewPCG(3, uint64(i))), alone, crowded)
		})
	}
	all.Wait()
	return answers, errors.Join(errs...)
}

func interview(ctx context.Context, url string, rng *rand.Rand, alone, crowded int) ([]Answer, error) {
	var asked [][]Message
	question := func() ([]Message, int) {
		m := []Message{{"user", say(rng, 20+rng.IntN(300))}}
		if n := len(asked); n > 0 && rng.IntN(3) == 0 {
			m = append(slices.Clone(asked[max(0, n-1-rng.IntN(2))]), Message{"assistant", say(rng, 5)}, Message{"user", say(rng, 10+rng.IntN(120))})
		}
		if len(m) > 7 {
			m = m[:1]
		}
		asked = append(asked, m)
		return m, 10 + rng.IntN(50)
	}
	answers := make([]Answer, alone+crowded)
	errs := make([]error, alone+crowded)
	ask := func(i int, m []Message, tokens int) {
		answers[i], errs[i] = Ask(ctx, Question{URL: url, Model: ModelName, Messages: m, Tokens: tokens, Seed: i})
	}
	for i := range alone {
		m, tokens := question()
		ask(i, m, tokens)
		harness.WaitUntil(ctx, time.Now().Add(time.Since(answers[i].Sent)/4)) // a model that is a little slower has none waiting either
	}
	var all sync.WaitGroup
	at := time.Now()
	for i := range crowded {
		at = at.Add(time.Duration(rng.ExpFloat64() * float64(400*time.Millisecond)))
		m, tokens := question()
		if !harness.WaitUntil(ctx, at) {
			break
		}
		all.Go(func() { ask(alone+i, m, tokens) })
	}
	all.Wait()
	return answers, errors.Join(errs...)
}

// talk is one conversation as it is planned: what is asked, and when at the earliest.
type talk struct {
	model     string
	questions []string
	at        []time.Duration
	tokens    []int
}

// conversations draws talks for some fifteen seconds. Every other one asks for the other model.
func conversations(seed uint64) []talk {
	rng := rand.New(rand.NewPCG(seed, 1))
	var talks []talk
	for at := 0.0; at < 10; at += 1.3 * rng.ExpFloat64() {
		k := talk{model: []string{"even", "odd"}[len(talks)%2]}
		now := at
		for range 4 + rng.IntN(2) {
			k.questions = append(k.questions, say(rng, 50+rng.IntN(80)))
			k.at = append(k.at, time.Duration(now*1e9))
			k.tokens = append(k.tokens, 10+rng.IntN(30))
			now += 0.7 + rng.ExpFloat64()
		}
		talks = append(talks, k)
	}
	return talks
}

// turn is one question as it was asked, and its answer.
type turn struct {
	model    string
	messages []Message
	at       time.Duration // since the start of all
	late     time.Duration // that is later than planned
	Answer
}

// converse has all conversations, and returns their turns in order of time.
func converse(t *testing.T, url string, talks []talk) []turn {
	t.Helper()
	start := time.Now()
	turns := make([][]turn, len(talks))
	errs := make([]error, len(talks))
	var all sync.WaitGroup
	for i, k := range talks {
		all.Go(func() {
			var messages []Message
			for n, question := range k.questions {
				messages = append(messages, Message{"user", question})
				if !harness.WaitUntil(t.Context(), start.Add(k.at[n])) {
					errs[i] = t.Context().Err()
					return
				}
				a, err := Ask(t.Context(), Question{URL: url, Model: k.model, Messages: messages, Tokens: k.tokens[n], Seed: 100*i + n})
				if err != nil {
					errs[i] = err
					return
				}
				at := a.Sent.Sub(start)
				turns[i] = append(turns[i], turn{k.model, slices.Clone(messages), at, at - k.at[n], a})
				messages = append(messages, Message{"assistant", a.Text})
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	flat := slices.Concat(turns...)
	slices.SortFunc(flat, func(a, b turn) int { return int(a.at - b.at) })
	return flat
}
