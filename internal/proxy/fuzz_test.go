package proxy

import (
	"crypto/sha256"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/llm"
)

// FuzzAdmit: nobody gets in without the key, whatever the carriers hold, and a key never stands in the URL too.
func FuzzAdmit(f *testing.F) {
	f.Add("Bearer SESAME", "", "", "", "/v1/files", "")
	f.Add("bearer\tKEY", "SESAME", "", "", "/v1/files", "a=b;key=c")
	f.Add("Basic S0VZ", "SESAME", "OTHER", "", "/v1/files", "%6Bey=SESAME")
	f.Add("Bearer", " SESAME ", "", "SESAME\x00", "/v1/SESAME", "&&&=")
	f.Add("Bearer SESAME, Bearer OTHER", "", "", "", "/", "x=%zz&API_KEY")
	g := &Generation{Keys: map[[32]byte]string{sha256.Sum256([]byte("SESAME")): "name"}}
	f.Fuzz(func(t *testing.T, authorization, x, api, goog, path, query string) {
		r := &http.Request{Method: "POST", Header: http.Header{}, URL: &url.URL{Path: path, RawQuery: query}}
		for name, v := range map[string]string{"Authorization": authorization, "X-Api-Key": x, "Api-Key": api, "X-Goog-Api-Key": goog} {
			if v != "" {
				r.Header[name] = []string{v}
			}
		}
		name, failure := g.admit(r, llm.APIOf(r.Method, path))
		if failure != nil {
			if name != "" || failure.Status < 400 || failure.Status > 499 || strings.Contains(failure.Message, "SESAME") {
				t.Errorf("name %q, %+v", name, failure)
			}
			return
		}
		carried := false
		for _, v := range []string{strings.TrimSpace(x), strings.TrimSpace(api), strings.TrimSpace(goog), strings.TrimSpace(authorization)} {
			scheme, key, _ := strings.Cut(v, " ")
			carried = carried || v == "SESAME" || strings.EqualFold(scheme, "bearer") && strings.TrimSpace(key) == "SESAME"
		}
		if name != "name" || !carried {
			t.Errorf("let in as %q by %q", name, r.Header)
		}
		if strings.Contains(path, "SESAME") || strings.Contains(query, "SESAME") {
			t.Errorf("let in with the key in %q?%q", path, query)
		}
		if values, err := url.ParseQuery(query); err == nil {
			for p := range values {
				if slices.Contains(keyParameters, strings.ToLower(p)) {
					t.Errorf("let in with %q", query)
				}
			}
		}
	})
}

// FuzzClientWishes: the values of headers that say how a request is to be treated are understood or refused.
func FuzzClientWishes(f *testing.F) {
	f.Add("30s", "", "", "a, b")
	f.Add("", "600", "1e3", ",,")
	f.Add("-1s", "NaN", "+Inf", " ")
	f.Add("9999999999999h", "1e999", "0x1p-2", "a,a/b,\xff")
	f.Fuzz(func(t *testing.T, timeout, stainless, read, exclude string) {
		h := http.Header{}
		for name, v := range map[string]string{headerTimeout: timeout, "X-Stainless-Timeout": stainless, "X-Stainless-Read-Timeout": read} {
			if v != "" {
				h[name] = []string{v}
			}
		}
		d, failure := clientDeadline(h)
		switch {
		case d < 0:
			t.Errorf("a deadline of %v from %v", d, h)
		case failure != nil && (d != 0 || failure.Status != 400 || timeout == ""):
			t.Errorf("%v and %+v from %v", d, failure, h)
		case timeout != "" && failure == nil:
			if want, err := time.ParseDuration(timeout); err != nil || want != d {
				t.Errorf("%q became %v", timeout, d)
			}
		}
		names := list(exclude)
		if joined := strings.Join(names, ","); len(joined) > len(exclude) || strings.Count(exclude, ",") != max(0, len(names)-1) {
			t.Errorf("%q became %q", exclude, names)
		}
		for _, n := range names {
			if strings.TrimSpace(n) != n || strings.Contains(n, ",") {
				t.Errorf("%q became %q", exclude, names)
			}
		}
	})
}

// FuzzResponseHeader: whatever upstream answers, nothing of its connection reaches the client, and none of our headers
// is forged.
func FuzzResponseHeader(f *testing.F) {
	f.Add("Connection", "X-Up, close", "X-Up", "1")
	f.Add("X-Evenkeel-Id", "forged", "Set-Cookie", "a=b")
	f.Add("Connection", strings.Repeat("x-evenkeel-id,", 50), "X-Evenkeel-Hops", "1")
	f.Fuzz(func(t *testing.T, a, va, b, vb string) {
		in := http.Header{}
		in.Add(a, va)
		in.Add(b, vb)
		out := http.Header{headerID: {"mine"}}
		responseHeader(out, in)
		if !slices.Equal(out[headerID], []string{"mine"}) {
			t.Errorf("our id became %q", out[headerID])
		}
		for name, values := range out {
			if name == headerID {
				continue
			}
			if withheld[name] || strings.HasPrefix(name, headerPrefix) || !slices.Equal(values, in[name]) {
				t.Errorf("the client sees %s: %q", name, values)
			}
			if connectionHas(in, strings.ToLower(name)) && !neverForwarded[name] && name != "Content-Type" {
				t.Errorf("the client sees %s though Connection names it", name)
			}
		}
	})
}
