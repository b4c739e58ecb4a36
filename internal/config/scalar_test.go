package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	f := func(text string, want Size) {
		t.Helper()
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%q gives %d, %v, want %d", text, got, err, want)
		}
	}
	f("0", 0)
	f("1024", 1024)
	f("1024B", 1024)
	f("32MiB", 32<<20)
	f("32 mib", 32<<20)
	f("10MB", 10_000_000)
	f("1.5KiB", 1536)
	f("2GiB", 2<<30)
	f("3gb", 3_000_000_000)
	f("4KB", 4000)
	for want, texts := range map[error][]string{
		errForm:     {"", "MiB", "-1", "1.5", "1TiB", "0x10", "inf", "NaN", "1 2", "1MiBMiB"},
		errTooLarge: {"1e30", "9e18GiB", "1e400", "9223372036854775807"},
	} {
		for _, text := range texts {
			if got, err := parseSize(text); err != want {
				t.Errorf("%q gives %d, %v, want %v", text, got, err, want)
			}
		}
	}
}

func TestSizeString(t *testing.T) {
	for size, want := range map[Size]string{0: "0", 1: "1", 1024: "1KiB", 1025: "1025", 32 << 20: "32MiB", 3 << 30: "3GiB", 3 << 19: "1536KiB"} {
		if got := size.String(); got != want {
			t.Errorf("%d prints %s, want %s", int64(size), got, want)
		}
		if back, err := parseSize(want); err != nil || back != size {
			t.Errorf("%s reads as %d, want %d", want, back, int64(size))
		}
	}
}

func TestParseDuration(t *testing.T) {
	f := func(key, text string, want time.Duration) {
		t.Helper()
		if got, err := parseDuration(key, text); err != nil || got != want {
			t.Errorf("%s: %q gives %s, %v, want %s", key, text, got, err, want)
		}
	}
	f("connect", "15s", 15*time.Second)
	f("connect", "1m30s", 90*time.Second)
	f("connect", "800ms", 800*time.Millisecond)
	f("connect", "-1s", -time.Second)
	f("connect_seconds", "15", 15*time.Second)
	f("connect_seconds", "0.25", 250*time.Millisecond)
	f("connect_ms", "800", 800*time.Millisecond)
	f("connect_ms", "1e3", time.Second)
	bad := func(want error, key string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if got, err := parseDuration(key, text); err != want {
				t.Errorf("%s: %q gives %s, %v, want %v", key, text, got, err, want)
			}
		}
	}
	bad(errForm, "connect", "", "15", "1.5", "fast", "15 s", "1d", "inf", "1.2.3s", "99999999999999999999", "99999999999999999999d")
	bad(errTooLarge, "connect", "10000h", "-10000h", "99999999999999999999s", "1h99999999999999999999.5m")
	bad(errForm, "connect_seconds", "", "15s", "inf", "NaN", "0x1p4")
	bad(errTooLarge, "connect_seconds", "1e300", "99999999999", "1e400")
	bad(errForm, "connect_ms", "", "800ms", "Infinity")
	bad(errTooLarge, "connect_ms", "1e300")
}

func TestNearest(t *testing.T) {
	f := func(word string, known []string, want string) {
		t.Helper()
		if got := nearest(word, slices.Values(known)); got != want {
			t.Errorf("%q among %q gives %q, want %q", word, known, got, want)
		}
	}
	keys := []string{"url", "kind", "api_key", "limits", "weight", "models"}
	f("wieght", keys, "weight")
	f("Weight", keys, "weight")
	f("weights", keys, "weight")
	f("apikey", keys, "api_key")
	f("ulr", keys, "url")
	f("priority", keys, "")
	f("x", keys, "")
	f("", keys, "")
	f("gpu1", []string{"gpu-1", "gpu-2"}, "gpu-1")
	f(strings.Repeat("w", 100), []string{strings.Repeat("w", 101)}, "")
}

