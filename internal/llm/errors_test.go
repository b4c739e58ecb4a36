package llm

import (
	"encoding/json"
	"testing"
)

func TestErrorBody(t *testing.T) {
	f := func(e Error, d Dialect, want string) {
		t.Helper()
		got := string(e.Body(d))
		if got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
		if !json.Valid([]byte(got)) {
			t.Errorf("not JSON: %s", got)
		}
	}
	f(Error{Status: 404, Type: "invalid_request_error", Code: "evenkeel_unknown_model", Param: "model", Message: `no "x"`}, OpenAI,
		`{"error":{"type":"invalid_request_error","message":"no \"x\"","param":"model","code":"evenkeel_unknown_model"}}`)
	f(Error{Status: 404, Code: "evenkeel_unknown_model", Param: "model", Message: "m"}, Anthropic,
		`{"type":"error","error":{"type":"not_found_error","message":"m","code":"evenkeel_unknown_model"}}`)
	f(Error{Status: 502, Message: "bad \xff\x00\x1f bytes\n"}, OpenAI,
		`{"error":{"type":"server_error","message":"bad �\u0000\u001f bytes\n","param":null,"code":null}}`)
}

func TestErrorTypes(t *testing.T) {
	f := func(e Error, openai, anthropic string) {
		t.Helper()
		if o, a := e.errorType(OpenAI), e.errorType(Anthropic); o != openai || a != anthropic {
			t.Errorf("%d %q: %s and %s, want %s and %s", e.Status, e.Type, o, a, openai, anthropic)
		}
	}
	f(Error{Status: 400}, "invalid_request_error", "invalid_request_error")
	f(Error{Status: 401}, "authentication_error", "authentication_error")
	f(Error{Status: 403}, "permission_error", "permission_error")
	f(Error{Status: 404}, "invalid_request_error", "not_found_error")
	f(Error{Status: 413}, "invalid_request_error", "request_too_large")
	f(Error{Status: 429}, "rate_limit_error", "rate_limit_error")
	f(Error{Status: 502}, "server_error", "api_error")
	f(Error{Status: 503}, "overloaded_error", "overloaded_error")
	f(Error{Status: 504}, "timeout_error", "timeout_error")
	f(Error{Status: 400, Type: "api_error"}, "server_error", "api_error")
	f(Error{Status: 400, Type: "special"}, "special", "special")
}

// The forms that official SDKs raise on.
func TestErrorEvent(t *testing.T) {
	e := Error{Status: 502, Code: "evenkeel_upstream_cut", Message: "m", Sequence: 7}
	f := func(api API, open bool, want string) {
		t.Helper()
		if got := string(e.Event(api, open)); got != want {
			t.Errorf("\n got %q\nwant %q", got, want)
		}
	}
	f(chatAPI, false, "data: {\"error\":{\"type\":\"server_error\",\"message\":\"m\",\"param\":null,\"code\":\"evenkeel_upstream_cut\"}}\n\n")
	f(chatAPI, true, "\n\ndata: {\"error\":{\"type\":\"server_error\",\"message\":\"m\",\"param\":null,\"code\":\"evenkeel_upstream_cut\"}}\n\n")
	f(messagesAPI, false, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"m\",\"code\":\"evenkeel_upstream_cut\"}}\n\n")
	f(responsesAPI, false, "event: error\ndata: {\"type\":\"error\",\"code\":\"evenkeel_upstream_cut\",\"message\":\"m\",\"param\":null,\"sequence_number\":7,"+
		"\"error\":{\"type\":\"server_error\",\"message\":\"m\",\"param\":null,\"code\":\"evenkeel_upstream_cut\"}}\n\n")
	e.RetryAfter = 3
	f(messagesAPI, false, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"m\",\"code\":\"evenkeel_upstream_cut\",\"retry_after\":3}}\n\n")
	f(responsesAPI, false, "event: error\ndata: {\"type\":\"error\",\"code\":\"evenkeel_upstream_cut\",\"message\":\"m\",\"param\":null,\"retry_after\":3,\"sequence_number\":7,"+
		"\"error\":{\"type\":\"server_error\",\"message\":\"m\",\"param\":null,\"code\":\"evenkeel_upstream_cut\",\"retry_after\":3}}\n\n")
	// Our own meter understands each of them.
	for _, api := range []API{chatAPI, messagesAPI, responsesAPI} {
		_, got := run(t, api, SSE, string(e.Event(api, true)))
		if got.Err == "" || got.Content || got.Done {
			t.Errorf("%s: %+v", api.Name, got)
		}
	}
}

func TestKinds(t *testing.T) {
	names := Kinds()
	if len(names) != 10 {
		t.Errorf("%d kinds: %v", len(names), names)
	}
	seen := map[string]bool{}
	for _, name := range names {
		k, ok := LookupKind(name)
		if !ok || k.Name != name || k.CredentialHeader == "" || seen[name] {
			t.Errorf("%s: %+v, %v", name, k, ok)
		}
		seen[name] = true
	}
	if k, _ := LookupKind("anthropic"); k.CredentialHeader != "X-Api-Key" || k.CredentialPrefix != "" || len(k.DefaultHeaders) != 1 {
		t.Errorf("anthropic: %+v", k)
	}
	if _, ok := LookupKind("nonsense"); ok {
		t.Error("found a kind that is none")
	}
}
