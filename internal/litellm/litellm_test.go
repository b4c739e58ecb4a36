package litellm

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"evenkeel/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the outputs and reports of testdata anew")

// corpus are the inputs in testdata.
func corpus(t testing.TB) (names []string) {
	t.Helper()
	all, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if !strings.HasSuffix(name, ".golden.yaml") {
			names = append(names, name)
		}
	}
	if len(names) < 12 {
		t.Fatalf("found %d inputs", len(names))
	}
	return names
}

func read(t testing.TB, name string) config.Tree {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := config.ReadTree(config.File{Name: name, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// env has every variable, with a value that is fit for a key and for a URL.
func env(name string) (string, bool) {
	return "http://" + strings.ToLower(strings.ReplaceAll(name, "_", "-")) + ".example.com", true
}

// load loads an output, as serve would.
func load(text []byte) (*config.Config, error) {
	c, _, err := config.Load([]config.File{{Name: "out.yaml", Data: text}}, env)
	if err == nil {
		err = c.Validate(nil)
	}
	return c, err
}

func TestCorpus(t *testing.T) {
	for _, name := range corpus(t) {
		result, err := Convert(read(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := load(result.Config); err != nil {
			t.Errorf("%s: the output does not load: %v\n%s", name, err, result.Config)
		}
		stem := strings.TrimSuffix(name, ".yaml")
		for file, got := range map[string]string{
			stem + ".golden.yaml": string(result.Config), stem + ".report.txt": result.Report.Text(filepath.Base(name)),
		} {
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || string(want) != got {
				t.Errorf("%s differs (%v); if that is meant: go test ./internal/litellm -update\ngot:\n%s", file, err, got)
			}
		}
		again, err := Convert(read(t, name))
		if err != nil || !bytes.Equal(again.Config, result.Config) || again.Report.Text("x") != result.Report.Text("x") {
			t.Errorf("%s: a second time it gives something else (%v)", name, err)
		}
		if said := string(result.Config) + result.Report.Text(name); strings.Contains(strings.ToLower(said), "canary") {
			t.Errorf("%s: a secret is in %s", name, said)
		}
	}
}

// secretive matches keys whose values are secret; below environment_variables all are.
var secretive = regexp.MustCompile(`(?i)(key|token|secret|password|credentials|database_url)`)

// hide replaces every secret of a tree by one that can be found, and returns how many there are.
func hide(t *config.Tree, secret bool, n *int) {
	for i := range t.Items {
		hide(&t.Items[i], secret, n)
	}
	for i := range t.Entries {
		e := &t.Entries[i]
		hide(&e.Value, secret || secretive.MatchString(e.Key) && !strings.Contains(e.Key, "_cost") && !strings.Contains(e.Key, "tokens") && e.Key != "credential_list" &&
			e.Key != "credential_values" || e.Key == "environment_variables", n)
	}
	if t.Kind == config.TreeText && secret {
		*n++
		t.Text = fmt.Sprintf("canary%06dcanary", *n)
	}
}

// TestNoSecretIsRepeated puts a text of its own in the place of every secret of every input: none may be in the output or the report.
func TestNoSecretIsRepeated(t *testing.T) {
	total := 0
	for _, name := range corpus(t) {
		tree, n := read(t, name), 0
		hide(&tree, false, &n)
		total += n
		result, err := Convert(tree)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := load(result.Config); err != nil {
			t.Errorf("%s: the output does not load: %v", name, err)
		}
		if said := string(result.Config) + result.Report.Text(name); strings.Contains(said, "canary") {
			t.Errorf("%s: a secret is in %s", name, said)
		}
	}
	if total < 40 {
		t.Errorf("only %d secrets were hidden", total)
	}
}

// FuzzConvert feeds any bytes as a configuration. What is converted loads, twice the same, and nothing panics.
func FuzzConvert(f *testing.F) {
	for _, name := range corpus(f) {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("model_list: &a [*a]"))
	f.Add([]byte("model_list: [{model_name: '<<', litellm_params: {model: 'openai/<<', api_base: 'http://127.0.0.1:8081', api_key: k}}]"))
	f.Add([]byte("model_list: [{model_name: a, litellm_params: {model: azure/b, api_base: os.environ/X}}]\nrouter_settings: {model_group_alias: {'': a, b: a}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := config.ReadTree(config.File{Name: "fuzz.yaml", Data: data})
		if err != nil {
			if err.Error() == "" {
				t.Error("an error that says nothing")
			}
			return
		}
		result, err := Convert(tree)
		if err != nil {
			if !strings.Contains(err.Error(), "is not a LiteLLM configuration") && !errors.Is(err, errTooLarge) {
				t.Errorf("error %v", err)
			}
			return
		}
		if _, err := load(result.Config); err != nil {
			t.Fatalf("the output does not load: %v\n%s", err, result.Config)
		}
		text := result.Report.Text("fuzz.yaml")
		if again, err := Convert(tree); err != nil || !bytes.Equal(again.Config, result.Config) || again.Report.Text("fuzz.yaml") != text {
			t.Errorf("a second time it gives something else (%v)", err)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f || r == 0x1b }) {
			t.Errorf("the report holds control characters: %q", text)
		}
	})
}

// convert converts text that is YAML.
func convert(t *testing.T, text string) (*config.Config, Result) {
	t.Helper()
	tree, err := config.ReadTree(config.File{Name: "in.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	result, err := Convert(tree)
	if err != nil {
		t.Fatal(err)
	}
	c, err := load(result.Config)
	if err != nil {
		t.Fatalf("%v\n%s", err, result.Config)
	}
	return c, result
}

// one is a model_list of one, with more litellm_params.
func one(params string) string {
	return "model_list: [{model_name: m, litellm_params: {" + params + "}}]"
}

func TestEndpoints(t *testing.T) {
	f := func(params, kind, url, model string) {
		t.Helper()
		c, result := convert(t, one(params))
		if len(c.Endpoints) != 1 || c.Endpoints[0].Kind != kind || c.Endpoints[0].URL != url || c.Models[0].Providers[0].Model != model {
			t.Errorf("%s gives %s and %s", params, result.Config, result.Report.Text("in"))
		}
	}
	f("model: openai/gpt-4o", "openai", "https://api.openai.com", "gpt-4o")
	f("model: openai/gpt-4o, api_base: 'https://api.openai.com/v1/'", "openai", "https://api.openai.com", "gpt-4o")
	f("model: o3-mini", "openai", "https://api.openai.com", "o3-mini")
	f("model: claude-opus-4-1", "anthropic", "https://api.anthropic.com", "claude-opus-4-1")
	f("model: anthropic/claude-opus-4-1, api_base: http://claude.internal", "anthropic", "http://claude.internal", "claude-opus-4-1")
	f("model: 'openai/ft:gpt-4o:acme::x'", "openai", "https://api.openai.com", "ft:gpt-4o:acme::x")
	f("model: openai/responses/gpt-5", "openai", "https://api.openai.com", "gpt-5")
	f("model: openai/meta/llama, api_base: http://h:8000/v1", "", "http://h:8000", "meta/llama")
	f("model: meta/llama, custom_llm_provider: hosted_vllm, base_url: http://h:8000/v1", "vllm", "http://h:8000", "meta/llama")
	f("model: groq/openai/gpt-oss-120b", "openai", "https://api.groq.com/openai", "openai/gpt-oss-120b")
	f("model: groq/a, api_base: http://groq.internal/v1", "", "http://groq.internal", "a")
	f("model: ollama/llama3, api_base: http://h:11434/", "ollama", "http://h:11434", "llama3")
	f("model: azure/dep, api_base: https://r.openai.azure.com/openai/v1", "openai", "https://r.openai.azure.com/openai", "dep")
	f("model: azure_ai/phi, api_base: https://r.services.ai.azure.com/models", "openai", "https://r.services.ai.azure.com/openai", "phi")
}

// TestLeftOut lists deployments that cannot be carried over, and what is said about each.
func TestLeftOut(t *testing.T) {
	f := func(params, want string) {
		t.Helper()
		c, result := convert(t, one(params))
		if text := result.Report.Text("in"); len(c.Endpoints) > 0 || len(c.Models) > 0 || !strings.Contains(text, want) {
			t.Errorf("%s gives %s and %s", params, result.Config, text)
		}
	}
	f("model: bedrock/x", "AWS signs its requests")
	f("model: vertex_ai/x", "Google Cloud's credentials")
	f("model: gemini/x", "no /v1/... paths")
	f("model: brand_new/x", "the provider brand_new is not known to this import")
	f("model: mixtral", "names no provider")
	f("model: vllm/x", "has no api_base")
	f("model: azure/x", "has no api_base")
	f("model: azure/x, api_base: http://r.openai.azure.com", "must be an Azure resource")
	f("model: azure/x, api_base: https://elsewhere.example.com", "must be an Azure resource")
	f("model: openai/x, api_base: 'h:8000'", "needs http:// or https://")
	f("model: openai/x, api_base: 'http://h:8000/?key=1'", "must not hold ? or #")
	f("model: openai/x, api_base: 'DNS+http://h:8000'", "is not a URL such as")
	f("model: openai/x, api_base: os.environ/MY-BASE", "must be a URL or os.environ/NAME")
	f("model: openai/x, api_base: 'http://${HOST}:8000'", "must be a URL or os.environ/NAME")
	f("model: openai/x, api_base: 8000", "needs http:// or https://")
	f("model: openai/x, api_key: {a: b}", "must be text, is a map")
	f("model: openai/x, litellm_credential_name: none", "no entry of credential_list")
	f("model: 'openai/*'", "is a pattern, and model_name is not")
	f("model: ''", "names are not empty here")
	f("api_base: http://h", "needs a model_name and litellm_params with a model")
}

func TestNotLiteLLM(t *testing.T) {
	for _, text := range []string{"", "a", "[a]", "endpoints: {}", "services: {litellm: {image: x}}"} {
		tree, err := config.ReadTree(config.File{Name: "in.yaml", Data: []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		if result, err := Convert(tree); err == nil || !strings.Contains(err.Error(), "is not a LiteLLM configuration") {
			t.Errorf("%q gives %s and %v", text, result.Config, err)
		}
	}
}

// TestSameKeyTwice: a key in plain text gets one variable wherever it is used, and none that means something else.
func TestSameKeyTwice(t *testing.T) {
	c, result := convert(t, `
model_list:
  - {model_name: a, litellm_params: {model: openai/a, api_key: sk-one-one-one}}
  - {model_name: b, litellm_params: {model: openai/b, api_base: http://h/v1, api_key: sk-one-one-one}}
  - {model_name: c, litellm_params: {model: openai/c, api_key: os.environ/OPENAI_API_KEY}}
  - {model_name: d, litellm_params: {model: openai/d, api_key: sk-two-two-two}}
`)
	text := string(result.Config)
	if len(c.Endpoints) != 4 || strings.Contains(text+result.Report.Text("in"), "sk-") {
		t.Errorf("got %s", text)
	}
	names := regexp.MustCompile(`api_key: \$\{(\w+)\}`).FindAllStringSubmatch(text, -1)
	if len(names) != 4 || names[0][1] != names[1][1] || names[0][1] == names[3][1] || names[2][1] != "OPENAI_API_KEY" {
		t.Errorf("variables %v", names)
	}
}

// TestOneAddressIsOneEndpoint: servers are told apart by address and key, and by kind only where two are written.
func TestOneAddressIsOneEndpoint(t *testing.T) {
	f := func(first, second string, want ...string) {
		t.Helper()
		c, result := convert(t, "model_list:\n  - {model_name: a, litellm_params: {"+first+"}}\n  - {model_name: b, litellm_params: {"+second+"}}")
		var kinds []string
		for _, e := range c.Endpoints {
			kinds = append(kinds, e.Kind)
		}
		if !slices.Equal(kinds, want) {
			t.Errorf("%s and %s give %s", first, second, result.Config)
		}
	}
	const h = "api_base: http://h:8000/v1"
	f("model: openai/a, "+h, "model: hosted_vllm/b, "+h+"/, api_key: none", "vllm")
	f("model: hosted_vllm/a, "+h, "model: openai/b, "+h, "vllm")
	f("model: openai/a, "+h, "model: openai/a, "+h, "")
	f("model: openai/a, "+h, "model: anthropic/b, api_base: http://h:8000", "", "anthropic")
	f("model: hosted_vllm/a, "+h, "model: ollama/b, api_base: http://h:8000", "vllm", "ollama")
	f("model: openai/a, "+h, "model: openai/b, "+h+", api_key: os.environ/K", "", "")
	f("model: openai/a", "model: gpt-4o, api_base: https://api.openai.com/v1, api_key: os.environ/OPENAI_API_KEY", "openai")
}

// TestNamesOfEndpoints: whatever an address and a variable are called, a name comes of it.
func TestNamesOfEndpoints(t *testing.T) {
	long := strings.Repeat("LONG_", 100)
	c, _ := convert(t, `
model_list:
  - {model_name: a, litellm_params: {model: openai/a, api_base: os.environ/_API_BASE}}
  - {model_name: b, litellm_params: {model: openai/a, api_base: os.environ/`+long+`URL}}
  - {model_name: c, litellm_params: {model: openai/a, api_key: os.environ/OPENAI_`+long+`1}}
  - {model_name: d, litellm_params: {model: openai/a, api_key: os.environ/OPENAI_`+long+`2}}
  - {model_name: e, litellm_params: {model: openai/a, api_key: os.environ/OPENAI_KEY_EU}}
  - {model_name: f, litellm_params: {model: openai/a, api_base: "http://[fe80::1]/v1", api_key: sk-ant-literal}}
  - {model_name: g, litellm_params: {model: openai/a, api_base: "http://straße.example/v1"}}
`)
	var got []string
	for _, e := range c.Endpoints {
		got = append(got, e.Name)
		if len(e.Name) > longestName {
			t.Errorf("the name %s is too long", e.Name)
		}
	}
	if got[0] != "openai" || got[4] != "openai-eu" || got[5] != "[fe80::1]" || got[6] != "stra-e.example" || got[2] == got[3] {
		t.Errorf("names %q", got)
	}
}

// TestBounds: the work is in proportion to the size of the input.
func TestBounds(t *testing.T) {
	var b strings.Builder
	b.WriteString("model_list:\n")
	for i := range 15_000 {
		fmt.Fprintf(&b, "  - {model_name: m, litellm_params: {model: openai/x, api_base: 'http://h:8000/v1', api_key: key-%d, weight: 1}}\n", i)
	}
	c, result := convert(t, b.String())
	if len(c.Endpoints) != 15_000 || len(result.Report.Todo) < 15_000 || len(result.Report.Text("in")) > 10_000_000 {
		t.Errorf("%d endpoints, report of %d bytes", len(c.Endpoints), len(result.Report.Text("in")))
	}
	b.WriteString("router_settings: {model_group_alias: {")
	for i := range 20_000 {
		fmt.Fprintf(&b, "a%d: m, ", i)
	}
	b.WriteString("}}\n")
	tree, err := config.ReadTree(config.File{Name: "in.yaml", Data: []byte(b.String())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Convert(tree); !errors.Is(err, errTooLarge) {
		t.Errorf("an output of gigabytes gives %v", err)
	}
}

// TestDocumentation: docs/import-litellm.md has every provider that is served, and every strategy.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile("../../docs/import-litellm.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range providers {
		for _, prefix := range p.prefixes {
			if p.refused == "" && !strings.Contains(string(data), "`"+prefix+"/`") {
				t.Errorf("%s/ is not documented", prefix)
			}
		}
		if known := append([]string{""}, config.Kinds...); !slices.Contains(known, p.kind) {
			t.Errorf("%v: there is no kind %s", p.prefixes, p.kind)
		}
	}
	for _, s := range strategies {
		if name := strings.TrimSuffix(s.theirs, "-v2"); !strings.Contains(string(data), name) {
			t.Errorf("%s is not documented", s.theirs)
		}
	}
}

// TestWrittenTwice: of what is written twice, or has no effect, the report says so.
func TestWrittenTwice(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if _, result := convert(t, text); !strings.Contains(result.Report.Text("in"), want) {
			t.Errorf("%s gives %s", text, result.Report.Text("in"))
		}
	}
	const deployment = "model_list: [{model_name: m, litellm_params: {model: openai/m}}]\n"
	f(deployment+"router_settings: {num_retries: 1}\nlitellm_settings: {num_retries: 2}", "litellm_settings.num_retries: does not count: router_settings.num_retries is written too")
	f(deployment+"router_settings: {timeout: 1}\nlitellm_settings: {request_timeout: 2}", "litellm_settings.request_timeout: does not count")
	f(deployment+"router_settings: {num_retries: 1, num_retries: 2}", "router_settings.num_retries: is written again at line 2")
	f(deployment+"router_settings: {fallbacks: []}\nrouter_settings: {num_retries: 0}", "router_settings: is written again at line 3")
	f("model_list: [{model_name: m, litellm_params: {model: openai/m, input_cost_per_token: 1, weight: 2, order: 1}, model_info: {input_cost_per_token: 2}}]",
		"model_info.input_cost_per_token: does not count")
	f("model_list: [{model_name: m, litellm_params: {model: openai/m, weight: 2}}]", "weight: there is no other deployment of this model")
	f(deployment+"router_settings: {fallbacks: [{'*': [m]}, {'*': [m]}]}", "fallbacks[1].*: an earlier entry is about the same model")
	f(deployment+"general_settings: {max_request_size_mb: 1e9}", "max_request_size_mb: is too large")
	f(deployment+"credential_list: [{credential_name: a, credential_values: {}}, {credential_name: a, credential_values: {}}]", "an earlier entry has the same credential_name")
}
