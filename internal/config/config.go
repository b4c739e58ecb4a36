// Package config reads the configuration: defaults first, a strict decode of one or several YAML files over them,
// all problems at once with their place, and then a value that nobody changes any more.
//
// Adding a setting is a field here with its yaml tag, its default in Default, its check in validate.go, and a row in
// docs/configuration.md (a test compares the two).
package config

import (
	"time"

	"evenkeel/internal/secret"
)

// Config is everything an operator can say. It is read-only once loaded, and safe for concurrent use.
type Config struct {
	// Listen, Admin and Metrics are host:port addresses of the three listeners; Admin and Metrics may be empty (off).
	Listen  string `yaml:"listen"`
	Admin   string `yaml:"admin"`
	Metrics string `yaml:"metrics"`
	// TLS and AdminTLS make Listen and Admin speak TLS.
	TLS      ListenerTLS `yaml:"tls"`
	AdminTLS ListenerTLS `yaml:"admin_tls"`
	// H2C lets clients speak HTTP/2 without TLS, to those who know that they may (prior knowledge).
	H2C bool `yaml:"h2c"`
	// Connections bounds those of Listen.
	Connections Connections `yaml:"connections"`
	// Auth is AuthNone where the operator explicitly serves everybody, else empty.
	Auth string `yaml:"auth"`
	// Credentials is CredentialsClient where the client's own key goes upstream, else empty.
	Credentials string `yaml:"credentials"`
	// ForwardHeaders names request headers that go upstream besides the built-in list.
	ForwardHeaders []string `yaml:"forward_headers"`
	// ExposeHeaders names optional response headers without their prefix: deployment, attempts, decision.
	ExposeHeaders []string `yaml:"expose_headers"`
	// MaxBody is the largest request body that is accepted.
	MaxBody Size `yaml:"max_body"`
	// BodyMemory bounds the request bodies that are held at one time, of all requests together; 0 leaves it to the process.
	BodyMemory Size `yaml:"body_memory"`
	// DrainTimeout is how long running streams may take to finish after a stop was asked for.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
	// HoldTimeout is how long the start of a stream may be held back so that it can still move to another deployment.
	HoldTimeout time.Duration `yaml:"hold_timeout"`
	// DNSServer is the ip:port of the server that is asked for the addresses of pools; empty asks those of the system.
	DNSServer string `yaml:"dns_server"`
	// EndpointsFile is the path of one more file that may hold endpoints alone; empty = none. Load merges it in.
	EndpointsFile string `yaml:"endpoints_file,file"`
	// Watch makes the process take changed files by itself.
	Watch bool `yaml:"watch"`
	// Endpoints and Models are in the order of the files. Endpoints is nil if none was written, empty if a file says {}.
	Endpoints    []Endpoint   `yaml:"endpoints,named"`
	Models       []Model      `yaml:"models,named"`
	Strategy     Strategy     `yaml:"strategy"`
	Affinity     Affinity     `yaml:"affinity"`
	Deadlines    Deadlines    `yaml:"deadlines"`
	Retry        Retry        `yaml:"retry"`
	Hedge        Hedge        `yaml:"hedge"`
	Queue        Queue        `yaml:"queue"`
	HealthChecks HealthChecks `yaml:"health_checks"`
	VirtualKeys  []VirtualKey `yaml:"virtual_keys"`
	Log          Log          `yaml:"log"`
	Explain      Explain      `yaml:"explain"`
	Trace        Trace        `yaml:"trace"`

	// reads are the files that it was read from. Nil if built in code.
	reads *reads
	// places says where each setting was written, so that Validate can point at it, and under "" what the files are called.
	// Nil if built in code.
	places map[string]place
	// decoded is what could not be decoded, for Validate.
	decoded report
}

// Values of Config.Auth and Config.Credentials.
const (
	AuthNone          = "none"
	CredentialsClient = "client"
)

// Connections bounds the connections that clients hold open. One more is closed at once.
type Connections struct {
	// Max is over all clients; 0 leaves it to what the process may open.
	Max int `yaml:"max"`
	// PerAddress is for one IPv4 address, or one IPv6 network of 64 bits; 0 is no limit.
	PerAddress int `yaml:"per_address"`
}

