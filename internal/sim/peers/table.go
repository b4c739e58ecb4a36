package peers

import (
	"fmt"
	"strings"
	"time"

	"evenkeel/internal/sim"
)

// Entry is one policy of another router.
type Entry struct {
	// Name is the project's and Variant what is not its published default, "" for the default. ID joins them.
	Name, Variant string
	Source        string // where it is from: project, file or paper, version
	Summary       string // what it does, in a line
	// Scrape is how often the project reads each engine's metrics by default; 0 if the policy needs none.
	Scrape time.Duration
	build  func(sim.Vantage) sim.Policy
}

// New makes the policy of one balancer.
func (e Entry) New(at sim.Vantage) (sim.Policy, error) {
	switch {
	case len(at.IDs) == 0:
		return nil, fmt.Errorf("%s: there are no deployments", e.ID())
	case at.Request == nil || len(at.Servers) != len(at.IDs):
		return nil, fmt.Errorf("%s: it must see requests, and %d servers", e.ID(), len(at.IDs))
	}
	return e.build(at), nil
}

// ID names an entry among all: "llm-d", "llm-d/token-load".
func (e Entry) ID() string {
	if e.Variant == "" {
		return e.Name
	}
	return e.Name + "/" + e.Variant
}

const (
	llmdSource   = "github.com/llm-d/llm-d-router, pkg/epp (2026-09)"
	llmdGuides   = "github.com/llm-d/llm-d, guides (2026-09)"
	sglangSource = "SGLang router / smg, policies/cache_aware.rs (2026-08)"
	dynamoSource = "NVIDIA Dynamo, lib/kv-router/src/scheduling/selector (1.5)"
	aibrixSource = "AIBrix, pkg/plugins/gateway/algorithms/prefix_cache.go"
	stackSource  = "vLLM production stack, src/vllm_router/routers/routing_logic.py"
	routerSource = "vllm-project/router, src/policies (2026-09)"
	litellm      = "LiteLLM, litellm/router_strategy (2026-09)"
	kongSource   = "Kong Gateway, ai-proxy-advanced (3.10)"
)

