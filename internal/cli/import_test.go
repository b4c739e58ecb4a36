package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"evenkeel/internal/mock"
)

const liteLLMConfig = `model_list:
  - model_name: chat
    litellm_params: {model: openai/gpt-4o, api_key: ` + canary + `literal, weight: 2}
  - model_name: chat
    litellm_params: {model: bedrock/claude, aws_secret_access_key: ` + canary + `aws}
litellm_settings:
  request_timeout: 30
`

func TestImportLiteLLM(t *testing.T) {
	file := in(t, map[string]string{
		"config.yaml": liteLLMConfig,
		"whole.yaml":  "model_list: [{model_name: m, litellm_params: {model: openai/m, api_key: os.environ/K}}]\n",
		"broken.yaml": "model_list:\n  - model_name: [\n",
		"ours.yaml":   "endpoints: {a: {url: http://127.0.0.1:1}}\n",
	})
	f := func(code int, args []string, wants ...string) (stdout, stderr string) {
		t.Helper()
		got, stdout, stderr := command(append([]string{"import", "litellm"}, args...)...)
		if got != code || strings.Contains(stdout+stderr, canary) {
			t.Errorf("%q: exit code %d, want %d; stdout %q, stderr %q", args, got, code, stdout, stderr)
		}
		for _, want := range wants {
			if !strings.Contains(stdout+stderr, want) {
				t.Errorf("%q: neither %q nor %q says %q", args, stdout, stderr, want)
			}
		}
		return stdout, stderr
	}
	from, out := file("config.yaml"), file("out.yaml")
	stdout, stderr := f(exitOK, []string{from})
	for _, want := range []string{"endpoints:\n", "api_key: ${OPENAI_API_KEY}\n", "deadlines: {first_token: 30s, response: 30s}\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("stdout %q does not hold %q", stdout, want)
		}
	}
	for _, want := range []string{"carried over: 1 of 2 deployments", "\nnot carried over: 1\n", from + ":5:22: model_list[1].litellm_params.model: the provider bedrock",
		from + ":3:44: model_list[0].litellm_params.api_key: is a key in plain text; set OPENAI_API_KEY to it"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr %q does not hold %q", stderr, want)
		}
	}

	if to, _ := f(exitOK, []string{from, "-o", out}, "carried over: 1 of 2"); to != "" {
		t.Errorf("with -o it prints %q", to)
	}
	if written, err := os.ReadFile(out); err != nil || string(written) != stdout {
		t.Errorf("-o wrote %q (%v), want %q", written, err, stdout)
	}
	f(exitUsage, []string{from, "-o", out}, "out.yaml is there already; choose another name, or write over it with --force")
	f(exitOK, []string{file("whole.yaml"), "-o", out, "--force"}, "not carried over: nothing")
	if written, err := os.ReadFile(out); err != nil || !strings.Contains(string(written), "api_key: ${K}") || strings.Contains(string(written), "deadlines") {
		t.Errorf("--force wrote %q (%v)", written, err)
	}
	t.Setenv("K", "key")
	if code, stdout, stderr := command("check", out); code != exitOK || !strings.HasPrefix(stdout, "ok: 1 endpoint, 1 model") {
		t.Errorf("check: %d, %q, %q", code, stdout, stderr)
	}
	f(exitUsage, []string{from, "-o", from, "--force"}, "is the file that is read")
	if kept, err := os.ReadFile(from); err != nil || string(kept) != liteLLMConfig {
		t.Errorf("the input is now %q (%v)", kept, err)
	}
	f(exitFailure, []string{from, "-o", filepath.Join(file("none"), "out.yaml")}, "-o: open ")
	f(exitFailure, []string{from, "--strict"}, "endpoints:\n", "not carried over: 1")
	f(exitOK, []string{file("whole.yaml"), "--strict"}, "not carried over: nothing")

	f(exitUsage, nil, "name the file to read: evenkeel import litellm config.yaml")
	f(exitUsage, []string{from, from}, "one file at a time")
	f(exitUsage, []string{from, "--force"}, "--force goes with -o FILE")
	f(exitUsage, []string{file("none.yaml")}, "none.yaml: no such file")
	f(exitUsage, []string{file("broken.yaml")}, "broken.yaml:3:1: not YAML", "is a bracket left open?")
	f(exitUsage, []string{file("ours.yaml")}, "ours.yaml is not a LiteLLM configuration: it has none of model_list, ")

	if code, _, stderr := command("import", "litelm"); code != exitUsage || !strings.Contains(stderr, `there is no command "litelm"; did you mean "litellm"? (evenkeel import --help says what each does)`) {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	if code, stdout, _ := command("import"); code != exitOK || !strings.Contains(stdout, "evenkeel import litellm config.yaml") {
		t.Errorf("import alone: exit code %d, stdout %q", code, stdout)
	}
}

