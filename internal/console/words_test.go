package console

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
	"evenkeel/internal/strategy"
)

// constants returns the values of a package's string constants of one type.
func constants(t *testing.T, dir, typeName string) []string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if id, ok := spec.Type.(*ast.Ident); !ok || id.Name != typeName {
				return true
			}
			for _, v := range spec.Values {
				if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					value, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					values = append(values, value)
				}
			}
			return true
		})
	}
	return values
}

func docs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/explain.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryReasonIsExplained(t *testing.T) {
	text := docs(t)
	cuts := constants(t, "../route", "Cut")
	if len(cuts) < len(cutWords) {
		t.Fatalf("only %d reasons found: %q", len(cuts), cuts)
	}
	for _, cut := range cuts {
		if cut == "" {
			continue
		}
		words := cutWords[route.Cut(cut)]
		if words == "" {
			t.Errorf("cut %q has no words", cut)
		}
		if !strings.Contains(text, "`"+cut+"`") || !strings.Contains(text, words) {
			t.Errorf("docs/explain.md does not explain cut %q (%s)", cut, words)
		}
	}
	for kind, words := range refusalWords {
		if kind.String() == words || !strings.Contains(text, "`"+kind.String()+"`") || !strings.Contains(text, words) {
			t.Errorf("docs/explain.md does not explain refusal %q (%s)", kind, words)
		}
	}
	results := constants(t, "../exchange", "Result")
	if len(results) < 8 {
		t.Fatalf("only %d results found: %q", len(results), results)
	}
	for _, r := range results {
		if !strings.Contains(text, "`"+r+"`") {
			t.Errorf("docs/explain.md does not explain result %q", r)
		}
		if e := (&Explanation{Result: r, Failure: &Failure{Code: "x"}}); exchange.Result(r) != exchange.Complete && e.ending() == "" {
			t.Errorf("result %q ends without a word", r)
		}
	}
}

func TestEveryTermIsExplained(t *testing.T) {
	text := docs(t)
	for _, name := range strategy.Names() {
		s, err := strategy.New(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		field := []route.Candidate{deployment("a", 1, 1, 1, 1), deployment("b", 2, 2, 2, 2), deployment("c", 3, 3, 3, 3)}
		for _, total := range []int64{0, 6} {
			s.Pick(route.NewRound(start, &route.Facts{}, 0, field, total))
		}
		noted := 0
		for i := range field {
			for _, term := range field[i].Noted() {
				noted++
				if !strings.Contains(text, "`"+term.Name+"`") {
					t.Errorf("docs/explain.md does not explain term %q of %s", term.Name, name)
				}
			}
		}
		if noted == 0 {
			t.Errorf("%s notes no terms: its choices cannot be explained", name)
		}
	}
}

// The example in the documentation is what the program prints.
func TestDocsShowWhatIsPrinted(t *testing.T) {
	text := docs(t)
	for _, name := range []string{"failover", "queue_shed", "hedge", "kept"} {
		want, err := os.ReadFile("testdata/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, string(want)) {
			t.Errorf("docs/explain.md does not show testdata/%s.txt as it is", name)
		}
	}
}

func TestNumbers(t *testing.T) {
	f := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f(seconds(0), "0 s")
	f(seconds(0.0000004), "0.40 us")
	f(seconds(0.00018), "180 us")
	f(seconds(0.00099999), "1.00 ms")
	f(seconds(0.0123), "12.3 ms")
	f(seconds(0.09999), "100 ms")
	f(seconds(0.9996), "1.00 s")
	f(seconds(9.996), "10.0 s")
	f(seconds(59.94), "59.9 s")
	f(seconds(99.96), "100 s")
	f(seconds(4000), "4,000 s")
	f(number(0), "0")
	f(number(999), "999")
	f(number(1234567), "1,234,567")
	f(number(-1234), "-1,234")
	f(number(0.30001), "0.3")
	f(number(1234.56), "1235")
	f(number(1e300), "1e+300")
	f(count(1, "request"), "1 request")
	f(count(0, "request"), "0 requests")
	f(count(1000, "request"), "1,000 requests")
	f(clean("plain ü 漢"), "plain ü 漢")
	f(clean("a\tb\x00\x7f"), `a\tb\x00\x7f`)
}

func TestScoresOfSeveralTerms(t *testing.T) {
	sum := func(x float64) *float64 { return &x }
	d := &Decision{Chosen: "b", Strategy: "costly", Eligible: 3, Candidates: []Candidate{
		{Deployment: "a", Weight: 1, Terms: []Term{{"prefill_seconds", 1.5}, {"queue_seconds", 2}}, Score: sum(3.5)},
		{Deployment: "b", Weight: 1, Terms: []Term{{"prefill_seconds", .25}}, Score: sum(.25)},
		{Deployment: "c", Weight: 1},
	}}
	want := "" +
		"      deployment  prefill_seconds  queue_seconds  score  in flight  work tokens\n" +
		"   >  b                      0.25              -   0.25          0            0\n" +
		"      a                       1.5              2    3.5          0            0\n" +
		"      c                         -              -      -          0            0\n"
	if got := candidates(d); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := d.why(), "chosen by costly: lowest of 2 scores (2 of 3 eligible were looked at)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	d.Chosen = "a"
	if got, want := d.why(), "chosen by costly out of 3, not by score alone"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	d.Chosen = "c"
	if got, want := d.why(), "chosen by costly out of 3"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
