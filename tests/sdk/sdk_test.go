package sdk

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"evenkeel/internal/mock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plainOpenAI and plainAnthropic must pass against every complete engine.
var (
	plainOpenAI = []string{
		"models", "models_unknown", "chat", "chat_stream", "chat_stream_usage", "chat_unicode", "chat_long_prompt",
		"chat_tools", "chat_tools_stream", "chat_concurrent", "completions", "completions_stream", "embeddings",
		"responses", "responses_stream",
	}
	plainAnthropic = []string{
		"messages", "messages_stream", "messages_stream_helper", "messages_unicode", "messages_long_prompt",
		"messages_tools", "messages_tools_stream", "messages_concurrent", "count_tokens",
	}
)

// The mock engine is held to the same clients as the balancer: a test through
// the balancer proves little if the clients do not accept the engine itself.
func TestClientsAgainstMock(t *testing.T) {
	engine := startMocks(t, 1, "")[0]
	runEach(t, OpenAI, engine.URL(), plainOpenAI)
	runEach(t, Anthropic, engine.URL(), plainAnthropic)
}

// Why a cut stream must end with an error event: the clients take a stream
// that ends cleanly in mid-answer for a complete one.
func TestClientsBelieveATruncatedStream(t *testing.T) {
	engine := startMocks(t, 1, "")[0]
	setFault(t, mock.Fault{Kind: "truncate", After: 5}, engine)
	for _, client := range append(OpenAI, Anthropic...) {
		t.Run(client.Name, func(t *testing.T) {
			result := Start(t, client, engine.URL(), "", modelName).Try(t, "stream_broken")
			if result.OK {
				t.Errorf("this client notices a truncated stream by itself: %s", result.Detail)
			}
		})
	}
}

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

const modelName = "mock-model"

// runEach runs the scenarios with every client, each in its own subtest.
func runEach(t *testing.T, clients []Client, url string, scenarios []string) {
	t.Helper()
	for _, client := range clients {
		t.Run(client.Name, func(t *testing.T) {
			runner := Start(t, client, url, "", modelName)
			for _, name := range scenarios {
				t.Run(name, func(t *testing.T) { runner.Run(t, name) })
			}
		})
	}
}

func setFault(t *testing.T, fault mock.Fault, engines ...*mock.Engine) {
	t.Helper()
	for _, e := range engines {
		if err := e.SetFault(fault); err != nil {
			t.Fatal(err)
		}
	}
}
