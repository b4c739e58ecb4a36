// Package mock simulates LLM inference engines over real HTTP: for tests, for the demo and for benchmarks.
//
// An [Engine] is one listener that speaks the dialects of the field (OpenAI chat, completions, responses, embeddings and
// models; Anthropic messages), with usage, tool calls, vLLM-style metrics, and scripted faults that can be switched while
// it runs.
//
// # Times
//
// Without Config.Engine times are fixed. A request first needs one of Config.Slots; until one is free it waits in a FIFO queue
// (more than Config.QueueLimit waiting: 503). From the moment it has its slot, the first token comes after
//
//	BaseLatency + prompt tokens ÷ PrefillTokensPerSecond
//
// and token i follows at i × InterToken after the first, on an absolute schedule: a late token does not delay the ones
// after it. Requests do not slow each other down: there is no batching, no prefix cache, no preemption.
//
// With Config.Engine the times are those of package engine, which the simulator runs in virtual time and this package in real time:
// requests slow each other down, blocks of the prompt that the engine still holds are not computed again (and are told as cached
// tokens), and more than it can hold waits or is preempted. If the process is late, later tokens still come when the model says.
//
// Either way an answer that is not streamed is sent whole at the time of its last token. The response head travels with the
// first event, in one write. A client that leaves gives its slot (or its place in the queue) back at once; in a timing model,
// at the end of the running step.
//
// # Tokens and text
//
// Prompt tokens are the bytes of the prompt's text after JSON decoding, divided by four, rounded up; a prompt given as token
// numbers counts one each. The output has Config.OutputTokens tokens, or the request's own limit if that is smaller. The text is
// words of four bytes drawn by the seed, the engine's name and the prompt; one token is one streamed chunk, and the first is the
// name in brackets.
//
// The cache of a timing model knows the text by blocks: that of the system, of the messages and of the answer, one after another with
// nothing between them. So a next turn that repeats what was said finds it.
//
// A test that must be sure of lengths and prefixes gives them in the body, in a member that balancers pass on and only this
// package reads. Each part may be left out:
//
//	"mock": {"prompt_tokens": 1000, "output_tokens": 50, "prompt_blocks": [HASH, ...], "output_blocks": [HASH, ...]}
//
// Nothing in an answer but its cached tokens depends on the clock or on earlier requests: the same request to an engine with the same
// name and seed is answered by the same bytes, so answers through a proxy can be compared with direct ones. (IDs are
// therefore equal for equal prompts.)
//
// # Cost
//
// The package has its own HTTP/1.1 connection loop on top of net/http's request parser, because faults need the raw
// connection and a benchmark needs a backend that costs less than what it measures. One goroutine serves a
// connection. It waits by reading with a deadline, which is a timer and a watch on the client in one: no second goroutine, no
// timer objects, no context. A streamed chunk costs one deadline, one read that finds nothing, and one write. A timing model has
// one goroutine more, for the engine.
package mock