// Endpoint is a base URL that serves models with one credential.
type Endpoint struct {
	Name string `yaml:"-"`
	// URL is canonical: scheme, lower-case host, port unless it is the scheme's own, perhaps a path, without a final
	// slash and without a final /v1. With dns+ in front it is a pool: PoolHost and Member tell of it.
	URL string `yaml:"url,url"`
	// Address is where a member of a pool listens, host:port, in place of the host in its URL. Empty for all others.
	Address string `yaml:"-"`
	// Kind is one of Kinds, or empty: then the endpoint is asked what it is.
	Kind string `yaml:"kind"`
	// APIKey is sent upstream; empty sends none.
	APIKey secret.String `yaml:"api_key"`
	// TLS is for https URLs only.
	TLS EndpointTLS `yaml:"tls"`
	// Proxy is the address of an egress proxy, http://host:port; empty connects directly.
	Proxy string `yaml:"proxy,proxy"`
	// MaxConnections bounds what is open to the endpoint at one time; 0 is no limit.
	MaxConnections int `yaml:"max_connections"`
	// DataParallel is how many data-parallel ranks are behind the URL, each with a queue and a cache of its own, that requests are sent to
	// one by one; 0 and 1 leave the choice to the server. For kind vllm alone.
	DataParallel int `yaml:"data_parallel"`
	// Limits hold for all deployments of this endpoint together.
	Limits Limits `yaml:"limits"`
	// Weight scales the capacity of all deployments of this endpoint; 0 is never picked.
	Weight float64 `yaml:"weight"`
	// FailureDomain names what the endpoint is likely to fail together with, such as a rack; empty means its host, for openai
	// and anthropic its account and region.
	FailureDomain string `yaml:"failure_domain"`
	// Models lists what is served under its own name; empty means: what the endpoint itself lists.
	Models []string `yaml:"models"`
}

// Limits bound what is sent at one time. 0 means the default: no limit for InFlight; the engine's own size, else
// 100,000 for Tokens.
type Limits struct {
	InFlight int `yaml:"in_flight"`
	Tokens   int `yaml:"tokens"`
	// RPM and TPM (requests and tokens per minute) are token buckets that hold a minute's worth.
	RPM int `yaml:"rpm"`
	TPM int `yaml:"tpm"`
}

// Model is a name that clients ask for.
type Model struct {
	Name string `yaml:"-"`
	// Providers say where the model is served; empty means: wherever an endpoint serves this very name.
	Providers []Provider `yaml:"providers"`
	// FallbackChain names other models to try, in order. Chains of chains are not followed.
	FallbackChain []string `yaml:"fallback_chain"`
	// Strategy is nil where the general one holds.
	Strategy *Strategy `yaml:"strategy"`
	// Affinity is nil where the general one holds; else it is in place of it.
	Affinity *Affinity `yaml:"affinity"`
}

// Provider is one endpoint that serves a model.
type Provider struct {
	// Name is the endpoint's name.
	Name string `yaml:"name"`
	// Model is the name upstream. Load fills in the model's own name.
	Model string `yaml:"model"`
	// Weight multiplies the endpoint's; 0 is never picked. The product has the range of a weight.
	Weight float64 `yaml:"weight"`
	Limits Limits  `yaml:"limits"`

	// Price is what simulate, the warning of what probes cost, and strategies that are told what a second is worth count with.
	Price Price `yaml:"price"`

	// Region is where a provider with a fleet of its own serves the model: what fails in one may be well in another.
	Region string `yaml:"region"`
	// FailureDomain is in place of the endpoint's, and of Region; empty means those.
	FailureDomain string `yaml:"failure_domain"`

	// The rest is accepted and not acted on by this version.
	ContextWindow int      `yaml:"context_window,also=max_tokens"` // tokens
	Supports      []string `yaml:"supports"`
}

// Price is in dollars per million tokens, and in dollars for Request.
type Price struct {
	Input       float64 `yaml:"input"`
	CachedInput float64 `yaml:"cached_input"`
	Output      float64 `yaml:"output"`
	Request     float64 `yaml:"request"`
}

