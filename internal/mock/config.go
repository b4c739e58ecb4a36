package mock

import (
	"crypto/tls"
	"fmt"
	"regexp"
	"slices"
	"time"

	"evenkeel/internal/engine"
)

// Config describes one engine. Only New reads it; later changes have no effect.
type Config struct {
	// Listen is the address of the engine's own listener. Default 127.0.0.1:0.
	Listen string
	// Name tells who answered: it is the system_fingerprint, the first token of every answer in brackets, and the header
	// x-mock-engine. Letters, digits, dot, dash and underscore. Default "mock".
	Name string
	// Models are the models served. Default ["mock-model"].
	Models []string
	// Engine, if set, is the timing model that the engine follows in real time: batching, prefix cache, queue, preemption. It
	// sets all times, so PrefillTokensPerSecond, InterToken and BaseLatency must be 0; Slots and KVTokens, if not 0, stand in the
	// place of its own. Every Start begins with an empty cache.
	Engine *engine.Config
	// Adapters are adapters (LoRA) of the first model, served by their own names beside it. They need Engine, whose MaxAdapters and
	// AdapterLoad say how many are in memory and how long one takes to load.
	Adapters []string
	// DataParallel is how many engines are behind the one listener, each with a queue and a cache of its own, as vLLM's
	// --data-parallel-size does: the header x-data-parallel-rank chooses one, else the least busy one does it. 0 is 1; more need Engine.
	DataParallel int
	// PrefillTokensPerSecond is the speed of reading the prompt. 0 = instant.
	PrefillTokensPerSecond float64
	// InterToken is the time between two output tokens. 0 = as fast as possible.
	InterToken time.Duration
	// BaseLatency is added before the first token of every answer.
	BaseLatency time.Duration
	// Slots is how many requests are served at once; more wait in FIFO order. 0 = unlimited.
	Slots int
	// QueueLimit is how many requests may wait for a slot; more get 503. 0 = unlimited.
	QueueLimit int
	// OutputTokens is the length of an answer, unless the request's own limit is smaller. Default 16.
	OutputTokens int
	// KVTokens is the size of the KV cache that /metrics reports. Without Engine it limits nothing. Default 131072.
	KVTokens int
	// OwnedBy is owned_by in /v1/models. Default "evenkeel-mock"; with "vllm" the engine also answers /version.
	OwnedBy string
	// Seed decides the text of the answers and which requests a fault with a rate hits.
	Seed uint64
	// APIKey, if set, is demanded on every path under /v1 as a bearer token or as x-api-key.
	APIKey string
	// TLS, if set, has a certificate, and the engine speaks HTTPS alone.
	TLS *tls.Config
	// Record is how many of the last requests Engine.Requests keeps, with headers and body. 0 = none.
	Record int
}

const (
	defaultOutputTokens = 16
	defaultKVTokens     = 131072
	kvBlockTokens       = 16 // vLLM's default block size
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// withDefaults fills in the defaults and reports the first setting that cannot be.
func (c Config) withDefaults() (Config, error) {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.Name == "" {
		c.Name = "mock"
	}
	if !nameForm.MatchString(c.Name) {
		return c, fmt.Errorf("mock: name %q: use 1 to 64 letters, digits, dots, dashes or underscores", c.Name)
	}
	if len(c.Models) == 0 {
		c.Models = []string{"mock-model"}
	}
	c.Models = slices.Clone(c.Models)
	c.Adapters = slices.Clone(c.Adapters)
	if slices.Contains(c.Models, "") || slices.Contains(c.Adapters, "") {
		return c, fmt.Errorf("mock: models %q: a model needs a name", c.Models)
	}
	if c.OutputTokens == 0 {
		c.OutputTokens = defaultOutputTokens
	}
	if c.OwnedBy == "" {
		c.OwnedBy = "evenkeel-mock"
	}
	for _, s := range []struct {
		name  string
		value float64
	}{
		{"prefill tokens per second", c.PrefillTokensPerSecond},
		{"inter-token time", float64(c.InterToken)},
		{"base latency", float64(c.BaseLatency)},
		{"slots", float64(c.Slots)},
		{"queue limit", float64(c.QueueLimit)},
		{"output tokens", float64(c.OutputTokens)},
		{"KV tokens", float64(c.KVTokens)},
		{"record", float64(c.Record)},
		{"data parallel", float64(c.DataParallel)},
	} {
		if !(s.value >= 0) {
			return c, fmt.Errorf("mock: %s is %v: it cannot be negative", s.name, s.value)
		}
	}
	if c.DataParallel = max(c.DataParallel, 1); c.Engine != nil {
		return c.withEngine()
	}
	if c.DataParallel > 1 || len(c.Adapters) > 0 {
		return c, fmt.Errorf("mock: data parallel %d, adapters %q: these need an engine model, whose queue and memory they are about", c.DataParallel, c.Adapters)
	}
	if c.KVTokens == 0 {
		c.KVTokens = defaultKVTokens
	}
	return c, nil
}

// withEngine makes the model and the settings that concern it one.
func (c Config) withEngine() (Config, error) {
	if c.PrefillTokensPerSecond != 0 || c.InterToken != 0 || c.BaseLatency != 0 {
		return c, fmt.Errorf("mock: prefill tokens per second %v, inter-token time %v, base latency %v: the engine model sets the times; leave these out, or the model",
			c.PrefillTokensPerSecond, c.InterToken, c.BaseLatency)
	}
	m := *c.Engine
	c.Engine = &m
	switch {
	case c.Slots == 0:
	case m.Scheduler == engine.Slots:
		m.Slots = c.Slots
	case m.Scheduler == engine.FIFO:
		return c, fmt.Errorf("mock: slots is %d: an engine of the scheduler fifo runs any number of requests; leave slots out", c.Slots)
	default:
		m.MaxSequences = c.Slots
	}
	if c.KVTokens > 0 && m.BlockTokens > 0 {
		m.Blocks = c.KVTokens / m.BlockTokens
	}
	c.KVTokens = m.Blocks * m.BlockTokens
	if _, err := engine.New(m); err != nil {
		return c, fmt.Errorf("mock: %w", err)
	}
	return c, nil
}

// blockTokens is the size of a block of the KV cache.
func (c *Config) blockTokens() int {
	if c.Engine != nil {
		return c.Engine.BlockTokens
	}
	return kvBlockTokens
}

// prefill is the time to read a prompt of that many tokens.
func (c *Config) prefill(promptTokens int) time.Duration {
	if c.PrefillTokensPerSecond <= 0 {
		return 0
	}
	return time.Duration(float64(promptTokens) / c.PrefillTokensPerSecond * float64(time.Second))
}
