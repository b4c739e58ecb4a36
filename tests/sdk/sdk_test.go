package sdk

import (
	"testing"
	"time"

	"evenkeel/internal/mock"
	"evenkeel/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Scenarios that every complete engine must pass.
var (
	openAIAnswers = []string{
		"chat", "chat_stream", "chat_stream_usage", "chat_unicode", "chat_long_prompt", "chat_tools", "chat_tools_stream",
		"chat_concurrent", "completions", "completions_stream", "embeddings", "responses", "responses_stream",
		"models", "models_unknown",
	}
	anthropicAnswers = []string{
		"messages", "messages_stream", "messages_stream_helper", "messages_unicode", "messages_long_prompt",
		"messages_tools", "messages_tools_stream", "messages_concurrent", "count_tokens",
	}
)

// The mock engine is held to the same clients as the balancer: a test through
// the balancer proves little if the clients do not accept the engine itself.
func TestMock(t *testing.T) {
	engine := startMocks(t, 1, "")[0]
	runners := startAll(t, engine.URL(), "")
	runners.each(t, OpenAI, openAIAnswers...)
	runners.each(t, Anthropic, anthropicAnswers...)

	// Why a cut stream must end with an error event: the clients take one that
	// ends cleanly in mid-answer for a complete answer.
	setFault(t, mock.Fault{Kind: "truncate", After: 5}, engine)
	for client, runner := range runners {
		if result := runner.Try(t, "stream_broken"); result.OK {
			t.Errorf("%s notices a truncated stream by itself: %s", client.Name, result.Detail)
		}
	}
}

const modelName = "mock-model"

// startMocks starts n engines whose names are a, b, ...; a key is demanded if
// one is given. An answer of 24 tokens takes 120 ms.
func startMocks(t *testing.T, n int, key string) []*mock.Engine {
	t.Helper()
	engines := make([]*mock.Engine, n)
	for i := range engines {
		engine, err := mock.New(mock.Config{
			Name: string(rune('a' + i)), Models: []string{modelName}, Seed: uint64(i), APIKey: key,
			InterToken: 5 * time.Millisecond, OutputTokens: 2000, Record: 64,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := engine.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(engine.Close)
		engines[i] = engine
	}
	return engines
}

func setFault(t *testing.T, fault mock.Fault, engines ...*mock.Engine) {
	t.Helper()
	for _, e := range engines {
		if err := e.SetFault(fault); err != nil {
			t.Fatal(err)
		}
	}
}

// runners are all clients at one address. A program takes a second or more to
// start, so a test starts each once.
type runners map[Client]*Runner

func startAll(t *testing.T, url, key string) runners {
	t.Helper()
	all := make(runners)
	for _, client := range Clients() {
		all[client] = Start(t, client, url, key, modelName)
	}
	return all
}

// each runs the scenarios with each of the clients, in subtests.
func (r runners) each(t *testing.T, clients []Client, scenarios ...string) {
	t.Helper()
	for _, client := range clients {
		for _, name := range scenarios {
			t.Run(client.Name+"/"+name, func(t *testing.T) { r[client].Run(t, name) })
		}
	}
}