// Deadlines bound the stages of one client request.
type Deadlines struct {
	// Deadline runs from arrival to the first content, over queue, attempts and back-off.
	Deadline time.Duration `yaml:"deadline"`
	// FirstToken and BetweenTokens hold for streamed answers, per attempt.
	FirstToken    time.Duration `yaml:"first_token"`
	BetweenTokens time.Duration `yaml:"between_tokens"`
	// Response replaces both where the answer is not streamed.
	Response time.Duration `yaml:"response"`
	// Connect bounds the TCP and TLS handshakes together.
	Connect time.Duration `yaml:"connect"`
}

// Retry bounds attempts. The budget is a bucket that gains BudgetRatio per first attempt and holds
// max(BudgetMin, requests in flight); each further attempt takes 1.
type Retry struct {
	MaxAttempts int     `yaml:"max_attempts"`
	BudgetRatio float64 `yaml:"budget_ratio"`
	BudgetMin   int     `yaml:"budget_min"`
}

// Queue bounds the requests that wait for room.
type Queue struct {
	// MaxWaiting is per model; one more is shed.
	MaxWaiting int `yaml:"max_waiting"`
}

// VirtualKey is a key of a client of ours, known by its hash only.
type VirtualKey struct {
	Name string `yaml:"name"`
	// SHA256 is the hash of the whole key: 64 lower-case hexadecimal digits.
	SHA256 string `yaml:"sha256"`
}

// Log says what is logged, and how.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn, error
	Format string `yaml:"format"` // text, json
}

// Explain bounds the memory for recent decision records.
type Explain struct {
	RingMiB int `yaml:"ring_mib"` // 0 keeps none
}

// Trace says whether traffic is recorded for the simulator.
type Trace struct {
	// Path is the file, and with .1 behind it the one before; with .key behind it the key of its hashes. Empty records nothing.
	Path string `yaml:"path,file"`
	// MaxMiB is the size from which on a new file is begun.
	MaxMiB int `yaml:"max_mib"`
}

// Default returns the configuration that an empty file gives. It serves nothing yet.
func Default() Config {
	c := Config{
		Listen:       "127.0.0.1:8080",
		Admin:        "127.0.0.1:8081",
		Watch:        true,
		MaxBody:      32 << 20,
		DrainTimeout: 30 * time.Second,
		HoldTimeout:  2 * time.Second,
		Strategy:     Strategy{Name: "predicted_wait"},
		Deadlines: Deadlines{
			Deadline:      600 * time.Second,
			FirstToken:    300 * time.Second,
			BetweenTokens: 120 * time.Second,
			Response:      600 * time.Second,
			Connect:       2 * time.Second,
		},
		Retry:        Retry{MaxAttempts: 3, BudgetRatio: 0.1, BudgetMin: 10},
		Hedge:        Hedge{BudgetRatio: 0.05},
		Queue:        Queue{MaxWaiting: 1000},
		HealthChecks: defaultHealthChecks(),
		Log:          Log{Level: "info", Format: "text"},
		Explain:      Explain{RingMiB: 16},
		Trace:        Trace{MaxMiB: 256},
	}
	c.Affinity.setDefaults()
	return c
}

func (e *Endpoint) setDefaults() { e.Weight, e.DataParallel = 1, 1 }
func (p *Provider) setDefaults() { p.Weight = 1 }

// form is how an item of providers is written, for one that was written as text.
func (Provider) form(text string) string {
	if !plainName(text) || credential.MatchString(text) {
		text = "gpu-1"
	}
	return "{name: " + text + "}"
}

// form is how an item of virtual_keys is written. The text may be a key, which is not repeated.
func (VirtualKey) form(string) string { return "{name: support-agent, sha256: HASH-OF-THE-KEY}" }

// Kinds are the endpoint kinds that can be written, in the order of the documentation.
var Kinds = []string{
	"openai", "anthropic", "vllm", "sglang", "llamacpp", "ollama", "tgi", "lmstudio", "triton", "openai-compatible",
}

// kindURLs are the addresses of the kinds that have a public one.
var kindURLs = map[string]string{
	"openai":    "https://api.openai.com",
	"anthropic": "https://api.anthropic.com",
}
