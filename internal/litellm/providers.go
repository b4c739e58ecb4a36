package litellm

import (
	"slices"
	"strings"
)

// provider is what the first part of a LiteLLM model name, as in groq/llama-3.3-70b, means here.
type provider struct {
	prefixes []string
	kind     string // of the endpoint; empty: it is asked what it is
	url      string // where it is; empty: api_base says
	key      string // the environment variable that LiteLLM reads where no api_key is written; empty: none is needed
	form     form
	refused  string // why this version does not serve it, and what to do; empty: it does
	note     string // what differs
}

// form is how an api_base is read.
type form uint8

const (
	sdkBase   form = iota // with the /v1 that OpenAI's SDK does not add
	plainBase             // without it
	azureBase             // of a resource of Azure
)

const (
	viaLiteLLM = "; to keep it, leave it in LiteLLM and make that an endpoint: {url: http://LITELLM:4000, models: [NAME]}"
	noV1       = "its API has no /v1/... paths, which requests bring here" + viaLiteLLM

	claudeNote = "requests are passed on in the client's own format, and not translated: clients use Anthropic's /v1/messages, or what Anthropic offers at " +
		"/v1/chat/completions; together with others, in one model or a fallback_chain, only for requests that all of them take"
	azureNote  = "is asked by Azure's v1 API (/openai/v1/...), whose model is the name of the deployment"
	ollamaNote = "is asked by its OpenAI API (/v1/...), not /api/generate or /api/chat"
	textNote   = "chat requests are not turned into prompts: clients use /v1/completions"
	hfNote     = "is taken for a server of your own (TGI) and asked at /v1/..."
)

// providers is the table. Addresses and variables are those of LiteLLM 1.110. Hosted ones are of kind openai, which means an account
// with a fleet behind it, not an engine with a queue.
var providers = []provider{
	{prefixes: []string{"openai"}, kind: "openai", url: "https://api.openai.com", key: "OPENAI_API_KEY"},
	{prefixes: []string{"text-completion-openai"}, kind: "openai", url: "https://api.openai.com", key: "OPENAI_API_KEY", note: textNote},
	{prefixes: []string{"anthropic"}, kind: "anthropic", url: "https://api.anthropic.com", key: "ANTHROPIC_API_KEY", form: plainBase, note: claudeNote},
	{prefixes: []string{"azure", "azure_text"}, kind: "openai", key: "AZURE_API_KEY", form: azureBase, note: azureNote},
	{prefixes: []string{"azure_ai"}, kind: "openai", key: "AZURE_AI_API_KEY", form: azureBase, note: azureNote},

	{prefixes: []string{"groq"}, kind: "openai", url: "https://api.groq.com/openai", key: "GROQ_API_KEY"},
	{prefixes: []string{"mistral"}, kind: "openai", url: "https://api.mistral.ai", key: "MISTRAL_API_KEY"},
	{prefixes: []string{"deepseek"}, kind: "openai", url: "https://api.deepseek.com", key: "DEEPSEEK_API_KEY"},
	{prefixes: []string{"together_ai"}, kind: "openai", url: "https://api.together.ai", key: "TOGETHERAI_API_KEY"},
	{prefixes: []string{"fireworks_ai"}, kind: "openai", url: "https://api.fireworks.ai/inference", key: "FIREWORKS_API_KEY"},
	{prefixes: []string{"openrouter"}, kind: "openai", url: "https://openrouter.ai/api", key: "OPENROUTER_API_KEY"},
	{prefixes: []string{"xai"}, kind: "openai", url: "https://api.x.ai", key: "XAI_API_KEY"},
	{prefixes: []string{"cerebras"}, kind: "openai", url: "https://api.cerebras.ai", key: "CEREBRAS_API_KEY"},
	{prefixes: []string{"sambanova"}, kind: "openai", url: "https://api.sambanova.ai", key: "SAMBANOVA_API_KEY"},
	{prefixes: []string{"nvidia_nim"}, kind: "openai", url: "https://integrate.api.nvidia.com", key: "NVIDIA_NIM_API_KEY"},
	{prefixes: []string{"moonshot"}, kind: "openai", url: "https://api.moonshot.ai", key: "MOONSHOT_API_KEY"},

	{prefixes: []string{"ollama", "ollama_chat"}, kind: "ollama", url: "http://localhost:11434", form: plainBase, note: ollamaNote},
	{prefixes: []string{"hosted_vllm", "vllm"}, kind: "vllm"},
	{prefixes: []string{"lm_studio"}, kind: "lmstudio"},
	{prefixes: []string{"llamafile"}, url: "http://127.0.0.1:8080"},
	{prefixes: []string{"custom_openai", "openai_like", "aiohttp_openai", "xinference", "litellm_proxy"}},
	{prefixes: []string{"huggingface"}, form: plainBase, note: hfNote},

	{prefixes: []string{"bedrock", "bedrock_converse", "bedrock_mantle", "sagemaker", "sagemaker_chat", "amazon_nova"},
		refused: "AWS signs its requests, which this version does not" + viaLiteLLM},
	{prefixes: []string{"vertex_ai", "vertex_ai_beta"}, refused: "Google Cloud's credentials are tokens of an hour, which this version does not fetch" + viaLiteLLM},
	{prefixes: []string{"gemini", "perplexity", "deepinfra", "github", "volcengine", "cohere", "cohere_chat", "replicate", "watsonx", "databricks", "cloudflare"},
		refused: noV1},
	{prefixes: []string{"github_copilot", "chatgpt"}, refused: "its credential comes of a sign-in that LiteLLM performs" + viaLiteLLM},
	{prefixes: []string{"auto_router"}, refused: "models are not chosen by what a prompt says in this version; clients name the model"},
}

// lookUp returns the provider of a prefix.
func lookUp(prefix string) (*provider, bool) {
	for i := range providers {
		if slices.Contains(providers[i].prefixes, prefix) {
			return &providers[i], true
		}
	}
	return nil, false
}

// known lists beginnings of names that LiteLLM knows without a provider.
var known = []struct{ begin, provider string }{
	{"gpt-", "openai"}, {"o1", "openai"}, {"o3", "openai"}, {"o4", "openai"}, {"chatgpt-", "openai"}, {"ft:gpt-", "openai"},
	{"text-embedding-", "openai"}, {"dall-e-", "openai"}, {"whisper-", "openai"}, {"tts-", "openai"}, {"omni-moderation-", "openai"},
	{"claude-", "anthropic"},
}

// bridges are second parts of a name that tell LiteLLM how to ask, and are no part of the model's.
var bridges = []string{"responses/", "o_series/", "gpt5_series/"}

// split takes a LiteLLM model name apart. custom is the custom_llm_provider, if one is written. The prefix is empty if nothing tells it.
func split(model, custom string) (prefix, name string) {
	prefix, name, cut := strings.Cut(model, "/")
	switch {
	case custom != "" && (!cut || prefix != custom):
		return custom, model
	case cut:
		return prefix, name
	}
	for _, k := range known {
		if strings.HasPrefix(model, k.begin) {
			return k.provider, model
		}
	}
	return "", model
}
