package proxy

import (
	"crypto/sha256"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"evenkeel/internal/llm"
)

// keyHeaders carry a client's key. Every rule about keys holds for all of them.
var keyHeaders = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// keyParameters are query parameters, in lower case, in which a key would end up in logs.
var keyParameters = []string{"key", "api_key", "api-key", "apikey", "access_token", "subscription-key"}

// admit checks, on the head alone, whether a request may be served, and returns the name of its key.
func (g *Generation) admit(r *http.Request, api llm.API) (tenant string, failure *llm.Error) {
	if bad := badTarget(r); bad != "" {
		return "", &llm.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "evenkeel_bad_path", Message: bad}
	}
	key, failure := clientKey(r)
	if failure != nil {
		return "", failure
	}
	if len(g.Keys) > 0 {
		// The table is keyed by hash, so the time of the look-up says nothing about a key's letters.
		name, ok := g.Keys[sha256.Sum256([]byte(key))]
		if key == "" || !ok {
			return "", &llm.Error{Status: http.StatusUnauthorized, Code: "evenkeel_invalid_api_key",
				Message: "A valid API key is needed: send it as Authorization: Bearer KEY or as x-api-key."}
		}
		tenant = name
		if uri := r.URL.RequestURI(); strings.Contains(uri, key) || strings.Contains(uri, url.QueryEscape(key)) {
			return "", &llm.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "evenkeel_key_in_query",
				Message: "The key stands in the URL too, which goes upstream and ends up in logs. Send it in one header only."}
		}
	}
	if api.Name == "other" && !strings.HasPrefix(r.URL.Path, "/v1/") {
		return "", &llm.Error{Status: http.StatusNotFound, Code: "evenkeel_unknown_path",
			Message: "No such path. The API is under /v1/, for example POST /v1/chat/completions."}
	}
	if r.Method == http.MethodConnect || r.Header.Get("Upgrade") != "" && strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade") {
		return "", &llm.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "evenkeel_no_upgrade",
			Message: "Upgrades of the connection are not supported."}
	}
	return tenant, nil
}

// clientKey finds the client's key, whichever header carries it. Two different keys are refused: which one
// counts would depend on who reads it.
func clientKey(r *http.Request) (string, *llm.Error) {
	if keyInQuery(r.URL.RawQuery) {
		return "", &llm.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "evenkeel_key_in_query",
			Message: "A key in the query string ends up in logs. Send it as Authorization: Bearer KEY or as x-api-key."}
	}
	found := ""
	for _, name := range keyHeaders {
		for _, value := range r.Header[name] {
			key := strings.TrimSpace(value)
			if name == "Authorization" {
				scheme, rest, ok := strings.Cut(key, " ")
				if !ok || !strings.EqualFold(scheme, "Bearer") {
					continue
				}
				key = strings.TrimSpace(rest)
			}
			if key == "" || key == found {
				continue
			}
			if found != "" {
				return "", &llm.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "evenkeel_two_keys",
					Message: "The request carries two different keys. Send one."}
			}
			found = key
		}
	}
	return found, nil
}

// keyInQuery reports whether a query has a parameter for a key, read as leniently as any server might.
func keyInQuery(query string) bool {
	for pair := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		name, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if slices.Contains(keyParameters, strings.ToLower(name)) {
			return true
		}
	}
	return false
}

// badTarget says what is wrong with a request's path, "" if nothing is. A path that upstream could read
// otherwise than we do is refused.
func badTarget(r *http.Request) string {
	p := r.URL.Path
	if !strings.HasPrefix(p, "/") {
		return "The path must begin with a slash."
	}
	clean := path.Clean(p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	// A model's name in a path may hold encoded slashes and anything else.
	if clean != p && !strings.HasPrefix(p, "/v1/models/") || strings.Contains(p, "/../") || strings.HasSuffix(p, "/..") {
		return "The path holds empty, '.' or '..' segments."
	}
	return ""
}
