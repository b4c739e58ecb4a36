package strategy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/route"
)

func score(tb testing.TB, text string) route.Strategy {
	tb.Helper()
	s, err := with(tb, "expression", expressionOptions{text})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// telling is a round of one candidate of which every term has another value.
func telling() *route.Round {
	c := route.Candidate{
		ID: "a", Weight: 2, InFlight: 3, Tokens: 500, Work: 700, TTFT: 0.25, P95: 0.75, Samples: 9, Penalty: 1.5, Healthy: 90 * time.Second,
		Forecast: route.Forecast{Wait: 4, Prefill: 1, Token: 0.01, Dollars: 0.002, Cached: 600, Answers: 20, Own: 0.25, Fill: 0.75},
	}
	r := route.NewRound(start, &route.Facts{}, 0, []route.Candidate{c}, 0)
	r.Prompt, r.Output, r.Answer, r.Outlook = 1000, 900, 200, route.Outlook{Rate: 0.5, Prefill: 1.6, Error: 0.3}
	return r
}

// TestScores holds formulas and terms to exact values.
func TestScores(t *testing.T) {
	f := func(text string, want float64) {
		t.Helper()
		r := telling()
		score(t, text).Pick(r)
		noted := r.Candidates[0].Noted()
		if len(noted) != 1 || noted[0].Name != "score" || math.Abs(noted[0].Value-want) > 1e-9 {
			t.Errorf("%s: noted %v, want a score of %v", text, noted, want)
		}
	}
	f("1 + 2 * 3 - -4 / 2", 9)
	f("(1 + 2) * 3", 9)
	f("2 ^ 3 ** 2", 512)
	f("+1e3 + 0x10 + .5", 1016.5)
	f("min(3, 1, 2) + max(1, 2) + abs(-4)", 7)
	f("log(exp(2)) + sqrt(9)", 5)
	f("1 < 2 ? 3 : 4", 3)
	f("if prompt > 2000 {1} else {2}", 2)
	f("streamed ? 1 : 2", 2)
	f("not streamed and (1 > 2 or 2 >= 2) ? 1 : 2", 1)
	f("!(1 == 1 && 1 <= 0) ? 5 : 6", 5)
	f("1 != 1 || 2 != 3 ? 7 : 8", 7)
	f("1/0 > 5 ? 1 : 2", 1) // what is not defined may be compared

	f("wait", 4)
	f("prefill", 1)
	f("first_token", 5)
	f("itl", 0.01)
	f("last_token", 7)
	f("externality", othersCount*2.5*4.5)
	f("pressure", 0.05*20+0.2*0.25*200*0.01*3)
	f("price", 0.002)
	f("cached", 600)
	f("uncached", 400)
	f("answers", 20)
	f("cache_fill", 0.75)
	f("prompt", 1000)
	f("output", 200)
	f("in_flight", 3)
	f("tokens", 500)
	f("work", 700)
	f("weight", 2)
	f("ttft", 0.25)
	f("ttft_p95", 0.75)
	f("samples", 9)
	f("failures", 1.5)
	f("healthy", 90)
	f("rate", 0.5)
	f("mean_prefill", 1.6)
	f("error", 0.3)
}

// TestScoresThatAreRefused, when the configuration is read, with the place and what there is.
func TestScoresThatAreRefused(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		s, err := with(t, "expression", expressionOptions{text})
		if s != nil || err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "strategy expression: score") {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
	f("", "unexpected token EOF")
	f("wait +", "character 6: unexpected token EOF")
	f("wait + wiat", `score: character 8: "wiat" is no term; there are wait, prefill,`)
	f("wait + wiat", "error, and the condition streamed")
	f("wait + 'x'", `character 8: "x" is no number`)
	f("true", "true is no number")
	f("wait % 2", `"%" gives no number; + - * / and ^ do`)
	f("wait < 2", `"<" gives no number`)
	f("1 .. 2", `".." gives no number`)
	f("not wait", `"not" makes a condition`)
	f("-streamed", "streamed is a condition, not a number")
	f("wait ? 1 : 2", "wait is no condition, such as prompt > 1000")
	f("streamed ? 1 : nil", "nil is no number")
	f("len(wait)", `"len" is no function; there are min, max,`)
	f("sin(wait)", `"sin" is no function`)
	f("sqrt(1, 2)", "sqrt takes one number, not 2")
	f("max(1)", "max takes two numbers or more, not 1")
	f("[1, 2]", "is no number")
	f("wait.x", "is no number")
	f("map([1], # + 1)", `"map" is no function`)
	f("let x = 1; x", "is no number")
	f("99999999999999999999", "invalid integer literal")
	f(strings.Repeat("(", 1001), "has 1001 characters; the most is 1000")
}

// TestDefaultScore is predicted_wait's for streamed answers, which draws among those that are nearly equal.
func TestDefaultScore(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	mine, theirs := build(t, "expression"), build(t, "predicted_wait")
	for seed := range uint64(500) {
		field := make([]route.Candidate, 5)
		for i := range field {
			field[i] = route.Candidate{ID: fmt.Sprint(i), Weight: 1 + float64(i%2), Penalty: float64(rng.IntN(2)), Forecast: route.Forecast{
				Wait: 3 * rng.Float64(), Prefill: rng.Float64(), Answers: rng.IntN(30), Fill: rng.Float64(),
			}}
		}
		pick := func(s route.Strategy) (int, float64) {
			r := route.NewRound(start, &route.Facts{Seed: seed, Stream: true}, 0, append([]route.Candidate(nil), field...), 0)
			r.Outlook = route.Outlook{Rate: 0.4, Prefill: 0.5}
			i := s.Pick(r)
			score, _ := r.Candidates[i].Score()
			return i, score
		}
		i, a := pick(mine)
		j, b := pick(theirs)
		if b < a-1e-9 || b-a > leastApart+speedError*(1+externality(&route.Round{Outlook: route.Outlook{Rate: 0.4, Prefill: 0.5}}, &route.Candidate{Forecast: route.Forecast{Wait: 3, Prefill: 1}})) || i == j && math.Abs(a-b) > 1e-9 {
			t.Fatalf("round %d: it chose %d for %v, predicted_wait %d for %v", seed, i, a, j, b)
		}
	}
}

// TestUndefinedScoresComeLast, and are seen; where all are, the lot decides.
func TestUndefinedScoresComeLast(t *testing.T) {
	f := func(text string, in ...int) (chosen map[int]int) {
		chosen = map[int]int{}
		for seed := range uint64(300) {
			var field []route.Candidate
			for i, n := range in {
				field = append(field, route.Candidate{ID: fmt.Sprint(i), Weight: 1, InFlight: n})
			}
			r := route.NewRound(start, &route.Facts{Seed: seed}, 0, field, 0)
			chosen[score(t, text).Pick(r)]++
			for i := range field {
				if term := r.Candidates[i].Noted()[0]; (in[i] == 0) != (term.Name == "undefined") {
					t.Fatalf("%s: candidate %d with %d in flight has term %+v", text, i, in[i], term)
				}
			}
		}
		return chosen
	}
	for _, text := range []string{"log(in_flight)", "-1/in_flight", "1/in_flight", "0/in_flight", "sqrt(in_flight - 1)"} {
		if got := f(text, 0, 7, 0); got[1] != 300 {
			t.Errorf("%s: chosen %v, want the one that is defined", text, got)
		}
	}
	if got := f("0/in_flight", 0, 0, 0); len(got) != 3 {
		t.Errorf("with none defined %v are chosen", got)
	}
}

// TestForecastsOnDemand: the Router forecasts if the score names what is forecast, and only then.
func TestForecastsOnDemand(t *testing.T) {
	for i := range scoreTerms {
		s := &scoreTerms[i]
		built := score(t, "in_flight + "+s.name)
		if got := built.(route.Foresighted).Foresees(); got != s.forecast {
			t.Errorf("%s: foresees %v", s.name, got)
		}
		r := telling()
		with := s.value(r, &r.Candidates[0])
		r.Candidates[0].Forecast = route.Forecast{}
		if without := s.value(r, &r.Candidates[0]); (with != without) != s.forecast {
			t.Errorf("%s is %v with a forecast, %v without, and says that it needs one: %v", s.name, with, without, s.forecast)
		}
	}
}

// TestScoresAllocateNothing: they run under the Router's lock.
func TestScoresAllocateNothing(t *testing.T) {
	s := score(t, "(streamed ? first_token : last_token) + max(externality, pressure, price / 0.001) ^ 1.1 + log(1 + in_flight) / weight")
	field := make([]route.Candidate, 64)
	for i := range field {
		field[i] = telling().Candidates[0]
	}
	r := telling()
	r.Candidates = field
	if n := testing.AllocsPerRun(100, func() { s.Pick(r) }); n != 0 {
		t.Errorf("%v allocations to choose among 64", n)
	}
}

// TestScoreTermsAreDocumented: each has its line on the page, as it is here.
func TestScoreTermsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/strategies.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "`"+defaultScore+"`") {
		t.Errorf("docs/strategies.md lacks the default score, %s", defaultScore)
	}
	for i := range scoreTerms {
		s := &scoreTerms[i]
		if line := fmt.Sprintf("| `%s` | %s | %s |\n", s.name, s.unit, s.meaning); !strings.Contains(string(page), line) {
			t.Errorf("docs/strategies.md lacks the line\n%s", line)
		}
	}
}

// FuzzScore: whatever is written, it is refused with a word, or chooses somebody.
func FuzzScore(f *testing.F) {
	for _, text := range []string{
		defaultScore, "wait", "streamed ? wait : -prefill", "min(1, max(in_flight, 2)) ^ 0.5", "if wait > 1 {2} else {3}", "log(abs(exp(sqrt(ttft))))",
		"not (a < b)", "1..2", "[1][0]", "wait?.x", "map(1, #)", "let x = 1; x", "\"\\u{1}\"", "((((((", "0x", "1e999", "a ?? b | c", "#", "// x",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := with(t, "expression", expressionOptions{text})
		if err != nil {
			if !strings.Contains(err.Error(), "score") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		r := telling()
		if i := s.Pick(r); i != 0 {
			t.Fatalf("%q chose %d of 1", text, i)
		}
		if score, ok := r.Candidates[0].Score(); !ok || math.IsNaN(score) || math.IsInf(score, 0) {
			t.Fatalf("%q gave %v", text, r.Candidates[0].Noted())
		}
	})
}
