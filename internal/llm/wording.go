package llm

import "strings"

// wording is how an engine says something. All that is given must fit; all is in lower case.
//
// What takes a deployment out of use may rest on a type, on a code or on how a message starts, but not on what stands
// somewhere in it: messages quote the request, and one client could take a deployment from the others with its words.
type wording struct {
	status int    // of the answer
	code   string // is in the error's type or code
	starts string // is how its message starts; a * in it stands for one name
	says   string // is somewhere in its message
	class  Class
	reason Reason
}

// wordings are in order of precedence: the first that fits counts.
var wordings = []wording{
	{code: "insufficient_quota", class: Exhausted},                                // OpenAI, 429
	{code: "insufficient_user_quota", class: Exhausted},                           // one-api and new-api, 403
	{code: "billing", class: Exhausted},                                           // OpenAI billing_hard_limit_reached and billing_not_active, Anthropic billing_error
	{code: "exceeded_current_quota", class: Exhausted},                            // Moonshot, 429
	{code: "arrearage", class: Exhausted},                                         // DashScope, 400
	{starts: "your credit balance is too low", class: Exhausted},                  // Anthropic, 400 invalid_request_error
	{starts: "you have reached your specified api usage limit", class: Exhausted}, // Anthropic, 400: the spending limit of a workspace
	{starts: "insufficient balance", class: Exhausted},                            // DeepSeek
	{starts: "insufficient credits", class: Exhausted},                            // OpenRouter
	{starts: "out of call volume quota", class: Exhausted},                        // Azure, 403

	{code: "model_not_found", class: NotServed},                          // OpenAI, Groq, LM Studio, Hugging Face; also as 403
	{code: "deploymentnotfound", class: NotServed},                       // Azure
	{code: "model_not_available", class: NotServed},                      // Together
	{code: "invalid_model", class: NotServed},                            // Mistral, 400
	{code: "not_found_error", starts: "model: *", class: NotServed},      // Anthropic; with invalid_request_error it is about the field
	{starts: "the model * does not exist", class: NotServed},             // vLLM NotFoundError, SGLang, xAI
	{starts: "the requested model * does not exist", class: NotServed},   // Hugging Face
	{starts: "model * not found", class: NotServed},                      // Ollama, llama.cpp
	{starts: "model * does not exist", class: NotServed},                 // TensorRT-LLM, Triton
	{starts: "model not found", class: NotServed},                        // Fireworks
	{starts: "model not exist", class: NotServed},                        // DeepSeek, 400
	{starts: "models/* is not found", class: NotServed},                  // Gemini
	{starts: "* is not a valid model id", class: NotServed},              // OpenRouter, 400
	{starts: "/* invalid model name passed in model=", class: NotServed}, // LiteLLM, 400; the name is the path
	{starts: "loading model", class: Loading},                            // llama.cpp, 503 unavailable_error
	{starts: "llm server loading model", class: Loading},                 // Ollama
	{starts: "model * is currently loading", class: Loading},             // Hugging Face
	{starts: "model is loading", class: Loading},                         // LM Studio, llama-swap
	{starts: "the model is loading", class: Loading},
	{status: 503, says: "loading", class: Loading},
	{status: 503, says: "warming up", class: Loading},
	{status: 503, says: "model is not ready", class: Loading}, // Triton, KServe

	{code: "rate_limit", class: RateLimited}, // OpenAI rate_limit_exceeded, Anthropic rate_limit_error
	{code: "ratelimit", class: RateLimited},  // Azure RateLimitReached, LiteLLM RateLimitError
	{code: "too_many_requests", class: RateLimited},
	{code: "toomanyrequests", class: RateLimited},
	{code: "resource_exhausted", class: RateLimited}, // Gemini
	{code: "throttl", class: RateLimited},            // Bedrock ThrottlingException
	{code: "overload", class: Overloaded},            // Anthropic overloaded_error, Moonshot engine_overloaded_error
	{code: "unavailable", class: Overloaded},         // vLLM ServiceUnavailableError, llama.cpp unavailable_error
	{code: "capacity", class: Overloaded},
	{starts: "api key not valid", class: Auth},          // Gemini, 400
	{starts: "api key expired", class: Auth},            // Gemini, 400
	{starts: "incorrect api key provided", class: Auth}, // xAI, 400
	{code: "authentication", class: Auth},               // Anthropic, llama.cpp
	{code: "permission", class: Auth},                   // Anthropic
	{code: "invalid_api_key", class: Auth},              // OpenAI
	{code: "unauthorized", class: Auth},
	{code: "forbidden", class: Auth},
	{code: "server_error", class: ServerError}, // OpenAI
	{code: "servererror", class: ServerError},  // vLLM InternalServerError
	{code: "api_error", class: ServerError},    // Anthropic

	{code: "context_length", class: ClientFault, reason: ContextLength},                             // OpenAI context_length_exceeded
	{code: "exceed_context_size", class: ClientFault, reason: ContextLength},                        // llama.cpp
	{code: "content_filter", class: ClientFault, reason: ContentFilter},                             // Azure
	{code: "responsibleaipolicyviolation", class: ClientFault, reason: ContentFilter},               // Azure
	{code: "content_policy", class: ClientFault, reason: ContentFilter},                             // OpenAI, images
	{says: "input was flagged", class: ClientFault, reason: ContentFilter},                          // OpenRouter, 403
	{says: "maximum context length", class: ClientFault, reason: ContextLength},                     // vLLM, OpenAI, SGLang
	{says: "longer than the model's context length", class: ClientFault, reason: ContextLength},     // SGLang
	{says: "longer than the maximum model length", class: ClientFault, reason: ContextLength},       // vLLM
	{says: "exceeds the available context size", class: ClientFault, reason: ContextLength},         // llama.cpp
	{says: "prompt is too long", class: ClientFault, reason: ContextLength},                         // Anthropic
	{says: "exceed context limit", class: ClientFault, reason: ContextLength},                       // Anthropic, with max_tokens
	{says: "`inputs` tokens + `max_new_tokens` must be", class: ClientFault, reason: ContextLength}, // TGI
	{says: "input token count", class: ClientFault, reason: ContextLength},                          // Gemini

	{status: 424, code: "generation", class: ServerError},  // TGI; OpenAI's 424 is about a tool's server that the request names
	{starts: "input validation error", class: ClientFault}, // TGI
	{starts: "template error", class: ClientFault},         // TGI
	{code: "template_error", class: ClientFault},           // TGI
	{code: "invalid_request", class: ClientFault},          // OpenAI, Anthropic, llama.cpp
	{code: "badrequest", class: ClientFault},               // vLLM BadRequestError
	{code: "bad_request", class: ClientFault},
	{code: "not_found", class: ClientFault},
	{code: "notfound", class: ClientFault},
	{code: "too_large", class: ClientFault}, // Anthropic request_too_large
	{code: "unprocessable", class: ClientFault},
	{code: "validation", class: ClientFault}, // TGI
	{code: "invalid_prompt", class: ClientFault},
}

