package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// peer is another balancer or gateway that can be measured beside evenkeel. scripts/peers installs it.
type peer struct {
	name target
	how  string // it runs, for the report
	// apart: it cannot tell models apart, so that each model has a process of its own.
	apart   bool
	config  func(s site) string        // the content of its configuration file; nil = it needs none
	command func(s site) []string      // that runs it in the foreground
	fields  func(m servedModel) string // header fields that requests need; nil = none
}

// site is what one process of a peer is told.
type site struct {
	home   string // where scripts/peers has installed it
	file   string // its configuration
	host   string // to listen on
	port   string
	spare  string // another free port
	models []servedModel
}

func (s site) address() string { return s.host + ":" + s.port }

// servedModel is a model and the addresses of its engines.
type servedModel struct {
	name    string
	engines []string
}

func (m servedModel) urls() []string {
	var all []string
	for _, engine := range m.engines {
		all = append(all, "http://"+engine)
	}
	return all
}

const routerHow = "a process for each model, with its own number of threads; its default policy, `cache_aware`; it logs errors only, as its log has no batches; its metrics are on"

// peers are run as their manuals say for this use: as many workers or threads as there are cores where they can have
// them, connections kept on both sides, streams not buffered, no authentication. A log line for each request is off where it
// could only be written on its own, as nginx and evenkeel write theirs in batches.
var peers = []peer{
	{name: "haproxy", apart: true, config: haproxyConfig,
		command: func(s site) []string { return []string{"haproxy", "-db", "-f", s.file} },
		how:     "a process for each model, with a thread per core; round robin; its log is off, as it has no batches"},
	{name: "sglang-router", apart: true, command: routerCommand("sglang_router"),
		how: routerHow + ". It does not set TCP_NODELAY on its clients' connections, so the first tokens of a stream wait for the client's delayed acknowledgement"},
	{name: "vllm-router", apart: true, command: routerCommand("vllm_router"),
		how: routerHow},
	{name: "portkey", fields: portkeyFields,
		command: func(s site) []string {
			return []string{"env", "NODE_ENV=production", "node", filepath.Join(s.home, "node_modules/@portkey-ai/gateway/build/start-server.js"), "--headless", "--port=" + s.port}
		},
		how: "one process, as it has no workers; `loadbalance` over the engines, in the header `x-portkey-config` of each request; it has no log of requests. Its dependency `@hono/node-server` is held at 1.13.8: with 1.14 and later it answers every stream with status 500"},
	{name: "litellm", config: litellmConfig, command: litellmCommand,
		how: "a worker process per core; its default strategy, `simple-shuffle`; models with a price, no database, no callbacks; it logs errors only, as its log has no batches. 1.106 because releases since, 1.109.3 and 1.110.2, need packages that are not in the index"},
}

func isPeer(t target) bool {
	return slices.ContainsFunc(peers, func(p peer) bool { return p.name == t })
}

func peerNames() []string {
	var names []string
	for _, p := range peers {
		names = append(names, string(p.name))
	}
	return names
}

// parsePeers reads a list of names; "all" are all.
func parsePeers(list string) ([]peer, error) {
	if list == "all" {
		return peers, nil
	}
	var some []peer
	for name := range strings.SplitSeq(list, ",") {
		i := slices.Index(peerNames(), strings.TrimSpace(name))
		if i < 0 {
			return nil, fmt.Errorf("--peers %q: there is no peer %q; there are %s, and all", list, name, strings.Join(peerNames(), ", "))
		}
		some = append(some, peers[i])
	}
	return some, nil
}

// fewer is a cell for those whom 200 streams at a time are too many.
var fewer = cell{name: "paced-20", about: "20 streams of 100 tokens at a time, 10 ms between tokens", model: "paced",
	concurrency: 20, tokens: 100, stream: true, paced: true, unit: "event"}

const defaultPeerCells = "small,paced,paced-20,burst,prompt-64k"

// peerCells are the cells that peers can be measured in: with a load, and without TLS or HTTP/2.
func peerCells() []cell {
	var all []cell
	for _, c := range append(slices.Clone(cells), fewer) {
		plain := c.held == 0 && !c.h2 && !slices.ContainsFunc(models, func(m model) bool { return m.name == c.model && (m.clientTLS || m.engineTLS) })
		if plain {
			all = append(all, c)
		}
	}
	return all
}

func haproxyConfig(s site) string {
	var text strings.Builder
	fmt.Fprintf(&text, `global
  maxconn %d
defaults
  mode http
  timeout connect 10s
  timeout client 10m
  timeout server 10m
  option http-no-delay
  http-reuse always
  balance roundrobin
listen engines
  bind %s
`, workerConnections, s.address())
	for i, engine := range s.models[0].engines {
		fmt.Fprintf(&text, "  server engine-%d %s\n", i+1, engine)
	}
	return text.String()
}

// routerCommand is for the two routers that stem from one.
func routerCommand(module string) func(s site) []string {
	return func(s site) []string {
		args := []string{filepath.Join(s.home, "bin/python"), "-m", module + ".launch_router", "--host", s.host, "--port", s.port,
			"--prometheus-host", s.host, "--prometheus-port", s.spare, "--log-level", "error", "--worker-urls"}
		return append(args, s.models[0].urls()...)
	}
}

// litellmConfig gives models a price: without one LiteLLM looks for the reason at each request, which costs it more.
func litellmConfig(s site) string {
	var text strings.Builder
	text.WriteString("model_list:\n")
	for _, m := range s.models {
		for _, url := range m.urls() {
			fmt.Fprintf(&text, "  - {model_name: %q, litellm_params: {model: %q, api_base: %q, api_key: sk-bench}, "+
				"model_info: {input_cost_per_token: 0.000001, output_cost_per_token: 0.000002}}\n", m.name, "openai/"+m.name, url+"/v1")
		}
	}
	text.WriteString("general_settings: {dangerously_permit_weak_or_unset_master_key: true}\n")
	return text.String()
}

// litellmCommand has patience with workers: they take longer to start than what counts as dead by default.
func litellmCommand(s site) []string {
	return []string{"env", "LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_LOG=ERROR", filepath.Join(s.home, "bin/litellm"), "--config", s.file,
		"--host", s.host, "--port", s.port, "--num_workers", fmt.Sprint(runtime.NumCPU()), "--timeout_worker_healthcheck", "300", "--telemetry", "False"}
}

// portkeyFields tell Portkey where the engines are.
func portkeyFields(m servedModel) string {
	type engine struct {
		Provider string `json:"provider"`
		APIKey   string `json:"api_key"`
		Host     string `json:"custom_host"`
	}
	var config struct {
		Strategy struct {
			Mode string `json:"mode"`
		} `json:"strategy"`
		Targets []engine `json:"targets"`
	}
	config.Strategy.Mode = "loadbalance"
	for _, url := range m.urls() {
		config.Targets = append(config.Targets, engine{"openai", "sk-bench", url + "/v1"})
	}
	text, err := json.Marshal(config)
	if err != nil {
		panic("BUG: bench: " + err.Error())
	}
	return "X-Portkey-Config: " + string(text) + "\r\n"
}