// TestImportedConfigurationServes converts a configuration whose api_bases are two engines, and asks for every model by its name in LiteLLM.
func TestImportedConfigurationServes(t *testing.T) {
	const key = "engine-key-7c21"
	engine := func(name, key string, models ...string) *mock.Engine {
		return mockEngine(t, mock.Config{Name: name, Models: models, APIKey: key, OutputTokens: 3})
	}
	open, keyed := engine("open", "", "meta-llama/Llama-3.1-8B-Instruct", "small"), engine("keyed", key, "large")
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "config.yaml"), fmt.Sprintf(`
model_list:
  - {model_name: llama, litellm_params: {model: hosted_vllm/meta-llama/Llama-3.1-8B-Instruct, api_base: "%[1]s/v1", api_key: none}}
  - {model_name: pair, litellm_params: {model: openai/small, api_base: "%[1]s/v1/", weight: 1}}
  - {model_name: pair, litellm_params: {model: openai/large, api_base: "%[2]s/v1", api_key: os.environ/ENGINE_KEY, weight: 1}}
  - {model_name: large, litellm_params: {model: large, custom_llm_provider: openai, base_url: "%[2]s/v1", api_key: os.environ/ENGINE_KEY}}
  - {model_name: broken, litellm_params: {model: openai/gone, api_base: "http://127.0.0.1:1/v1"}}
router_settings:
  model_group_alias: {gpt-4o: large}
  fallbacks: [{broken: [llama]}]
`, open.URL(), keyed.URL()))
	out := filepath.Join(dir, "evenkeel.yaml")
	if code, _, stderr := command("import", "litellm", config, "-o", out); code != exitOK || strings.Contains(stderr, "\nnot carried over: 1") {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	t.Setenv("ENGINE_KEY", key)
	p := serve(t, "--config", out)
	ask := func(model string, want int) (answer string) {
		t.Helper()
		body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, model)
		status, answer := do(http.MethodPost, p.url+"/v1/chat/completions", body)
		if status != want {
			t.Errorf("%s: %d %s", model, status, answer)
		}
		return answer
	}
	for _, model := range []string{"llama", "large", "gpt-4o", "broken"} {
		ask(model, http.StatusOK)
	}
	if answer := ask("broken", http.StatusOK); !strings.Contains(answer, `"meta-llama/Llama-3.1-8B-Instruct"`) {
		t.Errorf("the fallback's answer is %s", answer)
	}
	served := map[string]int{}
	for range 20 {
		_, name, _ := strings.Cut(ask("pair", http.StatusOK), `"model":"`)
		served[name[:min(len(name), 5)]]++
	}
	if served["small"] < 9 || served["large"] < 9 {
		t.Errorf("of 20 requests, equal weights send %v", served)
	}
	ask("unknown", http.StatusNotFound)
}

// TestImportedConfigurationsPassCheck: check finds nothing wrong with any output of the corpus, once its variables are set.
func TestImportedConfigurationsPassCheck(t *testing.T) {
	outputs, err := filepath.Glob("../litellm/testdata/*.golden.yaml")
	if err != nil || len(outputs) < 12 {
		t.Fatalf("found %d outputs, %v", len(outputs), err)
	}
	for _, name := range outputs {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllStringSubmatch(string(text), -1) {
			t.Setenv(m[1], fmt.Sprintf("http://%d.example.com", i)) // fit for a URL and for a key
		}
		if code, stdout, stderr := command("check", name); code != exitOK || !strings.HasPrefix(stdout, "ok: ") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", name, code, stdout, stderr)
		}
	}
}