var table = []Entry{
	{"llm-d", "", llmdSource, "queue 2, KV cache 2, prefix 3: the defaults of the endpoint picker", scrapeLLMD, newLLMD(llmdDefault)},
	{"llm-d", "token-load", llmdGuides + "/optimized-baseline", "who has 80 % of the prompt, until 18 s more wait there; of those the least tokens", 0, newLLMD(llmdTokens)},
	{"llm-d", "precise", llmdGuides + "/precise-prefix-cache-routing", "queue 2, KV cache 2, prefix by KV events 3, spreading of cold requests 2", scrapeLLMD,
		newLLMD(llmdPrecise)},
	{"sglang", "", sglangSource, "longest match above 0.3, least loaded if loads differ by 64 and 1.5 ×: the command line's defaults", 0, newSGLang(sglangCLI)},
	{"sglang", "library", sglangSource, "longest match above 0.5, least loaded if loads differ by 32 and 1.1 ×: the library's defaults", 0, newSGLang(sglangLibrary)},
	{"sglang", "expected-wait", "smg, policies/cache_aware.rs and least_load.rs (2026-08, pull request 2341)", "as the default, with the least expected wait in place of the least loaded",
		scrapeSMG, newSGLang(smgWait)},
	{"dynamo", "", dynamoSource, "prefill blocks + decode blocks, by KV events", 0, newDynamo(dynamoOptions{})},
	{"dynamo", "prefill-only", dynamoSource, "prefill blocks, by KV events", 0, newDynamo(dynamoOptions{noDecode: true})},
	{"dynamo", "lmetric", dynamoSource, "prefill blocks × (decode blocks + 1), by KV events", 0, newDynamo(dynamoOptions{product: true})},
	{"dynamo", "approximate", dynamoSource, "prefill blocks + decode blocks, without KV events", 0, newDynamo(dynamoOptions{approx: true})},
	{"aibrix", "", aibrixSource, "longest match with at most mean + σ requests, fewest requests if they differ by more than 8: the code's defaults", 0, newAIBrix(aibrixCode)},
	{"aibrix", "readme", aibrixSource, "longest match with at most mean + 2σ requests, fewest requests if they differ by more than 16: the documented defaults", 0, newAIBrix(aibrixReadme)},
	{"aibrix", "gate", aibrixSource + " (2026-09)", "longest match with at most mean + σ requests, among the least loaded if the most is above 2·(mean + 1)", 0, newAIBrix(aibrixGate)},
	{"production-stack", "", stackSource, "longest match, whatever the load (prefixaware)", 0, newStackPrefix(false)},
	{"production-stack", "load-aware", stackSource + ", pull request 1035", "share matched − load above the mean", 0, newStackPrefix(true)},
	{"production-stack", "qps", stackSource, "fewest requests in the last 60 s", 0, newStackQPS},
	{"smetric", "", routerSource + "/smetric.rs", "a session stays while its first token comes in time; else prefill tokens × requests", 0, newSMetric(0)},
	{"smetric", "attention", routerSource + "/smetric.rs", "the same, with attention in the cost (crossover at 6,923 tokens)", 0, newSMetric(smetricCrossover)},
	{"consistent-hash", "", routerSource + "/consistent_hash.rs", "a ring, by conversation", 0, newConsistentHash},
	{"kubeai", "", "KubeAI, internal/loadbalancer/balance_chwbl.go", "a ring by conversation, with loads bounded at 1.25 × the mean", 0, newKubeAI},
	{"lmetric", "", "LMetric (2026)", "prefill tokens that wait or are new × batch size", 0, newLMetric(lmetricPaper)},
	{"lmetric", "llm-d", llmdSource + "/lmetric-scorer", "new prefill tokens × batch size", 0, newLMetric(lmetricOwn)},
	{"lmetric", "aibrix", "AIBrix, pkg/plugins/gateway/algorithms/l_metric_local.go (2026)", "prefill tokens of all requests × batch size", 0, newLMetric(lmetricHeld)},
	{"dualmap", "", "DualMap (arXiv 2602.06502); AIBrix, dualmap.go", "of two by hash the longer match, the sooner if that takes more than 1 s", scrapeAIBrix, newDualMap(dualMapLimit)},
	{"dualmap", "5s", "DualMap (arXiv 2602.06502); AIBrix, dualmap.go", "the same with a limit of 5 s", scrapeAIBrix, newDualMap(dualMapLimit5)},
	{"prequal", "", "Prequal (NSDI '24)", "of three probed the cold one with the lowest latency (q = 0.84)", 0, newPrequal(prequalPaper)},
	{"prequal", "port", "github.com/prequal-rs/prequal (2026)", "the same with q = 0.6", 0, newPrequal(prequalPort)},
	{"finagle", "", "Finagle, loadbalancer/PeakEwma.scala", "of two the lower peak EWMA × (pending + 1), decay 10 s", 0, newPeakEWMA(finagle)},
	{"helicone", "", "Helicone AI gateway, latency strategy", "the same over times to the first token, decay 30 s", 0, newPeakEWMA(helicone)},
	{"litellm", "", litellm + "/simple_shuffle.py", "at random by weight (simple-shuffle)", 0, newLiteLLMShuffle},
	{"litellm", "least-busy", litellm + "/least_busy.py", "fewest requests in flight, the first of equals", 0, newLiteLLMBusy},
	{"litellm", "latency", litellm + "/lowest_latency.py", "lowest mean of ten latencies (latency-based-routing)", 0, newLiteLLMLatency},
	{"kong", "", kongSource, "lowest EWMA of the time per output token (lowest-latency)", 0, newKong(false)},
	{"kong", "e2e", kongSource, "lowest EWMA of the whole answer's time", 0, newKong(true)},
	{"agentgateway", "", "agentgateway, crates/agentgateway/src/types/loadbalancer.rs (2026)", "of two the higher health / (1 + latency·(1 + 0.1·pending))", 0, newAgentgateway},
	{"envoy", "", "Envoy, least-request (1.36)", "of two the fewer active requests", 0, newEnvoy},
}

// Table returns all entries, those of a project together, its default first. The caller owns it.
func Table() []Entry { return append([]Entry(nil), table...) }

// Find returns the entry with an ID. The error lists all.
func Find(id string) (Entry, error) {
	ids := make([]string, 0, len(table))
	for i := range table {
		if table[i].ID() == id {
			return table[i], nil
		}
		ids = append(ids, table[i].ID())
	}
	return Entry{}, fmt.Errorf("no router's policy is called %q: there are %s", id, strings.Join(ids, ", "))
}