// TestDistance compares with the plain recursive definition.
func TestDistance(t *testing.T) {
	words := []string{"", "a", "b", "ab", "ba", "abc", "acb", "bac", "cab", "abcd", "badc", "aabb", "bbaa"}
	for _, a := range words {
		for _, b := range words {
			if got, want := distance(a, b), slowDistance(a, b); got != want {
				t.Errorf("%q to %q is %d, want %d", a, b, got, want)
			}
		}
	}
}

func slowDistance(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	cost := 1
	if a[len(a)-1] == b[len(b)-1] {
		cost = 0
	}
	best := min(slowDistance(a[:len(a)-1], b)+1, slowDistance(a, b[:len(b)-1])+1, slowDistance(a[:len(a)-1], b[:len(b)-1])+cost)
	if len(a) > 1 && len(b) > 1 && a[len(a)-1] == b[len(b)-2] && a[len(a)-2] == b[len(b)-1] {
		best = min(best, slowDistance(a[:len(a)-2], b[:len(b)-2])+1)
	}
	return best
}

func TestStrategyDecode(t *testing.T) {
	type options struct {
		HalfLife  time.Duration
		ColdAfter time.Duration
		Choices   int     `yaml:"d"`
		Discount  float64 `yaml:"discount"`
		Strict    bool
		Names     []string
		Fallback  Strategy
		private   int
	}
	defaults := options{HalfLife: 10 * time.Second, ColdAfter: time.Minute, Choices: 2, private: 1}
	got := defaults
	s := load1(t, `{name: x, half_life: 5s, cold_after_ms: 1500, d: 3, discount: 0.5, strict: true, names: [a, 1], fallback: {name: y, z: [1, 2.5, true, null, {a: b}]}}`)
	if err := s.Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := options{5 * time.Second, 1500 * time.Millisecond, 3, 0.5, true, []string{"a", "1"},
		Strategy{"y", map[string]any{"z": []any{1, 2.5, true, nil, map[string]any{"a": "b"}}}}, 1}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}

	got = defaults
	if err := (Strategy{Name: "x"}).Decode(&got); err != nil || fmt.Sprint(got) != fmt.Sprint(defaults) {
		t.Errorf("no options give %+v, %v", got, err)
	}
	err := Strategy{"x", map[string]any{"half_life": 3, "private": 2, "d": "many"}}.Decode(&got)
	wantErr := "d: must be a whole number such as 200, is \"many\"\n" +
		"half_life: must be a duration with its unit such as 15s or 800ms, is \"3\"\n" +
		"unknown key \"private\"; known are: half_life, cold_after, d, discount, strict, names, fallback"
	var problems Problems
	if !errors.As(err, &problems) || err.Error() != wantErr {
		t.Errorf("got\n%v\nwant\n%s", err, wantErr)
	}
	if err := s.Decode(got); err == nil || !strings.HasPrefix(err.Error(), "BUG:") {
		t.Errorf("decoding into a value gives %v", err)
	}
}

// load1 reads the value of the strategy key.
func load1(t *testing.T, text string) Strategy {
	t.Helper()
	c, _, err := Load([]File{{"s.yaml", []byte("strategy: " + text)}}, env())
	if err != nil {
		t.Fatal(err)
	}
	return c.Strategy
}

// TestUnfitNumbersInCode covers values that files cannot hold but Go code can.
func TestUnfitNumbersInCode(t *testing.T) {
	c := Default()
	c.Endpoints = []Endpoint{{Name: "a", URL: "http://a", Weight: math.NaN()}, {Name: "b", URL: "http://B/v1", Weight: math.Inf(1)}}
	c.Models = []Model{{Name: "m", Providers: []Provider{{Name: "a", Model: "m", Weight: 1, Price: Price{Input: math.NaN()}}}}}
	c.Retry.BudgetRatio = math.NaN()
	err := c.Validate(nil)
	want := `retry.budget_ratio: must be 0 to 1, is NaN
endpoints.a.weight: must be 0, or 0.000001 to 1000000000, is NaN
endpoints.b.url: is not a canonical address
endpoints.b.weight: must be 0, or 0.000001 to 1000000000, is +Inf
models.m.providers[0].price.input: must be 0 or more, is NaN`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
