package cli

import (
	"cmp"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"evenkeel/internal/config"
	"evenkeel/internal/mock"
	"evenkeel/tests/certs"
)

var update = flag.Bool("update", false, "write the help texts of testdata/help anew")

// commands are the root and all commands below it.
func commands() []*cobra.Command {
	all := []*cobra.Command{newRoot()}
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].Commands()...)
	}
	return all
}

func TestHelp(t *testing.T) {
	var want []string
	for _, c := range commands() {
		way := strings.Fields(c.CommandPath())[1:]
		name := cmp.Or(strings.Join(way, "-"), c.Name()) + ".txt"
		args := append(way, "--help")
		code, stdout, stderr := command(args...)
		if code != exitOK || stderr != "" {
			t.Errorf("%v: exit code %d, stderr %q", args, code, stderr)
		}
		file := filepath.Join("testdata", "help", name)
		want = append(want, name)
		if *update {
			if err := os.WriteFile(file, []byte(stdout), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if golden, err := os.ReadFile(file); err != nil || string(golden) != stdout {
			t.Errorf("%s differs (%v); if that is meant: go test ./internal/cli -run TestHelp -update\ngot:\n%s", file, err, stdout)
		}
	}
	files, err := os.ReadDir(filepath.Join("testdata", "help"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(want, f.Name()) {
			t.Errorf("testdata/help/%s belongs to no command", f.Name())
		}
	}
}

// Every command says what it does in one line, and shows how it is called in lines that can be typed.
func TestEveryCommandHasAnExample(t *testing.T) {
	for _, c := range commands() {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: its short text is %q", c.CommandPath(), c.Short)
		}
		if !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s: its example does not show it: %q", c.CommandPath(), c.Example)
		}
		for l := range strings.Lines(c.Example) {
			if !strings.HasPrefix(l, "  ") {
				t.Errorf("%s: the example line %q is not indented", c.CommandPath(), l)
			}
		}
		for l := range strings.Lines(c.Long) {
			if len([]rune(l)) > 121 {
				t.Errorf("%s: this line of its help is too long: %q", c.CommandPath(), l)
			}
		}
	}
}

func TestWithoutArguments(t *testing.T) {
	code, stdout, stderr := command()
	if code != exitOK || !strings.Contains(stdout, "evenkeel demo") || stderr != "" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestUsageErrors(t *testing.T) {
	bad := func(want string, args ...string) {
		t.Helper()
		code, stdout, stderr := command(args...)
		if code != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "evenkeel: ") || !strings.HasSuffix(stderr, "\n") {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q; want 2 and a message on stderr", args, code, stdout, stderr)
		}
		if !strings.Contains(stderr, want) {
			t.Errorf("%q: %q does not say %q", args, stderr, want)
		}
	}
	bad(`there is no command "serv"; did you mean "serve"? (evenkeel --help says what each does)`, "serv")
	bad(`there is no command "http://127.0.0.1:1"; known are: check, demo, drill, explain, import, mock, serve, simulate, version`, "http://127.0.0.1:1")
	bad("unknown flag: --verbose; evenkeel --help shows the flags", "--verbose")
	bad("unknown flag: --prot; evenkeel serve --help shows the flags", "serve", "--prot", "1")
	bad("flag needs an argument: --config; evenkeel serve --help", "serve", "--config")
	bad("nothing to serve: give the URLs of your endpoints, or --config FILE", "serve")
	bad("give either URLs or --config, not both", "serve", "--config", "x.yaml", "http://127.0.0.1:1")
	bad("good.yaml is a configuration file, not a URL: evenkeel serve --config good.yaml", "serve", "good.yaml")
	bad("x.yml is a configuration file", "serve", "-c", "x.yaml", "x.yml")
	bad("commands_test.go is a configuration file", "serve", "commands_test.go")
	bad("--upstream-key is followed by a flag instead of a key", "serve", "--upstream-key", "--no-auth", "http://127.0.0.1:1")
	bad("--upstream-key is empty; write ${VARIABLE}", "serve", "--upstream-key", "", "http://127.0.0.1:1")
	bad(`--upstream-key: secret file "nope": does not exist; a relative path starts at the working directory`, "serve", "--upstream-key", "file:nope", "http://127.0.0.1:1")
	bad("write the key alone", "serve", "--upstream-key", "Bearer k", "http://127.0.0.1:1")
	bad("write api_key at the endpoint", "serve", "--config", "x.yaml", "--upstream-key", "k")
	bad("--upstream-key: ", "serve", "--upstream-key", "${EVENKEEL_NOT_SET}", "http://127.0.0.1:1")
	bad("EVENKEEL_NOT_SET", "serve", "--upstream-key", "${EVENKEEL_NOT_SET}", "http://127.0.0.1:1")
	bad("name the configuration file to check: evenkeel check evenkeel.yaml", "check")
	bad("explain takes one ID, or the word last; got 0 arguments", "explain")
	bad("explain takes one ID, or the word last; got 2 arguments", "explain", "a", "b")
	for _, address := range []string{"::bad", "http://", "ftp://127.0.0.1:8081", "127.0.0.1:x", "a b", "http://127.0.0.1:8081/?x", "/"} {
		bad(fmt.Sprintf("evenkeel: --admin-url %q is not an address such as 127.0.0.1:8081 or https://lb:8081\n", address), "explain", "--admin-url", address, "last")
	}
	bad("evenkeel: --admin-url is empty; write the address of the balancer's admin listener, such as 127.0.0.1:8081\n", "explain", "--admin-url", "", "last")
	bad(`evenkeel version takes no arguments, got ["now"]`, "version", "now")
	bad(`evenkeel mock takes no arguments, got ["8001"]`, "mock", "8001")
	bad(`--ports "80x": "80x" is neither a port`, "mock", "--ports", "80x")
	bad(`--inter-token must be a duration with its unit such as 15s or 800ms, is "fast"; evenkeel mock --help shows the flags`, "mock", "--inter-token", "fast")
	bad(`--output-tokens must be a whole number such as 200, is "x"; evenkeel mock`, "mock", "--output-tokens", "x")
	bad(`--output-tokens: "99999999999999999999" is too large; evenkeel mock`, "mock", "--output-tokens", "99999999999999999999")
	bad(`--seed must be a whole number such as 200, is "-1"`, "mock", "--seed", "-1")
	bad(`--prefill must be a number such as 0.5, is "x"`, "mock", "--prefill", "x")
	bad(`--no-auth must be true or false, is "x"`, "serve", "--no-auth=x")
	bad("--tls-cert and --tls-key go together", "mock", "--ports", "0", "--tls-cert", "cert.pem")
	bad("--tls-cert none.pem, --tls-key none.pem: open none.pem", "mock", "--ports", "0", "--tls-cert", "none.pem", "--tls-key", "none.pem")
	bad("slots is -1: it cannot be negative", "mock", "--ports", "0", "--slots", "-1")
	bad(`--engine: there is no preset "vllm"; there are dynamo-mock, fifo,`, "mock", "--ports", "0", "--engine", "vllm")
	bad("inter-token time 1ms, base latency 0s: the engine model sets the times; leave these out", "mock", "--ports", "0", "--engine", "sglang", "--inter-token", "1ms")
	bad("slots is 3: an engine of the scheduler fifo runs any number", "mock", "--ports", "0", "--engine", "fifo", "--slots", "3")
	bad("MaxSequences 9000 is above StepTokens 2048", "mock", "--ports", "0", "--engine", "vllm-2048", "--slots", "9000")
	bad("Blocks is 0", "mock", "--ports", "0", "--engine", "vllm-2048", "--kv-tokens", "7")
}

// Mistakes in what is to be served end serve before it listens, each with the value and the way out.
func TestServeRefuses(t *testing.T) {
	refuse := func(args []string, wants ...string) {
		t.Helper()
		code, stdout, stderr := command(append([]string{"serve"}, args...)...)
		if code != exitFailure || stdout != "" || strings.Contains(stderr, canary) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
		for _, want := range wants {
			if !strings.Contains(stderr, want) {
				t.Errorf("%q: %q does not say %q", args, stderr, want)
			}
		}
	}
	const url = "http://127.0.0.1:1"
	refuse([]string{"--listen", "0.0.0.0:0", url}, "0.0.0.0:0 is reachable by others without a key", "virtual_keys", "--no-auth")
	refuse([]string{"--listen", ":0", url}, "virtual_keys", "--no-auth")
	refuse([]string{"--admin", "0.0.0.0:0", "--no-auth", url}, "admin", "127.0.0.1")
	refuse([]string{"--listen", "8080", url}, `"8080"`, "host:port such as 127.0.0.1:8080")
	refuse([]string{"--strategy", "fastest", url}, `unknown strategy "fastest"`, "least_tokens")
	refuse([]string{"--strategy", "round_robbin", url}, `did you mean "round_robin"?`)
	refuse([]string{"--log-level", "loud", url}, `"loud"`, "debug, info, warn, error")
	refuse([]string{"--listen", "", url}, "listen: is empty; write an address such as 127.0.0.1:8080")
	refuse([]string{"--strategy", "", url}, "strategy: has no name; remove it or write one such as predicted_wait")
	refuse([]string{"--log-level", "", url}, `log.level: unknown value ""`, "debug, info, warn, error")
	refuse([]string{"--log-format", "", url}, `log.format: unknown value ""`, "text, json")
	refuse([]string{"127.0.0.1:8000"}, "needs http:// or https:// in front")
	refuse([]string{"--listen", ":0", "--strategy", "fastest", "127.0.0.1:8000"}, "needs http://", "virtual_keys", "unknown strategy")
	refuse([]string{url + "/v1/chat/completions"}, "write the base URL")
	refuse([]string{url, url + "/"}, "are both named 127.0.0.1:1; remove one")
	refuse([]string{"http://user:" + canary + "password@127.0.0.1:1"}, "must not hold a user or password")
	refuse([]string{"--config", filepath.Join(t.TempDir(), "none.yaml")}, "none.yaml", "no such file")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	for _, flag := range []string{"listen", "admin", "metrics"} {
		args := []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--" + flag, taken, url}
		refuse(args, taken, "in use", "choose another address with --"+flag)
	}
}

// loadServe is what serve does with its arguments before it listens.
func loadServe(t *testing.T, args ...string) (*config.Config, []config.Warning) {
	t.Helper()
	var f serveFlags
	cmd := &cobra.Command{}
	f.register(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	c, warnings, err := f.load(cmd.Flags().Args())
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return c, warnings
}

// An empty address turns a listener off, as in a file; a flag that is not given changes nothing.
func TestServeFlagThatIsEmpty(t *testing.T) {
	const url = "http://127.0.0.1:1"
	file := write(t, filepath.Join(t.TempDir(), "c.yaml"), "endpoints: {a: {url: "+url+"}}\nadmin: 127.0.0.1:1234\nmetrics: 127.0.0.1:1235\n")
	f := func(admin, metrics string, args ...string) {
		t.Helper()
		if c, _ := loadServe(t, args...); c.Admin != admin || c.Metrics != metrics {
			t.Errorf("%q: admin %q, metrics %q; want %q, %q", args, c.Admin, c.Metrics, admin, metrics)
		}
	}
	f("127.0.0.1:8081", "", url)
	f("", "", "--admin", "", url)
	f("127.0.0.1:1234", "127.0.0.1:1235", "--config", file)
	f("", "", "--config", file, "--admin=", "--metrics=")
}

func TestUpstreamKeyInPlainTextWarns(t *testing.T) {
	t.Setenv("UPSTREAM_KEY", upstreamKey)
	const url = "http://127.0.0.1:1"
	c, warnings := loadServe(t, "--upstream-key", upstreamKey, url)
	if c.Endpoints[0].APIKey.Reveal() != upstreamKey || len(warnings) != 1 || warnings[0].String() !=
		"--upstream-key: is a secret in plain text; write ${NAME} for an environment variable, or file:PATH" {
		t.Errorf("warnings %q", warnings)
	}
	if c, warnings = loadServe(t, "--upstream-key", "${UPSTREAM_KEY}", url); c.Endpoints[0].APIKey.Reveal() != upstreamKey || len(warnings) != 0 {
		t.Errorf("warnings %q", warnings)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	t.Setenv("UPSTREAM_KEY", upstreamKey)
	endpoints := file("endpoints.yaml", "endpoints: {a: {url: http://127.0.0.1:1, api_key: '${UPSTREAM_KEY}'}}\n")
	policy := file("policy.yaml", "strategy: {name: p2c_ewma, half_life: 3s}\nmodels: {m: {providers: [{name: a}]}}\n")
	written := file("written.yaml", "endpoints: {a: {url: http://127.0.0.1:1, api_key: "+canary+"literal}}\n")
	unknown := file("unknown.yaml", "endpoints: {a: {url: http://127.0.0.1:1, wieght: 2, api_key: '${NOT_SET_HERE}'}}\nstrategi: weighted\n")
	exposed := file("exposed.yaml", "listen: 0.0.0.0:80\nendpoints: {a: {url: http://127.0.0.1:1}}\nstrategy: weighed\n")
	both := file("both.yaml", "listen: 0.0.0.0:80\nendpoints: {a: {url: http://127.0.0.1:1, wieght: 2}}\nstrategy: weighed\n")
	limits := file("limits.yaml", "endpoints: {a: {url: http://127.0.0.1:1}}\nmodels:\n"+
		"  x: {providers: [{name: a, model: m, limits: {in_flight: 1}}]}\n  y: {providers: [{name: a, model: m}]}\n")
	none := filepath.Join(dir, "none.yaml")

	check := func(code int, args []string, wants ...string) {
		t.Helper()
		got, stdout, stderr := command(append([]string{"check"}, args...)...)
		if got != code || strings.Contains(stdout+stderr, canary) {
			t.Errorf("%q: exit code %d, want %d; stdout %q, stderr %q", args, got, code, stdout, stderr)
		}
		if (code == exitOK) != strings.HasPrefix(stdout, "ok: ") {
			t.Errorf("%q: stdout %q with exit code %d", args, stdout, code)
		}
		for _, want := range wants {
			if !strings.Contains(stdout+stderr, want) {
				t.Errorf("%q: neither %q nor %q says %q", args, stdout, stderr, want)
			}
		}
	}
	check(exitOK, []string{endpoints}, "ok: 1 endpoint, 0 models, strategy predicted_wait, 0 warnings")
	check(exitOK, []string{endpoints, policy}, "ok: 1 endpoint, 1 model, strategy p2c_ewma")
	check(exitOK, []string{"--config", endpoints, "--config", policy}, "ok: 1 endpoint, 1 model")
	check(exitOK, []string{"-c", endpoints, "-c", policy}, "ok: 1 endpoint, 1 model")
	check(exitOK, []string{"--config", endpoints, policy}, "ok: 1 endpoint, 1 model")
	ca := certs.NewAuthority(t, "ours")
	ca.Issue(t, time.Now().Add(-time.Hour), "localhost").Write(t, dir, "old")
	ca.Local(t).Write(t, dir, "new")
	old := write(t, filepath.Join(dir, "old.yaml"), "endpoints: {e: {url: http://10.0.0.1}}\ntls: {cert: old.pem, key: old.key}")
	check(exitOK, []string{old}, "old.yaml:2:7: tls.cert: the certificate has expired on ", ", 1 warning\n")
	mixed := write(t, filepath.Join(dir, "mixed.yaml"), "endpoints: {e: {url: http://10.0.0.1}}\nadmin_tls: {cert: old.pem, key: new.key}")
	check(exitFailure, []string{mixed}, "mixed.yaml:2:28: admin_tls.key: ", "does not go with the certificate in ")
	check(exitOK, []string{written}, "warning: "+written+":1:", "api_key", ", 1 warning\n")
	probes := file("probes.yaml", "endpoints: {a: {url: http://127.0.0.1:1}}\nhealth_checks: {probe_prompt: ready?!, interval: 15s}\n"+
		"models: {m: {providers: [{name: a, price: {input: 2.5, output: 10}}]}}\n")
	check(exitOK, []string{probes}, "warning: "+probes+":2:17: health_checks.probe_prompt: the probes cost up to 1.07 $ a day",
		"probes cost at most 1.07 $ a day: ", "  a/m: 5760 × ((10 × 2.5 $ + 16 × 10 $) / 1000000) = 1.07 $\n")
	check(exitFailure, []string{policy}, "policy.yaml:2:", `no endpoint is named "a"`)
	check(exitFailure, []string{endpoints, endpoints}, "set twice", "endpoints.yaml:1:")
	check(exitFailure, []string{unknown}, "unknown.yaml:1:42", `"weight"`, "NOT_SET_HERE", "unknown.yaml:2:1", `"strategy"`)
	check(exitFailure, []string{both}, "both.yaml:1:", "reachable by others", "both.yaml:2:", `"weight"`, "both.yaml:3:", `did you mean "weighted"?`)
	check(exitFailure, []string{exposed}, "exposed.yaml:1:1: listen", "virtual_keys", "--no-auth", `did you mean "weighted"?`)
	check(exitFailure, []string{limits}, "limits.yaml:4:", `"m" at endpoint a has other limits as a provider of "x"; write the same in both`)
	check(exitFailure, []string{none, endpoints}, none, "no such file")
	check(exitFailure, []string{dir}, dir)
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		code, stdout, stderr := command(arg)
		if code != exitOK || !strings.HasPrefix(stdout, "evenkeel "+Version()+" go") || strings.Count(stdout, "\n") != 1 || stderr != "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", arg, code, stdout, stderr)
		}
	}
}

func TestExplainFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for _, scheme := range []string{"http://", ""} { // which is assumed
		code, stdout, stderr := command("explain", "--admin-url", scheme+l.Addr().String(), "last")
		if code != exitFailure || stdout != "" || !strings.Contains(stderr, "no balancer answers at http://"+l.Addr().String()) ||
			!strings.Contains(stderr, "evenkeel serve") || !strings.Contains(stderr, "--admin") {
			t.Errorf("nobody there: exit code %d, stdout %q, stderr %q", code, stdout, stderr)
		}
	}
}

// hostPort is an address without its scheme.
func hostPort(url string) string { return strings.TrimPrefix(url, "http://") }

func TestMockCommand(t *testing.T) {
	p := run(t, "mock", "--ports", "0,0", "--name", "b", "--model", "llama", "--api-key", "k", "--output-tokens", "3")
	p.says("control http://", 1)
	var engines []string
	var control string
	for l := range strings.Lines(p.out.text()) {
		switch f := strings.Fields(l); f[0] {
		case "engine":
			engines = append(engines, f[1])
		case "control":
			control = f[1]
		}
	}
	if len(engines) != 2 || !strings.Contains(p.out.text(), "(b-2)") {
		t.Fatalf("engines %v of %s", engines, p.out.text())
	}
	if status, body := get(engines[0]+"/v1/models", "Authorization", "Bearer k"); status != http.StatusOK || !strings.Contains(body, `"llama"`) {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := get(engines[1] + "/v1/models"); status != http.StatusUnauthorized {
		t.Errorf("without the key: %d", status)
	}
	_, port, _ := net.SplitHostPort(hostPort(engines[1]))
	status, body := do(http.MethodPost, fmt.Sprintf("%s/%s/fault", control, port), `{"kind":"status","status":418}`)
	if status != http.StatusOK {
		t.Fatalf("switching a fault on: %d %s", status, body)
	}
	chat := `{"model":"llama","messages":[{"role":"user","content":"hi"}]}`
	for i, want := range []int{http.StatusOK, http.StatusTeapot} {
		if status, body := do(http.MethodPost, engines[i]+"/v1/chat/completions", chat, "Authorization", "Bearer k"); status != want {
			t.Errorf("engine %d: %d %s, want %d", i, status, body, want)
		}
	}
	p.signal(os.Interrupt)
	if code := p.exit(); code != exitOK {
		t.Errorf("exit code %d, want 0", code)
	}
}

// The help of mock names every field of a fault, and every variant.
func TestMockHelpIsWhole(t *testing.T) {
	_, help, _ := command("mock", "--help")
	for f := range reflect.TypeFor[mock.Fault]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !strings.Contains(help, "\n  "+name+" ") {
			t.Errorf("the field %s is not in the help", name)
		}
	}
	for _, k := range mock.FaultKinds() {
		for _, v := range k.Variants {
			if !strings.Contains(help, fmt.Sprintf("%q", v)) {
				t.Errorf("the variant %q of %s is not in the help", v, k.Name)
			}
		}
	}
}

func TestMockPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	code, _, stderr := command("mock", "--ports", port)
	if code != exitFailure || !strings.Contains(stderr, port) || !strings.Contains(stderr, "in use") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestParsePorts(t *testing.T) {
	f := func(text string, want ...int) {
		t.Helper()
		if got, err := parsePorts(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q gives %v and %v, want %v", text, got, err, want)
		}
	}
	f("8001", 8001)
	f("8001,8003", 8001, 8003)
	f("8001-8003", 8001, 8002, 8003)
	f(" 8001 , 8003-8004 ", 8001, 8003, 8004)
	f("0,0", 0, 0)
	f("65535", 65535)
	f("7-7", 7)
	bad := func(text, want string) {
		t.Helper()
		if got, err := parsePorts(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v and %v, want an error that says %q", text, got, err, want)
		}
	}
	bad("", "neither a port")
	bad("8001,", "neither a port")
	bad("65536", `"65536" is neither a port (0 to 65535)`)
	bad("-1", "neither a port")
	bad("8003-8001", `"8003-8001" is neither`)
	bad("1-2-3", "neither")
	bad("0x10", "neither")
	bad("1-65535", "more than 1000 ports")
}

func FuzzParsePorts(f *testing.F) {
	for _, text := range []string{"8001", "8001,8002", "8001-8003", "0,0", "", ",", "-", "1-65535", "99999", " 7 - 9 ", "1-1,1-1", "\x00", "٣"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ports, err := parsePorts(text)
		if err != nil {
			if ports != nil || !strings.Contains(err.Error(), "--ports ") {
				t.Errorf("%q gives %v and %v", text, ports, err)
			}
			return
		}
		if len(ports) == 0 || len(ports) > mostPorts {
			t.Errorf("%q gives %d ports", text, len(ports))
		}
		var again []string
		for _, p := range ports {
			if p < 0 || p > 65535 {
				t.Errorf("%q gives port %d", text, p)
			}
			again = append(again, fmt.Sprint(p))
		}
		if got, err := parsePorts(strings.Join(again, ",")); err != nil || !slices.Equal(got, ports) {
			t.Errorf("%q gives %v, and that written out %v and %v", text, ports, got, err)
		}
	})
}
