// Package mock simulates LLM inference engines over real HTTP: for tests, for the demo and for benchmarks.
//
// An [Engine] is one listener that speaks the dialects of the field (OpenAI chat, completions, responses, embeddings and
// models; Anthropic messages), with usage, tool calls, vLLM-style metrics, and scripted faults that can be switched while
// it runs.
//
// # Timing model
//
// A request first needs one of Config.Slots; until one is free it waits in a FIFO queue (more than Config.QueueLimit
// waiting: 503). From the moment it has its slot, the first token comes after
//
//	BaseLatency + prompt tokens ÷ PrefillTokensPerSecond
//
// and token i follows at i × InterToken after the first, on an absolute schedule: a late token does not delay the ones
// after it. An answer that is not streamed is sent whole at the time of its last token. The response head travels with the
// first event, in one write. Requests do not slow each other down: there is no batching, no prefix cache, no
// preemption. A client that leaves gives its slot (or its place in the queue) back at once.
//
// # Tokens and text
//
// Prompt tokens are the bytes of the prompt's text after JSON decoding, divided by four, rounded up; a prompt given as token
// numbers counts one each. The output has Config.OutputTokens tokens, or the request's own limit if that is smaller. The text is
// words drawn by the seed, the engine's name and the prompt; one token is one streamed chunk, and the first is the name in
// brackets. Nothing in an answer depends on the clock or on earlier requests: the same request to an engine with the same
// name and seed is answered by the same bytes, so answers through a proxy can be compared with direct ones. (IDs are
// therefore equal for equal prompts.)
//
// # Cost
//
// The package has its own HTTP/1.1 connection loop on top of net/http's request parser, because faults need the raw
// connection and a benchmark needs a backend that costs less than what it measures. One goroutine serves a
// connection. It waits by reading with a deadline, which is a timer and a watch on the client in one: no second goroutine, no
// timer objects, no context. A streamed chunk costs one deadline, one read that finds nothing, and one write.
package mock
