package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var testSite = site{home: "/peers/x", file: "/run/x.conf", host: "127.0.0.1", port: "4000", spare: "4001",
	models: []servedModel{{"fast", []string{"127.0.0.1:1", "127.0.0.1:2"}}, {"paced", []string{"127.0.0.1:3"}}}}

func TestPeerConfigs(t *testing.T) {
	f := func(got string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in:\n%s", want, got)
			}
		}
	}
	f(haproxyConfig(testSite), "\n  bind 127.0.0.1:4000\n", "\n  server engine-1 127.0.0.1:1\n  server engine-2 127.0.0.1:2\n")
	f(litellmConfig(testSite), `{model_name: "fast", litellm_params: {model: "openai/fast", api_base: "http://127.0.0.1:2/v1", api_key: sk-bench}`,
		`{model_name: "paced", litellm_params: {model: "openai/paced", api_base: "http://127.0.0.1:3/v1", api_key: sk-bench}`)
	f(strings.Join(litellmCommand(testSite), " "), "/peers/x/bin/litellm --config /run/x.conf --host 127.0.0.1 --port 4000 --num_workers ")
	f(strings.Join(routerCommand("some_router")(testSite), " "), "/peers/x/bin/python -m some_router.launch_router --host 127.0.0.1 --port 4000 ",
		"--prometheus-port 4001", "--worker-urls http://127.0.0.1:1 http://127.0.0.1:2")
	for _, p := range peers {
		command := p.command(testSite)
		if command[0] == "" || p.how == "" || (p.config == nil) == slices.Contains(command, testSite.file) {
			t.Errorf("%s: command %q, runs as %q; a configuration file: %t", p.name, command, p.how, p.config != nil)
		}
		told := strings.Join(command, " ")
		if p.config != nil {
			told += p.config(testSite)
		}
		if !strings.Contains(told, "4000") {
			t.Errorf("%s is not told its port: %q", p.name, told)
		}
	}
}

// What Portkey needs reaches it in the requests, beside all else.
func TestPortkeyFields(t *testing.T) {
	request := cell{model: "fast", tokens: 3}.request(portkeyFields(testSite.models[0]))
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(request)))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Strategy struct{ Mode string }
		Targets  []struct {
			Provider   string
			CustomHost string `json:"custom_host"`
		}
	}
	if err := json.Unmarshal([]byte(r.Header.Get("X-Portkey-Config")), &config); err != nil {
		t.Fatalf("%v: %q", err, r.Header)
	}
	if config.Strategy.Mode != "loadbalance" || len(config.Targets) != 2 || config.Targets[1].CustomHost != "http://127.0.0.1:2/v1" || config.Targets[0].Provider != "openai" {
		t.Errorf("configuration %+v", config)
	}
	if body, err := io.ReadAll(r.Body); err != nil || !json.Valid(body) || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("body %q, %v, fields %q", body, err, r.Header)
	}
}

func TestParseWithPeers(t *testing.T) {
	f := func(args, peers, cells, problem string) {
		t.Helper()
		o, err := parse(strings.Fields(args), io.Discard)
		if got := errorText(err); problem != "" || got != "" {
			if problem == "" || !strings.Contains(got, problem) {
				t.Errorf("parse(%s): %q, want %q", args, got, problem)
			}
			return
		}
		var names []string
		for _, p := range o.peers {
			names = append(names, string(p.name))
		}
		if got := strings.Join(names, ","); got != peers {
			t.Errorf("parse(%s): peers %s, want %s", args, got, peers)
		}
		if got := strings.Join(cellNames(o.cells), ","); got != cells {
			t.Errorf("parse(%s): cells %s, want %s", args, got, cells)
		}
	}
	f("--peers all", strings.Join(peerNames(), ","), defaultPeerCells, "")
	f("--peers litellm,haproxy --cells rate", "litellm,haproxy", "rate", "")
	f("", "", strings.Join(cellNames(cells), ","), "")
	f("--peers nginx", "", "", `there is no peer "nginx"; there are haproxy, sglang-router, `)
	f("--peers all --cells tls-small", "", "", `there is no cell "tls-small"; there are small, rate, paced, unhurried, burst, prompt-64k, prompt-1m, paced-20`)
	f("--cells paced-20", "", "", `there is no cell "paced-20"`)
	f("--peers all --profile x", "", "", "--peers and --profile")
}

