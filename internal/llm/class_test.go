package llm

import (
	"strings"
	"testing"
)

func TestClassifyStatus(t *testing.T) {
	for status, want := range map[int]Class{
		0: None, 200: None, 204: None, 304: None, 302: ClientFault, 307: ClientFault,
		400: ClientFault, 404: ClientFault, 405: ClientFault, 413: ClientFault, 422: ClientFault, 499: ClientFault, 501: ClientFault, 505: ClientFault,
		401: Auth, 403: Auth, 402: Exhausted, 408: ServerError, 409: ServerError, 424: ClientFault, 425: ServerError, 429: RateLimited, 498: Overloaded,
		500: ServerError, 502: ServerError, 504: ServerError, 520: ServerError, 521: ServerError, 524: ServerError, 530: ServerError, 503: Overloaded, 529: Overloaded,
	} {
		if got, reason := Classify(status, nil); got != want || reason != "" {
			t.Errorf("%d: %v %q, want %v", status, got, reason, want)
		}
	}
}

// Errors as engines word them, whole, with the status they come with; 200 is an event of a stream.
func TestClassifyWords(t *testing.T) {
	f := func(status int, body string, want Class, wantReason Reason) {
		t.Helper()
		err := readBody(t, body).Err()
		if err == nil {
			t.Errorf("no error in %s", body)
		}
		if got, reason := Classify(status, err); got != want || reason != wantReason {
			t.Errorf("%d %s: %v %q, want %v %q", status, body, got, reason, want, wantReason)
		}
	}
	openAI := func(kind, code, message string) string {
		return `{"error":{"message":"` + message + `","type":"` + kind + `","param":null,"code":"` + code + `"}}`
	}
	anthropic := func(kind, message string) string {
		return `{"type":"error","error":{"type":"` + kind + `","message":"` + message + `"},"request_id":"req_1"}`
	}
	vllm := func(status, kind, message string) string {
		return `{"error":{"message":"` + message + `","type":"` + kind + `","param":null,"code":` + status + `}}`
	}

	// The account is empty.
	f(429, openAI("insufficient_quota", "insufficient_quota", "You exceeded your current quota, please check your plan and billing details."), Exhausted, "")
	f(429, openAI("billing_not_active", "billing_not_active", "Your account is not active."), Exhausted, "")
	f(400, openAI("invalid_request_error", "billing_hard_limit_reached", "Billing hard limit has been reached"), Exhausted, "")
	f(403, openAI("new_api_error", "insufficient_user_quota", "x"), Exhausted, "")
	f(403, `{"error":{"code":"403","message":"Out of call volume quota for x. Quota will be replenished in 3.08:15:46."}}`, Exhausted, "")
	f(400, anthropic("invalid_request_error", "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."), Exhausted, "")
	f(400, anthropic("invalid_request_error", "You have reached your specified API usage limits. You will regain access on 2026-12-01."), Exhausted, "")
	f(402, anthropic("billing_error", "x"), Exhausted, "")
	f(402, openAI("invalid_request_error", "invalid_request_error", "Insufficient Balance"), Exhausted, "")
	f(429, `{"error":{"message":"x","type":"exceeded_current_quota_error"}}`, Exhausted, "")
	f(200, openAI("insufficient_quota", "insufficient_quota", "x"), Exhausted, "")

	// A passing limit.
	f(429, openAI("requests", "rate_limit_exceeded", "Rate limit reached for gpt-4 on requests per min (RPM)"), RateLimited, "")
	f(429, anthropic("rate_limit_error", "x"), RateLimited, "")
	f(429, `{"error":"Model is overloaded","error_type":"overloaded"}`, RateLimited, "")
	f(429, `[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED"}}]`, RateLimited, "")
	f(429, `{"error":{"code":"RateLimitReached","message":"x"}}`, RateLimited, "")
	f(500, `{"error":{"message":"x","type":"RateLimitError"}}`, RateLimited, "")
	f(200, anthropic("rate_limit_error", "x"), RateLimited, "")
	f(200, vllm("429", "x", "x"), RateLimited, "")

	// Busy.
	f(529, anthropic("overloaded_error", "Overloaded"), Overloaded, "")
	f(500, anthropic("overloaded_error", "Overloaded"), Overloaded, "")
	f(200, anthropic("overloaded_error", "Overloaded"), Overloaded, "")
	f(200, vllm("500", "overloaded_error", "x"), Overloaded, "")
	f(503, `{"error":"server busy, please try again.  maximum pending requests exceeded"}`, Overloaded, "")
	f(200, `{"object":"error","message":"x","type":"ServiceUnavailableError","code":"x"}`, Overloaded, "")

	// The model is not there.
	f(404, openAI("invalid_request_error", "model_not_found", "The model `x` does not exist or you do not have access to it."), NotServed, "")
	f(403, openAI("invalid_request_error", "model_not_found", "Project `p` does not have access to model `x`"), NotServed, "")
	f(404, `{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}`, NotServed, "")
	f(404, anthropic("not_found_error", "model: claude-x"), NotServed, "")
	f(404, vllm("404", "NotFoundError", "The model `org/x y` does not exist."), NotServed, "")
	f(404, `{"object":"error","message":"The model 'x' does not exist.","type":"NotFoundError","param":null,"code":404}`, NotServed, "")
	f(404, `{"error":"model 'x:7b' not found"}`, NotServed, "")
	f(404, `{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error","param":null,"code":null}}`, NotServed, "")
	f(400, vllm("400", "invalid_request_error", "model 'x' not found"), NotServed, "")
	f(400, `{"object":"error","message":"Invalid model: x","type":"invalid_model","param":null,"code":"1500"}`, NotServed, "")
	f(404, `[{"error":{"code":404,"message":"models/x is not found for API version v1main, or is not supported","status":"NOT_FOUND"}}]`, NotServed, "")
	f(400, vllm("400", "", "org/x is not a valid model ID"), NotServed, "")
	f(400, vllm("400", "", "/chat/completions: Invalid model name passed in model=x. Call `/v1/models`"), NotServed, "")
	f(404, `{"code":"x","error":"The model x does not exist or your team t does not have access to it."}`, NotServed, "")
	f(200, openAI("invalid_request_error", "model_not_found", "x"), NotServed, "")

	// Something else is not there, or a client's words say that the model is not.
	f(404, vllm("404", "not_found_error", "File Not Found"), ClientFault, "")
	f(404, vllm("404", "NotFoundError", "Response with id 'model x not found' not found."), ClientFault, "")
	f(404, vllm("404", "NotFoundError", "The model `x` is fine, but 'The model `x` does not exist' is no tool"), ClientFault, "")
	f(404, openAI("invalid_request_error", "", "This is not a chat model and thus not supported in the v1/chat/completions endpoint."), ClientFault, "")
	f(404, `{"error":{"code":"404","message":"Resource not found"}}`, ClientFault, "")
	f(404, anthropic("not_found_error", "Not found"), ClientFault, "")
	f(400, anthropic("invalid_request_error", "model: Field required"), ClientFault, "")
	f(400, anthropic("invalid_request_error", "messages.0: your credit balance is too low"), ClientFault, "")

	// It is being loaded.
	f(503, vllm("503", "unavailable_error", "Loading model"), Loading, "")
	f(503, `{"error":"Model org/x is currently loading","estimated_time":20.0}`, Loading, "")
	f(503, `{"error":{"message":"the model is still loading, come back later"}}`, Loading, "")
	f(500, `{"error":"llm server loading model"}`, Loading, "")
	f(200, vllm("503", "unavailable_error", "Loading model"), Loading, "")
	f(400, openAI("invalid_request_error", "", "Loading model is no tool"), ClientFault, "")

	// Credentials.
	f(401, openAI("invalid_request_error", "invalid_api_key", "Incorrect API key provided: sk-x."), Auth, "")
	f(403, anthropic("permission_error", "x"), Auth, "")
	f(403, openAI("request_forbidden", "unsupported_country_region_territory", "x"), Auth, "")
	f(200, anthropic("authentication_error", "invalid x-api-key"), Auth, "")

	f(400, `[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]`, Auth, "")
	f(400, `{"code":"Client specified an invalid argument","error":"Incorrect API key provided: xa***. You can obtain one."}`, Auth, "")
	f(400, openAI("invalid_request_error", "mcp_server_unauthorized", "x"), ClientFault, "")
	f(400, openAI("invalid_request_error", "", "the tool says: API key not valid"), ClientFault, "")

	// The prompt.
	f(400, openAI("invalid_request_error", "context_length_exceeded", "This model's maximum context length is 8192 tokens."), ClientFault, ContextLength)
	f(400, vllm("400", "BadRequestError", "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"), ClientFault, ContextLength)
	f(400, vllm("400", "BadRequestError", "The input (5000 tokens) is longer than the model's context length (4096 tokens)."), ClientFault, ContextLength)
	f(400, vllm("400", "BadRequestError", "Requested token count exceeds the model's maximum context length of 4096 tokens."), ClientFault, ContextLength)
	f(400, vllm("400", "exceed_context_size_error", "the request exceeds the available context size, try increasing it"), ClientFault, ContextLength)
	f(400, anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), ClientFault, ContextLength)
	f(422, `{"error":"Input validation error: `+"`inputs` tokens + `max_new_tokens` must be <= 4096"+`","error_type":"validation"}`, ClientFault, ContextLength)
	f(200, openAI("invalid_request_error", "context_length_exceeded", "x"), ClientFault, ContextLength)
	f(400, `{"error":{"message":"The response was filtered","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`, ClientFault, ContentFilter)
	f(400, openAI("image_generation_user_error", "content_policy_violation", "x"), ClientFault, ContentFilter)
	f(403, vllm("403", "", "Your chosen model requires moderation and your input was flagged for x"), ClientFault, ContentFilter)
	f(400, openAI("server_error", "", "x"), ClientFault, "")
	f(200, openAI("BadRequestError", "", "x"), ClientFault, "")
	f(200, `{"error":"Input validation error: x","error_type":"validation"}`, ClientFault, "")
	f(200, `{"error":{"message":"Input validation error: `+"`temperature`"+` must be strictly positive","http_status_code":422}}`, ClientFault, "")
	f(200, `{"error_type":"template_error","error":"x"}`, ClientFault, "")

	// The server. Whatever it quotes, a 5xx is its own.
	f(424, `{"error":"Request failed during generation: Server error: out of memory","error_type":"generation"}`, ServerError, "")
	f(424, `{"error":{"message":"Error retrieving tool list from MCP server","type":"external_connector_error","code":"http_error"}}`, ClientFault, "")
	f(400, `{"error":"Request failed during generation: x","error_type":"generation"}`, ClientFault, "")
	f(200, `{"error":"Request failed during generation: x","error_type":"generation"}`, ServerError, "")
	f(200, `{"error":"Model is overloaded","error_type":"overloaded"}`, Overloaded, "")
	f(500, openAI("server_error", "", "The server had an error"), ServerError, "")
	f(500, openAI("invalid_request_error", "context_length_exceeded", "maximum context length"), ServerError, "")
	f(200, openAI("server_error", "", "failed at 'maximum context length'"), ServerError, "")
	f(200, anthropic("api_error", "Internal server error"), ServerError, "")
	f(200, `{"error":true}`, ServerError, "")
}

