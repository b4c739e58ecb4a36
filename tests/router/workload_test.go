//go:build !race

package router

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// shape says what conversations are like. Lengths of prompts are in words.
type shape struct {
	systems          int // system prompts, taken by Zipf's law
	system, question span
	turns            span
	answer           span // tokens
	think            time.Duration
}

// span is drawn such that each doubling is as likely as every other.
type span struct{ min, max int }

func (s span) draw(rng *rand.Rand) int {
	return int(float64(s.min)*math.Pow(float64(s.max+1)/float64(s.min), rng.Float64()) + 1e-9)
}

// zipf is the exponent by which system prompts are taken.
const zipf = 1.1

// talk is one conversation as it is planned.
type talk struct {
	session   string
	at        time.Duration // it begins
	system    string
	questions []string
	answers   []int           // tokens
	pauses    []time.Duration // after each answer
}

// words that the real engine's vocabulary has, so that one is a token there.
var words = strings.Fields(`about after again along answer around become before begin between book bridge bring build call carry
	change city clear close cloud cold could country course deep different door down draw drive early earth east enough even every`)

func say(rng *rand.Rand, n int) string {
	text := make([]string, n)
	for i := range text {
		text[i] = words[rng.IntN(len(words))]
	}
	return strings.Join(text, " ")
}

// talks draws those that begin within a time, so many in a second.
func (s shape) talks(seed uint64, rate float64, within time.Duration) []talk {
	rng, lengths := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(0, 2)) // a load that depends on few lengths is to be the same for all seeds
	systems := make([]string, s.systems)
	for i := range systems {
		systems[i] = say(rng, s.system.draw(lengths))
	}
	of := rand.NewZipf(rng, zipf, 1, uint64(s.systems-1))
	var all []talk
	for at := rng.ExpFloat64() / rate; at < within.Seconds(); at += rng.ExpFloat64() / rate {
		k := talk{session: fmt.Sprintf("talk-%d-%d", seed, len(all)), at: time.Duration(at * 1e9), system: systems[of.Uint64()]}
		for range s.turns.draw(rng) {
			k.questions = append(k.questions, say(rng, s.question.draw(rng)))
			k.answers = append(k.answers, s.answer.draw(rng))
			k.pauses = append(k.pauses, time.Duration(rng.ExpFloat64()*float64(s.think)))
		}
		all = append(all, k)
	}
	return all
}

// speed is what an engine takes for prompts when it is idle and has cached nothing.
type speed struct {
	tokensPerWord   float64
	fixed, perToken float64 // seconds
}

// work is the time that an engine takes for all prompts of a talk if it has cached nothing.
func (v speed) work(k *talk) (seconds float64) {
	tokens := v.tokensPerWord * float64(len(strings.Fields(k.system)))
	for i, question := range k.questions {
		tokens += v.tokensPerWord * float64(len(strings.Fields(question)))
		seconds += v.fixed + v.perToken*tokens
		tokens += float64(k.answers[i])
	}
	return seconds
}

// rate is how many talks a second keep so many engines busy for this part of the time, with their prompts alone and if nothing is cached.
func (s shape) rate(v speed, engines int, load float64) float64 {
	const sample = 400
	all := s.talks(0, 1, sample*time.Second)
	sum := 0.0
	for i := range all {
		sum += v.work(&all[i])
	}
	return load * float64(engines) * float64(len(all)) / sum
}

func TestTalks(t *testing.T) {
	s := realShape
	v := speed{tokensPerWord: 1.1, fixed: 0.01, perToken: 1e-4}
	rate := s.rate(v, 2, 0.5)
	const seconds = 2000
	a, b := s.talks(3, rate, seconds*time.Second), s.talks(3, rate, seconds*time.Second)
	same := func(a, b talk) bool {
		return a.at == b.at && a.system == b.system && slices.Equal(a.questions, b.questions)
	}
	if !slices.EqualFunc(a, b, same) {
		t.Error("a seed gives different talks")
	}
	if slices.EqualFunc(a, s.talks(4, rate, seconds*time.Second), same) {
		t.Error("two seeds give the same talks")
	}
	work, systems := 0.0, map[string]int{}
	for i := range a {
		work += v.work(&a[i])
		systems[a[i].system]++
	}
	if load := work / seconds / 2; math.Abs(load-0.5) > 0.05 {
		t.Errorf("the load is %.3f, want 0.5", load)
	}
	most := 0
	for _, n := range systems {
		most = max(most, n)
	}
	if len(systems) != s.systems || most < 2*len(a)/s.systems {
		t.Errorf("%d system prompts, the most frequent one in %d of %d talks", len(systems), most, len(a))
	}
}
