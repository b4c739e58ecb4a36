package litellm

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"evenkeel/internal/config"
)

const head = `# Written by evenkeel import litellm. Its report says what did not carry over, and what means something else here.
# docs/configuration.md has every key; evenkeel check FILE says what is wrong.
`

var errTooLarge = fmt.Errorf("gives a configuration of more than %d MiB, the most that a config file may have", config.MaxFile>>20)

// write gives the YAML.
func (c *converter) write() ([]byte, error) {
	var b strings.Builder
	b.WriteString(head)
	if c.listen != "" {
		b.WriteString("\n# An endpoint is where these are by default.\n")
		fmt.Fprintf(&b, "listen: %s\nadmin: %s\n", c.listen, c.admin)
	}
	c.writeKeys(&b)
	if c.maxBodyMB != "" {
		fmt.Fprintf(&b, "\nmax_body: %sMB\n", c.maxBodyMB)
	}
	c.writeEndpoints(&b)
	if !c.writeModels(&b) {
		return nil, errTooLarge
	}
	if c.strategy != "" {
		fmt.Fprintf(&b, "\nstrategy: %s   # %s\n", c.strategy, c.strategyNote)
	}
	if c.affinity != "" {
		fmt.Fprintf(&b, "\naffinity: {mode: %s}\n", c.affinity)
	}
	if c.maxAttempts > 0 {
		fmt.Fprintf(&b, "\nretry: {max_attempts: %d}   # %s\n", c.maxAttempts, c.attemptsNote)
	}
	if len(c.deadlines) > 0 {
		fmt.Fprintf(&b, "\ndeadlines: %s\n", flow(c.deadlines))
	}
	if len(c.breaker) > 0 || c.probeInterval != "" {
		b.WriteString("\nhealth_checks:\n")
		if c.probeInterval != "" {
			fmt.Fprintf(&b, "  interval: %s   # of free health pages; a probe_prompt makes it real requests\n", c.probeInterval)
		}
		if len(c.breaker) > 0 {
			fmt.Fprintf(&b, "  circuit_breaker: %s\n", flow(c.breaker))
		}
	}
	if c.jsonLogs {
		b.WriteString("\nlog: {format: json}\n")
	}
	if b.Len() > config.MaxFile {
		return nil, errTooLarge
	}
	return []byte(b.String()), nil
}

func (c *converter) writeKeys(b *strings.Builder) {
	switch {
	case c.keyHash != "":
		b.WriteString("\n# The master_key of LiteLLM. Each key that it gave out needs an entry too: printf %s \"$KEY\" | sha256sum\n")
		fmt.Fprintf(b, "virtual_keys:\n  - {name: master, sha256: %s}\n", c.keyHash)
	case c.keyVariable != "":
		b.WriteString("\n# Clients' keys by their hashes. Without them nobody is asked for one, and listen cannot go beyond this machine.\n")
		fmt.Fprintf(b, "# virtual_keys:\n#   - {name: master, sha256: HASH}   # printf %%s \"$%s\" | sha256sum\n", c.keyVariable)
	}
}

// usualURLs are the addresses that kinds have of their own.
var usualURLs = map[string]string{"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"}

func (c *converter) writeEndpoints(b *strings.Builder) {
	if len(c.endpoints) == 0 {
		b.WriteString("\nendpoints: {}\n")
		return
	}
	b.WriteString("\nendpoints:\n")
	for _, e := range c.endpoints {
		for _, line := range e.comments {
			fmt.Fprintf(b, "  # %s\n", line)
		}
		fmt.Fprintf(b, "  %s:\n", scalar(e.name))
		if e.where.kind != "" {
			fmt.Fprintf(b, "    kind: %s\n", e.where.kind)
		}
		if e.where.url != usualURLs[e.where.kind] {
			fmt.Fprintf(b, "    url: %s\n", scalar(e.where.url))
		}
		if e.key != "" {
			fmt.Fprintf(b, "    api_key: ${%s}\n", e.key)
		}
		if e.all {
			b.WriteString("    # Every model that it lists is served; name them in models: [...] to serve no others.\n")
		} else {
			fmt.Fprintf(b, "    models: %s\n", list(e.models))
		}
	}
}

// writeModels reports whether there is room for all: a short input can name many deployments again and again.
func (c *converter) writeModels(b *strings.Builder) bool {
	if len(c.models) == 0 {
		return true
	}
	b.WriteString("\nmodels:\n")
	for _, m := range c.models {
		if m.aliasOf != "" {
			fmt.Fprintf(b, "  # Another name of %s.\n", scalar(m.aliasOf))
		}
		fmt.Fprintf(b, "  %s:\n    providers:\n", scalar(m.name))
		for _, d := range m.deployments {
			fmt.Fprintf(b, "      - %s\n", d.provider(m.name))
			if b.Len() > config.MaxFile {
				return false
			}
		}
		if len(m.chain) > 0 {
			fmt.Fprintf(b, "    fallback_chain: %s\n", list(m.chain))
		}
		if m.strategy != "" {
			fmt.Fprintf(b, "    strategy: %s   # %s\n", m.strategy, m.strategyNote)
		}
	}
	return true
}

// provider is the deployment as an item of the providers of a model.
func (d *deployment) provider(model string) string {
	fields := []setting{{"name", scalar(d.endpoint.name)}}
	add := func(key, text string) { fields = append(fields, setting{key, text}) }
	if d.upstream != model {
		add("model", scalar(d.upstream))
	}
	if d.weight > 0 {
		add("weight", number(d.weight))
	}
	if d.region != "" {
		add("region", scalar(d.region))
	}
	var bounds []setting
	for _, l := range []struct {
		key string
		n   int
	}{{"in_flight", d.limits.inFlight}, {"rpm", d.limits.rpm}, {"tpm", d.limits.tpm}} {
		if l.n > 0 {
			bounds = append(bounds, setting{l.key, strconv.Itoa(l.n)})
		}
	}
	if len(bounds) > 0 {
		add("limits", flow(bounds))
	}
	if d.context > 0 {
		add("context_window", strconv.Itoa(d.context))
	}
	if len(d.price) > 0 {
		add("price", flow(d.price))
	}
	return flow(fields)
}

// flow writes a map in one line.
func flow(fields []setting) string {
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = f.key + ": " + f.value
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// list writes a list in one line.
func list(items []string) string {
	parts := make([]string, len(items))
	for i, item := range items {
		parts[i] = scalar(item)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// plain matches text that YAML takes as it is, in maps and lists of one line too.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./@+-]*(:[A-Za-z0-9_./@+-]+)*$|^\$\{[A-Za-z_][A-Za-z0-9_]*\}[A-Za-z0-9_./-]*$`)

// words are plain text that YAML takes for something else than text.
var words = []string{"null", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf", ".nan", "...", "."}

// scalar writes text.
func scalar(text string) string {
	if plain.MatchString(text) && !slices.Contains(words, strings.ToLower(text)) {
		return text
	}
	return strconv.Quote(text)
}