// What takes a deployment out rests on no words that may be the client's.
func TestWordings(t *testing.T) {
	for _, w := range wordings {
		if w.code == "" && w.starts == "" && w.says == "" {
			t.Errorf("%+v fits everything", w)
		}
		if all := w.code + w.starts + w.says + string(w.reason); strings.ToLower(all) != all {
			t.Errorf("%+v is not in lower case", w)
		}
		if w.says != "" && w.class != ClientFault && w.status < 500 {
			t.Errorf("%+v: one client's words could take the deployment from the others", w)
		}
	}
}

func TestClassNames(t *testing.T) {
	seen := map[string]bool{}
	for c := None; c <= Stale; c++ {
		if name := c.String(); name == "" || name == "unknown" || seen[name] {
			t.Errorf("class %d is called %q", c, name)
		} else {
			seen[name] = true
		}
		if want := c != None && c != ClientFault; c.Retryable() != want {
			t.Errorf("%v: Retryable is %v", c, c.Retryable())
		}
	}
	if Class(200).String() != "unknown" {
		t.Error("a class that is none has a name")
	}
}

func TestCase26ClientErrorIsNoFault(t *testing.T) {
	c, reason := Classify(400, &UpstreamError{Code: "context_length_exceeded"})
	if c != ClientFault || c.Retryable() || reason != ContextLength {
		t.Errorf("%v %q", c, reason)
	}
}

func TestUpstreamErrorText(t *testing.T) {
	e := &UpstreamError{Type: "t", Message: "m"}
	if got := e.Error(); got != "upstream error: t: m" {
		t.Error(got)
	}
}