// find returns the wording that an error uses, or nil. Status is that of the answer, 0 inside a stream.
func find(status int, err *UpstreamError) *wording {
	code, message := strings.ToLower(err.Type+" "+err.Code), strings.ToLower(err.Message)
	for i := range wordings {
		w := &wordings[i]
		if (w.status == 0 || w.status == status) && strings.Contains(code, w.code) && starts(message, w.starts) && strings.Contains(message, w.says) {
			return w
		}
	}
	return nil
}

// starts reports whether a text starts like a pattern, in which a * stands for one name: in quotes, or up to a space.
func starts(text, pattern string) bool {
	before, after, named := strings.Cut(pattern, "*")
	rest, ok := strings.CutPrefix(text, before)
	if !ok || !named {
		return ok
	}
	end := strings.IndexByte(rest, ' ')
	if rest != "" && strings.IndexByte("\"'`", rest[0]) >= 0 {
		if n := strings.IndexByte(rest[1:], rest[0]); n >= 0 {
			end = n + 2
		}
	}
	if end < 0 {
		end = len(rest)
	}
	return end > 0 && strings.HasPrefix(rest[end:], after)
}

// AsksTooMuch reports whether a 429 says that the request alone is larger than the quota of a minute, which no waiting
// changes: "Request too large for MODEL ... on tokens per min (TPM): Limit 30000, Requested 40000" (OpenAI, Groq).
func AsksTooMuch(err *UpstreamError) bool {
	return err != nil && strings.HasPrefix(err.Message, "Request too large")
}

// LacksRank reports whether an error says that there is no such data-parallel rank, as vLLM does with status 400. Whoever chose the rank is
// at fault, which only the caller knows.
func LacksRank(err *UpstreamError) bool {
	return err != nil && strings.HasPrefix(err.Message, "data_parallel_rank ") && strings.Contains(err.Message, " is out of range ")
}
