package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// generic is the kind of an endpoint that gives no sign of being one of the engines.
const generic = "openai-compatible"

// engine is a kind of server that can be recognised.
type engine struct {
	kind string
	// owners are the values of owned_by in /v1/models that only this engine writes.
	owners []string
	// ask reads the engine's own pages into facts and reports whether they bear its signature. It is used both to find out
	// the kind and, where that is known, for the facts alone.
	ask func(context.Context, *client, *facts) bool
}

// facts is what an engine says about itself.
type facts struct {
	version       string
	kvTokens      int
	ranks         int
	contextWindow int         // of any model whose own is not known
	models        []ModelInfo // from the engine's own list; nil if it has none or did not say
}

// engines is the table, in the order of asking: first those whose sign is the least often imitated.
var engines = []engine{
	{kind: "vllm", owners: []string{"vllm"}, ask: askVLLM},
	{kind: "sglang", owners: []string{"sglang"}, ask: askSGLang},
	{kind: "llamacpp", owners: []string{"llamacpp"}, ask: askLlamaCPP},
	{kind: "ollama", owners: []string{"library", "ollama"}, ask: askOllama},
	{kind: "lmstudio", ask: askLMStudio},
	{kind: "tgi", ask: askTGI},
	{kind: "triton", ask: askTriton},
}

// engineOf returns the engine of that kind, or nil.
func engineOf(kind string) *engine {
	for i := range engines {
		if engines[i].kind == kind {
			return &engines[i]
		}
	}
	return nil
}

// ownersKind returns the kind that the owner of every listed model speaks for, or nothing: a list with several owners is
// an aggregator's, or one of Ollama with models of its user.
func ownersKind(models []ModelInfo) string {
	kind := ""
	for _, m := range models {
		i := slices.IndexFunc(engines, func(e engine) bool { return slices.Contains(e.owners, m.OwnedBy) })
		if i < 0 || kind != "" && kind != engines[i].kind {
			return ""
		}
		kind = engines[i].kind
	}
	return kind
}

// identify asks for the signs of all engines in turn. It is to be trusted only if no GET failed.
func identify(ctx context.Context, c *client) (string, facts) {
	for _, e := range engines {
		var f facts
		if e.ask(ctx, c, &f) {
			return e.kind, f
		}
	}
	return generic, facts{}
}

// askVLLM: aggregators imitate /version, so that a series of vLLM's must confirm it. Where the kind is configured, a server that does
// not show its version can still say how large its cache is.
func askVLLM(ctx context.Context, c *client, f *facts) bool {
	var page struct{ Version string }
	if (!c.object(ctx, "vllm", "/version", &page) || page.Version == "") && c.target.Kind != "vllm" {
		return false
	}
	tokens, ranks, found := vllmMetrics(c.page(ctx, "vllm", "/metrics"))
	f.version, f.kvTokens, f.ranks = clean(page.Version), tokens, ranks
	return found
}

func askSGLang(ctx context.Context, c *client, f *facts) bool {
	body := c.page(ctx, "sglang", "/server_info")
	if body == nil {
		body = c.page(ctx, "sglang", "/get_server_info") // its older name
	}
	return sglangServerInfo(body, f)
}

func askLlamaCPP(ctx context.Context, c *client, f *facts) bool {
	return llamacppProps(c.page(ctx, "llamacpp", "/props"), f)
}

// askOllama: several proxies imitate /api/version, so that the front page must confirm it.
func askOllama(ctx context.Context, c *client, f *facts) bool {
	var page struct{ Version string }
	if !c.object(ctx, "ollama", "/api/version", &page) || page.Version == "" {
		return false
	}
	f.version = clean(page.Version)
	if items, err := listUnder(c.page(ctx, "ollama", "/api/tags"), "models"); err == nil {
		f.models, _ = readModels(items, func(m *listedModel) string { return m.Name })
	}
	return bytes.Contains(c.page(ctx, "ollama", "/"), []byte("Ollama is running"))
}

func askLMStudio(ctx context.Context, c *client, f *facts) bool {
	items, err := listUnder(c.page(ctx, "lmstudio", "/api/v0/models"), "data")
	if err != nil {
		return false
	}
	f.models, _ = readModels(items, func(m *listedModel) string { return m.ID })
	return slices.ContainsFunc(items, func(item json.RawMessage) bool {
		var m listedModel
		return decode(item, &m) && m.State != ""
	})
}

func askTGI(ctx context.Context, c *client, f *facts) bool {
	return tgiInfo(c.page(ctx, "tgi", "/info"), f)
}

func askTriton(ctx context.Context, c *client, f *facts) bool {
	var page struct{ Name, Version string }
	a := c.get(ctx, "triton", "/v2")
	if a.status == http.StatusOK && decode(a.body, &page) && strings.EqualFold(page.Name, "triton") {
		f.version = clean(page.Version)
		return true
	}
	return a.header.Get("NV-Status") != ""
}
