package proxy

import (
	"crypto/sha256"
	"net/http"
	"net/url"
	"strings"

	"evenkeel/internal/llm"
)

// keyHeaders carry a client's key. Every rule about keys holds for all of them.
var keyHeaders = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// longestKeyParameter is the length of the longest of keyParameters with each of its letters percent-encoded.
const longestKeyParameter = 3 * len("subscription-key")

// keyParameters are query parameters in which a key would end up in logs.
var keyParameters = []string{"key", "api_key", "api-key", "apikey", "access_token", "subscription-key"}

// admit checks, on the head alone, who sends a request that has passed the gate and whether the path is one that is
// served. It returns the name of the key.
func (g *Generation) admit(r *http.Request, api llm.API) (tenant string, failure *llm.Error) {
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
		if keyInURL(r.URL, key) {
			return "", &llm.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "evenkeel_key_in_query",
				Message: "The key stands in the URL too, which goes upstream and ends up in logs. Send it in one header only."}
		}
	}
	if api.Name == "other" && !strings.HasPrefix(r.URL.Path, "/v1/") {
		return "", &llm.Error{Status: http.StatusNotFound, Code: "evenkeel_unknown_path",
			Message: "No such path. The API is under /v1/, for example POST /v1/chat/completions."}
	}
	return tenant, nil
}

// keyInURL reports whether a URL holds a key, also percent-encoded.
func keyInURL(u *url.URL, key string) bool {
	if strings.Contains(u.Path, key) {
		return true
	}
	return u.RawQuery != "" && (strings.Contains(u.RawQuery, key) || strings.Contains(u.RawQuery, url.QueryEscape(key)))
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
	for query != "" {
		pair := query
		if end := strings.IndexAny(query, "&;"); end >= 0 {
			pair, query = query[:end], query[end+1:]
		} else {
			query = ""
		}
		name, _, _ := strings.Cut(pair, "=")
		if len(name) > longestKeyParameter {
			continue
		}
		if strings.IndexByte(name, '%') >= 0 {
			if plain, err := url.QueryUnescape(name); err == nil {
				name = plain
			}
		}
		for _, p := range keyParameters {
			if len(p) == len(name) && strings.EqualFold(p, name) {
				return true
			}
		}
	}
	return false
}
