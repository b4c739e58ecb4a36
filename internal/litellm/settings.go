package litellm

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"evenkeel/internal/config"
)

// strategies say what a routing_strategy becomes; empty is the default of the new configuration.
var strategies = []struct{ theirs, ours, note string }{
	{"simple-shuffle", "", ""},
	{"least-busy", "least_connections", "becomes least_connections: the fewest running requests, counted in this process"},
	{"usage-based-routing", "", "becomes the default predicted_wait; rpm and tpm are limits under every strategy here, and requests beyond them go elsewhere or wait"},
	{"usage-based-routing-v2", "", "becomes the default predicted_wait; rpm and tpm are limits under every strategy here, and requests beyond them go elsewhere or wait"},
	{"latency-based-routing", "", "becomes the default predicted_wait: the one that is expected to answer first; latency_p95 looks at past times alone"},
}

// readStrategy reads the routing_strategy, which is simple-shuffle where none is written.
func (c *converter) readStrategy(router *section) {
	name, written := router.text("routing_strategy")
	v, _ := router.get("routing_strategy")
	if !written {
		c.shuffled = true
		return
	}
	for _, s := range strategies {
		if s.theirs != name {
			continue
		}
		c.shuffled, c.usage = name == "simple-shuffle", strings.HasPrefix(name, "usage-based")
		c.strategy, c.strategyNote = s.ours, name
		if s.note != "" {
			c.changed(v, "%s", s.note)
		}
		c.settings = append(c.settings, "routing_strategy")
		return
	}
	if name == "cost-based-routing" {
		c.left(v, "this version has no strategy by cost alone; strategy: {name: predicted_wait, dollars_per_second: N} weighs prices against time. The default is used")
		return
	}
	c.left(v, "the strategy is not known to this import; the default predicted_wait is used")
}

// readFallbacks reads the chains of models.
func (c *converter) readFallbacks(router, module *section) {
	var general []string
	var noted []Finding
	starred := false
	if v, written := either(router, module, "fallbacks"); written {
		for _, item := range v.items() {
			s := item.section()
			if s == nil {
				continue
			}
			for _, e := range s.entries {
				links, _ := s.get(e.Key)
				m := c.byName[e.Key]
				switch {
				case e.Key == "*" && !starred:
					starred, general = true, c.links(links)
				case m == nil && e.Key != "*":
					c.left(links, "no model of this name carried over")
				case m == nil || m.chained:
					c.left(links, "an earlier entry is about the same model, and that one counts")
				default:
					m.chained, m.chain = true, c.links(links)
				}
			}
		}
		noted = append(noted, finding(v, "become fallback_chain: the next model is asked after 429, 5xx, timeouts, connections that fail, and when nobody is in use; other 4xx go to the client, "+
			"and chains of chains are not followed"))
	}
	if v, written := either(router, module, "default_fallbacks"); written {
		general = append(general, c.links(v)...)
		noted = append(noted, finding(v, "become the fallback_chain of each model without one of its own"))
	}
	for _, m := range c.models {
		if group := c.byName[m.aliasOf]; group != nil && !m.chained {
			m.chained, m.chain = group.chained, group.chain
		}
		if !m.chained {
			m.chain = general
		}
		var chain []string
		for _, link := range m.chain {
			if link != m.name && !slices.Contains(chain, link) {
				chain = append(chain, link)
			}
		}
		if m.chain = chain; len(chain) > 0 {
			c.chains++
		}
		c.longestChain = max(c.longestChain, len(chain))
	}
	if c.chains > 0 {
		c.report.Changed = append(c.report.Changed, noted...)
	}
}

// longestChain bounds a list of fallbacks. At most ten attempts are made for a request.
const longestChain = 20

// links are the models of a list of fallbacks that there are.
func (c *converter) links(list value) (found []string) {
	for i, item := range list.items() {
		name := item.at.Value.Text
		switch {
		case i >= longestChain:
			c.left(item, "is beyond the first %d", longestChain)
			return found
		case item.at.Value.Kind != config.TreeText:
			c.left(item, "a fallback with parameters of its own has no counterpart; name a model")
		case c.byName[name] == nil:
			c.left(item, "%s did not carry over, or is no model of model_list; it is left out of the chain", show(name))
		default:
			found = append(found, name)
		}
	}
	return found
}

