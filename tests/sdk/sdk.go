// Package sdk runs official client libraries: the programs beside it, in
// Python and JavaScript, each with named scenarios.
package sdk

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"evenkeel/tests/harness"
)

// Client is one official library.
type Client struct {
	Name     string // for the names of tests
	language string
	library  string // the program's first argument
}

// OpenAI and Anthropic are the libraries for each dialect.
var (
	OpenAI    = []Client{{"python-openai", "python", "openai"}, {"node-openai", "node", "openai"}}
	Anthropic = []Client{{"python-anthropic", "python", "anthropic"}, {"node-anthropic", "node", "anthropic"}}
)

// Clients returns all of them.
func Clients() []Client { return slices.Concat(OpenAI, Anthropic) }

// scenarioLimit ends a scenario that hangs. The long ones are a 64 KiB prompt
// on a real engine and 16 streams at once on a busy machine.
const scenarioLimit = 90 * time.Second

// Runner is a running program that waits for names of scenarios.
type Runner struct {
	client   Client
	process  *harness.Process
	scenario string // that runs now, or ran last
}

// Start starts a client against baseURL (without /v1) until the test ends. An
// empty key sends a placeholder.
func Start(t testing.TB, client Client, baseURL, key, model string) *Runner {
	t.Helper()
	dir := filepath.Join(harness.Root(t), "tests", "sdk", client.language)
	var cmd *exec.Cmd
	if client.language == "python" {
		cmd = exec.Command(harness.Python(t), filepath.Join(dir, "run.py"), client.library)
	} else {
		cmd = exec.Command(harness.Node(t), filepath.Join(dir, "run.mjs"), client.library)
	}
	cmd.Env = append(os.Environ(), "BASE_URL="+baseURL, "API_KEY="+key, "MODEL="+model, "PYTHONDONTWRITEBYTECODE=1")
	return &Runner{client: client, process: harness.Start(t, cmd)}
}

var resultLine = regexp.MustCompile(`^(\{"name".*\})$`)

// Result is how a scenario ended.
type Result struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // what was seen, or what went wrong
}

// Run runs one scenario and fails the test if the scenario failed.
func (r *Runner) Run(t testing.TB, scenario string) {
	t.Helper()
	result := r.Try(t, scenario)
	if !result.OK {
		t.Errorf("%s: %s: %s", r.client.Name, scenario, result.Detail)
		return
	}
	t.Logf("%s: %s: %s", r.client.Name, scenario, result.Detail)
}

// Try runs one scenario that may fail.
func (r *Runner) Try(t testing.TB, scenario string) Result {
	t.Helper()
	r.Begin(t, scenario)
	return r.End(t)
}

// Begin starts a scenario and does not wait for it. End must follow.
func (r *Runner) Begin(t testing.TB, scenario string) {
	t.Helper()
	r.scenario = scenario
	r.process.WriteLine(t, scenario)
}

// End waits for the scenario that Begin started.
func (r *Runner) End(t testing.TB) Result {
	t.Helper()
	line := r.process.Await(t, resultLine, scenarioLimit)[1]
	var result Result
	if err := json.Unmarshal([]byte(line), &result); err != nil || result.Name != r.scenario {
		t.Fatalf("%s: no result for %s, but (%v): %s", r.client.Name, r.scenario, err, line)
	}
	return result
}
