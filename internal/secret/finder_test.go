package secret

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
)

const signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./+=~!$&*:;<>?@^|\\%\"' "

func finds(key, text string) bool {
	f := NewFinder(New(key))
	return f.In([]byte(text))
}

func TestFinder(t *testing.T) {
	const key = "sk-Up/KEY+<111>"
	f := func(key, text string, want bool) {
		t.Helper()
		if got := finds(key, text); got != want {
			t.Errorf("%q in %q: %v, want %v", key, text, got, want)
		}
	}
	f(key, "bad key sk-Up/KEY+<111>!", true)
	f(key, `{"error":"bad key sk-Up\/KEY+<111>"}`, true)
	f(key, `{"error":"bad key sk-Up/KEY+\u003c111\u003E"}`, true)
	f(key, `{"error":"bad key sk-\u0055p/KEY+<111>"}`, true)
	f(key, `{"error":"{\"message\":\"sk-Up\\/KEY+\\u003c111>\"}"}`, true)
	f(key, "/v1?key=sk-Up%2FKEY%2b%3C111%3e", true)
	f(key, "/v1?key=%73k-Up/KEY+<111%3E", true)
	f(key, "next=%2Fv1%3Fkey%3Dsk-Up%252FKEY%252B%253C111%253E", true)
	f(key, "Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+key)), true)
	f(key, "Basic "+base64.URLEncoding.EncodeToString([]byte(key+":")), true)
	f(key, "sk-Up/KEY+<112>", false)
	f(key, `sk-Up\u002fKEY+<11`, false)
	f(key, "sk-Up/KEY+<111%3", false)
	f(key, "", false)
	f("", "anything", false)
	f("short", "a short one", true)
	f("short", `a sh\u006frt one`, false)
	f("short", base64.StdEncoding.EncodeToString([]byte("short")), false)
	f(`back\slash\\ed`, `{"m":"back\\slash\\\\ed"}`, true)
	f("hundred%25%41ok", `hundred%25%41ok`, true)
	f("hundred%25%41ok", url.QueryEscape(`hundred%25%41ok`), true)
	f("hundred%25%41o/k", `hundred%25%41o\/k`, true)
	f("schlüssel-lang", `schl\u00FCssel-lang schl`, true)
	f("schlüssel-lang", "schl%C3%bcssel-lang", true)
}

// spell writes a key as some program might, and names how.
func spell(r *rand.Rand, key string) (text, how string) {
	switch way := r.IntN(6); way {
	case 0:
		quoted, _ := json.Marshal("key " + key)
		again, _ := json.Marshal(string(quoted))
		return string(again), "JSON in JSON"
	case 1:
		return url.QueryEscape(strings.ReplaceAll(key, " ", "%20")), "a query"
	case 2, 3:
		alphabet, name := base64.StdEncoding, "base64"
		if way == 3 {
			alphabet, name = base64.URLEncoding, "base64 for URLs"
		}
		return alphabet.EncodeToString([]byte(words(r, r.IntN(7)) + key + words(r, r.IntN(7)))), name
	case 4:
		var b strings.Builder
		for _, c := range []byte(key) {
			switch r.IntN(4) {
			case 0:
				fmt.Fprintf(&b, "%%%02x", c)
			case 1:
				fmt.Fprintf(&b, "%%%02X", c)
			default:
				if c == '%' {
					b.WriteString("%25")
				} else {
					b.WriteByte(c)
				}
			}
		}
		return b.String(), "some percent"
	}
	var b strings.Builder
	for _, c := range []byte(key) {
		switch pick := r.IntN(4); {
		case pick == 0:
			fmt.Fprintf(&b, `\u%04x`, c)
		case pick == 1:
			fmt.Fprintf(&b, `\u%04X`, c)
		case c == '/' && pick == 2, c == '\\', c == '"':
			b.WriteByte('\\')
			fallthrough
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), "some JSON escapes"
}

func words(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = signs[r.IntN(len(signs))]
	}
	return string(b)
}

// TestEverySpellingIsFound, and nothing where there is none.
func TestEverySpellingIsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		key := "k" + words(r, shortestSpelled+r.IntN(60)) + "y"
		if strings.Count(key, `\`) > 2 {
			continue
		}
		text, how := spell(r, key)
		around := words(r, r.IntN(40)) + " "
		if !finds(key, around+text+" "+words(r, r.IntN(40))) {
			t.Fatalf("%q is not found as %s: %q", key, how, around+text)
		}
		other, _ := spell(r, "k"+words(r, len(key)-2)+"y")
		if finds(key, other) {
			t.Fatalf("%q is found in %q", key, other)
		}
	}
}

// FuzzFinder: any key that JSON or a URL can carry is found there; hostile text ends.
func FuzzFinder(f *testing.F) {
	f.Add("sk-abc/def+ghi", `\u0073k-abc\/def`)
	f.Add(`\\\\\\\\\\`, `\\\\\\\\\\\\\u005c\u005c`)
	f.Add("%25%25%25%25", "%2525252525252525")
	f.Add("u0075u0075u0075", `\u0075u0075u0075`)
	f.Fuzz(func(t *testing.T, key, text string) {
		finds(key, text)
		if key == "" || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' || c == '\\' }) || len(key) < shortestSpelled {
			return
		}
		quoted, _ := json.Marshal(key)
		for _, spelling := range []string{key, string(quoted), url.PathEscape(key), base64.StdEncoding.EncodeToString([]byte(text + key))} {
			if !finds(key, text+" "+spelling) {
				t.Errorf("%q is not found in %q", key, spelling)
			}
		}
	})
}

// BenchmarkHostileText is the longest there is, and the worst to look through.
func BenchmarkHostileText(b *testing.B) {
	for _, unit := range []string{`\`, `\u005c`, "%25", "k", "a"} {
		b.Run(unit, func(b *testing.B) {
			f := NewFinder(New("kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkx"))
			text := []byte(strings.Repeat(unit, (256<<10)/len(unit)))
			for b.Loop() {
				f.In(text)
			}
		})
	}
}