func TestInstalled(t *testing.T) {
	folder := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("there/version", "there 1.2\n")
	put("broken/failed", "no such version\n")
	f := func(name target, version, absent string) {
		t.Helper()
		if v, a := installed(folder, name); v != version || a != absent {
			t.Errorf("%s: %q, %q; want %q, %q", name, v, a, version, absent)
		}
	}
	f("there", "there 1.2", "")
	f("broken", "", "it could not be installed: no such version")
	f("never", "", "it is not installed: run scripts/peers")

	b := &bed{dir: t.TempDir(), targets: targets}
	err := b.startPeers(t.Context(), folder, []peer{{name: "broken"}, {name: "never"}}, nil, io.Discard)
	if got := errorText(err); !strings.Contains(got, "no peer can be measured:\nbroken is left out: it could not be installed: no such version\nnever is left out: ") || len(b.guests) != 2 || len(b.targets) != len(targets) {
		t.Errorf("%v; guests %+v, targets %v", err, b.guests, b.targets)
	}
}

const (
	gistStream = `data: {"choices":[{"delta":{"role":"assistant","content":""}}],"usage":null}` + "\n\n" +
		`data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n" + `data: {"choices":[{"delta":{"content":"é\n"}}]}` + "\n\n" +
		`data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}` + "\n\ndata: [DONE]\n\n"
	gistWhole = `{"choices":[{"message":{"content":"aé"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`
)

func TestGist(t *testing.T) {
	f := func(body string, want gist, ok bool) {
		t.Helper()
		if got, is := gistOf([]byte(body)); is != ok || ok && got != want {
			t.Errorf("gistOf(%q) = %+v, %t; want %+v, %t", body, got, is, want, ok)
		}
	}
	f(gistStream, gist{text: "aé\n", finish: "stop", input: 5, output: 2, events: 6, done: true}, true)
	f(strings.ReplaceAll(gistStream, `"content":"é`, `"refusal":null, "content": "\u00e9`), gist{text: "aé\n", finish: "stop", input: 5, output: 2, events: 6, done: true}, true)
	f(gistWhole, gist{text: "aé", finish: "stop", input: 5, output: 2}, true)
	f(strings.TrimSuffix(gistStream, "data: [DONE]\n\n"), gist{}, false)
	f(strings.ReplaceAll(gistStream, `"stop"`, "null"), gist{}, false)
	f(gistStream+"data: {}\n\n", gist{}, false)
	f(`data: {"error":{"message":"no"}}`+"\n\ndata: [DONE]\n\n", gist{}, false)
	f(`{"error":{"message":"no"}}`, gist{}, false)
	f("", gist{}, false)

	want := answers{[]byte(gistWhole), []byte(gistStream)}.gists()
	find := func(body string, engine int) {
		t.Helper()
		if got := findGist(want, []byte(body)); got != engine {
			t.Errorf("findGist(%q) = %d, want %d", body, got, engine)
		}
	}
	find(gistStream, 1)
	find(strings.Replace(gistWhole, "{", "{ ", 1), 0)
	find(strings.Replace(gistStream, `"content":"a"`, `"content":"b"`, 1), -1)
	find(strings.Replace(gistStream, `"completion_tokens":2`, `"completion_tokens":3`, 1), -1)
	find(strings.Replace(gistStream, `data: {"choices":[{"delta":{"content":"a"}}]}`+"\n\n", "", 1), -1)
	find("data: [DONE]\n\n", -1)
}

func FuzzGist(f *testing.F) {
	f.Add([]byte(gistStream))
	f.Add([]byte(gistWhole))
	f.Add([]byte("data: [DONE]\n\n"))
	f.Add([]byte(`data: {"choices":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		g, ok := gistOf(body)
		if ok && (g.finish == "" || bytes.HasPrefix(body, []byte("data:")) != g.done) {
			t.Errorf("gistOf(%q) = %+v", body, g)
		}
		if i := findGist([]gist{{}}, body); i >= 0 {
			t.Errorf("%q says nothing, and that is taken for an answer", body)
		}
	})
}

// recoderVariable makes of a test program a gateway: its address, its engine, and what in a request makes it die.
const recoderVariable = "EVENKEEL_BENCH_RECODER"

// recoder is a gateway that decodes answers and encodes them again. It serves until a signal ends it.
func recoder(told string) error {
	address, more, _ := strings.Cut(told, " ")
	engine, fatal, _ := strings.Cut(more, " ")
	recode := func(w io.Writer, data []byte) {
		var v any
		if json.Unmarshal(data, &v) == nil {
			data, _ = json.Marshal(v)
		}
		w.Write(data)
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if fatal != "" && bytes.Contains(body, []byte(fatal)) {
			os.Exit(1)
		}
		res, err := http.Post("http://"+engine+r.URL.Path, "application/json", bytes.NewReader(body))
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer res.Body.Close()
		if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
			data, _ := io.ReadAll(res.Body)
			recode(w, data)
			return
		}
		for lines := bufio.NewScanner(res.Body); lines.Scan(); http.NewResponseController(w).Flush() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				io.WriteString(w, "data: ")
				recode(w, []byte(data))
				io.WriteString(w, "\n\n")
			}
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return http.Serve(l, http.HandlerFunc(handler))
}

// Peers take part beside the others. Those who cannot, or no longer, are told of with the reason and stop nobody.
func TestPeersTakePart(t *testing.T) {
	needNginx(t)
	o, err := parse([]string{"--rounds", "2", "--seconds", "0.1", "--peers", "all", "--cells", "small,burst"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBed(t.Context(), o.cells, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}()
	recodes := func(fatal string) func(s site) []string {
		return func(s site) []string {
			return []string{"env", recoderVariable + "=" + s.address() + " " + s.models[0].engines[0] + " " + fatal, os.Args[0]}
		}
	}
	// The names are known ones, the programs are not theirs.
	played := []peer{
		{name: "haproxy", how: "passes bytes", apart: true, command: func(s site) []string {
			return []string{b.binary(), "serve", "--config", s.file}
		}, config: func(s site) string {
			return fmt.Sprintf("listen: %s\nadmin: 127.0.0.1:0\nendpoints: {e: {url: %s}}\n", s.address(), s.models[0].urls()[0])
		}},
		{name: "litellm", how: "recodes", command: recodes("")},
		{name: "portkey", how: "dies", command: recodes(`"max_tokens":20,`)},
		{name: "vllm-router", how: "does not start", command: func(site) []string { return []string{"sh", "-c", "echo out of order; exit 1"} }},
	}
	folder := t.TempDir()
	for _, p := range played {
		dir := filepath.Join(folder, string(p.name))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "version"), []byte(string(p.name)+" 1.0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	played = append(played, peer{name: "sglang-router", how: "is not there"})
	if err := b.startPeers(t.Context(), folder, played, modelsOf(o.cells), io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, g := range b.guests {
		if absent := g.name == "vllm-router" || g.name == "sglang-router"; (g.absent != "") != absent {
			t.Fatalf("%s is absent: %q", g.name, g.absent)
		}
	}
	var out bytes.Buffer
	r, err := b.run(t.Context(), o, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if r.wrong() != 0 || len(r.unproven()) != 0 {
		t.Errorf("wrong: %d, %v\n%s", r.wrong(), r.unproven(), out.String())
	}
	rounds := func(cell string, name target, want int) {
		t.Helper()
		if got := r.samples[cell][name]; len(got) != want {
			t.Errorf("%s has %d rounds of cell %s, want %d:\n%s", name, len(got), cell, want, out.String())
		}
		if sum := r.tallies[cell][name]; sum.wrong() != 0 || (sum.complete > 0) != (want > 0) {
			t.Errorf("%s in cell %s: %+v", name, cell, sum)
		}
	}
	for _, cell := range []string{"small", "burst"} {
		rounds(cell, "nginx", 2)
		rounds(cell, "haproxy", 2)
		rounds(cell, "litellm", 2)
	}
	rounds("small", "portkey", 1)
	rounds("burst", "portkey", 0)

	report := renderPeers(about{date: "today"}, o, r, b.guests)
	for _, want := range []string{"| haproxy | haproxy 1.0 | passes bytes | bytes |\n", "| litellm | litellm 1.0 | recodes | what they say |\n",
		"| sglang-router | – | is not there | – (not measured) |\n", "\nsglang-router was not measured:\n\n```\nit is not installed: run scripts/peers\n```\n",
		"vllm-router-fast has ended; the end of its output:\nout of order\n```\n", "\nportkey took no more part after 0 rounds:\n", "\n## Cell burst\n", "\n| burst | litellm | "} {
		if !strings.Contains(report, want) {
			t.Errorf("no %q in the report:\n%s", want, report)
		}
	}
	if strings.Contains(report, "NaN") || strings.Contains(report, "\n| vllm-router | –") {
		t.Errorf("figures of what was not measured:\n%s", report)
	}
}

// A target that does not keep up with the pace of the engines is named, and one without any answer has no figures.
func TestOverloadIsTold(t *testing.T) {
	r := results{samples: map[string]map[target][]sample{"paced-20": {
		direct: {{units: 1000, seconds: 1}}, nginx: {{units: 990, seconds: 1, cpu: time.Millisecond}}, evenkeel: {{units: 980, seconds: 1, cpu: 2 * time.Millisecond}},
		"litellm": {{units: 400, seconds: 1, cpu: time.Second}}, "portkey": {{seconds: 1, cpu: time.Second}},
	}}}
	var b strings.Builder
	renderPeerCell(&b, fewer, r, append(slices.Clone(targets), "litellm", "portkey"))
	for _, want := range []string{"in the same time: litellm, portkey.", "| litellm | 2500.00 | 2475.00 |", "| evenkeel | 2.04 | 2.02 | 2.02–2.02 |", "| portkey | – | – | – | 0 | 0 | 0.00 |", "## Time added to paced-20 streams"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}