// seconds takes a time in seconds that config.Load accepts.
func (s *section) seconds(key string) (time.Duration, value, bool) {
	n, v, good := s.number(key, 0)
	if !good {
		return 0, v, false
	}
	if n < 0.001 || n > 365*24*3600 {
		s.c.left(v, "must be above 0, and at most a year")
		return 0, v, false
	}
	return time.Duration(n * float64(time.Second)).Round(time.Millisecond), v, true
}

// duration writes a time as people do.
func duration(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s" }

// counting returns where a setting is that router_settings and litellm_settings may both have: the former counts.
func (c *converter) counting(router, module *section, key, moduleKey string) (*section, string) {
	v, written := router.get(key)
	if !written {
		return module, moduleKey
	}
	if other, is := module.get(moduleKey); is {
		c.left(other, "does not count: %s is written too", v.path)
	}
	return router, key
}

// readReliability reads retries, times and cooldowns.
func (c *converter) readReliability(router, module *section) {
	c.readRetries(router, module)
	c.readTimes(router, module)
	from, key := c.counting(router, module, "allowed_fails", "allowed_fails")
	fails, failsAt, hasFails := from.whole(key, 0)
	if hasFails && fails < 1e6 {
		c.breaker = append(c.breaker, setting{"trip_after", strconv.Itoa(fails + 1)})
		c.changed(failsAt, "becomes trip_after: failures in a row, not in a minute; besides, half of the results in 30 s open too")
		c.settings = append(c.settings, "allowed_fails")
	} else if hasFails {
		c.left(failsAt, "so many failures would never open a breaker; the default holds")
	}
	from, key = c.counting(router, module, "cooldown_time", "cooldown_time")
	if pause, pauseAt, good := from.seconds(key); good {
		c.breaker = append(c.breaker, setting{"reset_after", duration(pause)})
		c.changed(pauseAt, "becomes reset_after: the first time out; the n-th in a row lasts n times as long, up to longest_reset. A 429 that says when to come back is obeyed instead")
		c.settings = append(c.settings, "cooldown_time")
	}
	c.readChecks(router)
}

// mostAttempts is the most that retry.max_attempts takes.
const mostAttempts = 10

func (c *converter) readRetries(router, module *section) {
	from, key := c.counting(router, module, "num_retries", "num_retries")
	n, v, good := from.whole(key, 0)
	if !good {
		return
	}
	c.maxAttempts, c.attemptsNote = min(n, mostAttempts)+1+c.longestChain, "num_retries and the first attempt"
	if c.longestChain > 0 {
		c.attemptsNote = "num_retries, the first attempt and the longest fallback_chain"
	}
	c.maxAttempts = min(c.maxAttempts, mostAttempts)
	c.changed(v, "becomes max_attempts: all attempts of one request together, fallbacks too, at most %d; and over all requests they add no more than a tenth to the load (retry.budget_ratio)", mostAttempts)
	c.settings = append(c.settings, "num_retries")
}

func (c *converter) readTimes(router, module *section) {
	from, key := c.counting(router, module, "timeout", "request_timeout")
	whole, wholeAt, hasWhole := from.seconds(key)
	first, firstAt, hasFirst := router.seconds("stream_timeout")
	if hasWhole {
		c.changed(wholeAt, "bounds each attempt, as before: response where an answer is not streamed, first_token where it is; deadline bounds all attempts of a request")
		c.settings = append(c.settings, "timeout")
	}
	if hasFirst {
		c.changed(firstAt, "becomes first_token: until the first content of a streamed answer; between_tokens bounds the pauses after it")
		c.settings = append(c.settings, "stream_timeout")
	} else {
		first = whole
	}
	if longest := max(whole, first); longest > config.Default().Deadlines.Deadline {
		c.deadlines = append(c.deadlines, setting{"deadline", duration(longest)})
	}
	if first > 0 {
		c.deadlines = append(c.deadlines, setting{"first_token", duration(first)})
	}
	if whole > 0 {
		c.deadlines = append(c.deadlines, setting{"response", duration(whole)})
	}
}

// readChecks reads the optional_pre_call_checks.
func (c *converter) readChecks(router *section) {
	v, written := router.get("optional_pre_call_checks")
	if !written {
		return
	}
	for _, item := range v.items() {
		switch item.at.Value.Text {
		case "session_affinity", "deployment_affinity":
			c.affinity = "session"
			c.changed(item, "becomes affinity.mode session: a session is named by a header, prompt_cache_key, user and the like, not by the key")
			c.settings = append(c.settings, item.at.Value.Text)
		case "prompt_caching":
			if c.affinity == "" {
				c.affinity = "prefix"
			}
			c.changed(item, "becomes affinity.mode prefix, which predicted_wait has by itself")
			c.settings = append(c.settings, "prompt_caching")
		case "responses_api_deployment_check":
			c.report.Idle = append(c.report.Idle, finding(item, "what a previous_response_id names is always asked where it came from"))
		case "enforce_model_rate_limits":
			c.report.Idle = append(c.report.Idle, finding(item, "rpm and tpm always are limits"))
		default:
			c.left(item, "there is no such check here")
		}
	}
}

// readGeneral reads the settings of the server.
func (c *converter) readGeneral(general, module *section) {
	if v, written := general.get("master_key"); written {
		c.readMasterKey(v)
	}
	if _, on := general.on("background_health_checks"); on {
		v, _ := general.get("background_health_checks")
		every, _, good := general.seconds("health_check_interval")
		if !good {
			every = 300 * time.Second // as in LiteLLM
		}
		c.probeInterval = duration(max(every, 100*time.Millisecond))
		c.changed(v, "asks engines for their free health page, and hosted providers nothing; a probe_prompt makes probes real requests, with a bill, as LiteLLM's are")
		c.settings = append(c.settings, "background_health_checks")
	}
	if n, v, good := general.whole("max_request_size_mb", 1); good && n > 1<<20 {
		c.left(v, "is too large")
	} else if good {
		c.maxBodyMB = strconv.Itoa(n)
		c.settings = append(c.settings, "max_request_size_mb")
	}
	if _, on := module.on("json_logs"); on {
		c.jsonLogs = true
		c.settings = append(c.settings, "json_logs")
	}
}

func (c *converter) readMasterKey(v value) {
	text := v.at.Value.Text
	name, is := variable(text)
	switch {
	case v.at.Value.Kind != config.TreeText || text == "" || !is && strings.HasPrefix(text, fromEnvironment):
		c.left(v, "must be text or os.environ/NAME")
	case is:
		c.keyVariable = name
		c.left(v, `clients' keys are known by their hashes here, which an environment variable does not give; fill in virtual_keys, with: printf %%s "$%s" | sha256sum. Until then nobody is asked for a key, and only this machine can connect`, name)
	default:
		sum := sha256.Sum256([]byte(text))
		c.keyHash = hex.EncodeToString(sum[:])
		c.changed(v, "becomes a virtual key, of which the configuration holds the hash: clients go on with it. It administers nothing here; keys that LiteLLM gave out are in its database, and each needs an entry of virtual_keys")
		c.settings = append(c.settings, "master_key")
	}
}

// finishReport sums up, and says what is about no single place.
func (c *converter) finishReport() {
	r := &c.report
	r.Carried = fmt.Sprintf("%d of %s", c.carried, counted(c.deployments, "deployment"))
	if c.carried > 0 {
		r.Carried += fmt.Sprintf(" as %s and %s", counted(len(c.endpoints), "endpoint"), counted(len(c.models), "model"))
	}
	if c.chains > 0 {
		r.Carried += ", " + counted(c.chains, "fallback chain")
	}
	if len(c.settings) > 0 {
		r.Carried += "; " + strings.Join(c.settings, ", ")
	}
	var needed, exposed []string
	seen := map[string]bool{"": true}
	for _, e := range c.endpoints {
		for _, name := range []string{e.urlVariable, e.key} {
			if !seen[name] && e.literal == "" {
				seen[name] = true
				needed = append(needed, name)
			}
		}
		for _, name := range e.models {
			if !e.all && c.byName[name] == nil && !slices.Contains(exposed, show(name)) && len(exposed) < mostLines {
				exposed = append(exposed, show(name))
			}
		}
	}
	for _, list := range [][]Finding{r.Left, r.Changed, r.Todo, r.Idle} {
		slices.SortStableFunc(list, func(a, b Finding) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Column - b.Column
		})
	}
	if len(exposed) > 0 {
		r.Changed = append(r.Changed, Finding{Text: "clients can also ask for models by the names that they have at their endpoints: " + strings.Join(exposed, ", ")})
	}
	if len(needed) > 0 {
		r.Todo = append(r.Todo, Finding{Text: "set " + strings.Join(needed, ", ") + ", as for LiteLLM"})
	}
	if c.carried > 0 {
		r.Todo = append(r.Todo, Finding{Text: "it listens on " + cmp.Or(c.listen, config.Default().Listen) + ", for this machine alone, and LiteLLM on port 4000 for all: write listen, and point clients there"})
	}
}

// counted writes a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
