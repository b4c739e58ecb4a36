package upstream

import (
	"encoding/base64"
	"net/http"
	"testing"

	"evenkeel/internal/secret"
)

// TestLeaksInAnySpelling: a complaint that holds the endpoint's key, however it is written and wherever, is known for it.
func TestLeaksInAnySpelling(t *testing.T) {
	const key = "sk-UPKEY/111"
	e, err := New(Options{Name: "a", URL: "http://127.0.0.1:1", APIKey: secret.New(key)})
	if err != nil {
		t.Fatal(err)
	}
	f := func(header, body string, want bool) {
		t.Helper()
		if got := e.Leaks(http.Header{"X-Debug": {"fine", header}}, []byte(body)); got != want {
			t.Errorf("%q, %q: %v, want %v", header, body, got, want)
		}
	}
	f("", `{"error":{"message":"bad key sk-UPKEY/111"}}`, true)
	f("", `{"error":{"message":"bad key sk-UPKEY\/111"}}`, true)
	f("", `{"error":{"message":"bad key sk-\u0055PKEY\u002F111"}}`, true)
	f("", `{"error":{"message":"GET /v1?key=sk%2DUPKEY%2f111"}}`, true)
	for _, encoded := range []string{"Bearer " + key, "me:" + key, "user:" + key + "\r\n", key} {
		f("", base64.StdEncoding.EncodeToString([]byte(encoded)), true)
		f(base64.RawURLEncoding.EncodeToString([]byte(encoded)), "", true)
	}
	f("Bearer sk-UPKEY/111", "", true)
	f("a", `{"error":{"message":"bad key sk-UPKEY/***"}}`, false)
}

func TestNothingLeaksWithoutAKey(t *testing.T) {
	e, err := New(Options{Name: "a", URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if e.Leaks(http.Header{"A": {""}}, []byte("text")) {
		t.Error("a leak")
	}
}
