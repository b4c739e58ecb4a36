package config

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// longestName bounds the names of endpoints, models and keys, in bytes.
const longestName = 256

// mostRingMiB and mostTraceMiB are a TiB, far beyond what anybody keeps.
const (
	mostRingMiB  = 1 << 20
	mostTraceMiB = 1 << 20
)

// Validate checks the whole configuration, as it stands after flags were applied. check judges each strategy that is
// named; nil judges none. The error is of type Problems and lists all that is wrong, with what Load could not decode.
func (c *Config) Validate(check func(Strategy) error) error {
	v := newValidator(c)
	v.content()
	v.exposure()
	root := (*path)(nil)
	if c.Endpoints == nil && v.endpointsKnown() {
		at := v.where(root.key("endpoints"))
		if at.file == "" {
			at = c.places[""]
		}
		v.problem(at, root.key("endpoints"), "there is none; write one such as endpoints: {gpu-1: {url: http://10.0.0.1:8000}}, or endpoints: {} to begin without")
	}
	v.strategy(c.Strategy, root.key("strategy"), check)
	for _, m := range c.Models {
		if m.Strategy != nil {
			v.strategy(*m.Strategy, root.keys("models", m.Name, "strategy"), check)
		}
	}
	return v.err()
}

type validator struct {
	config *Config
	report
	broken words // settings, and sections, in which something could not be decoded
}

// newValidator returns a validator that holds what could not be decoded.
func newValidator(c *Config) *validator {
	v := &validator{config: c, broken: words{}}
	v.problems, v.dropped = slices.Clone(c.decoded.problems), c.decoded.dropped
	for _, p := range v.problems {
		v.broken.add(p.Path)
	}
	return v
}

// where is the place of the setting, or of the nearest setting around it that was written.
func (v *validator) where(at *path) place {
	for ; at != nil; at = at.parent {
		if written, ok := v.config.places[at.String()]; ok {
			return written
		}
	}
	return place{order: -1}
}

func (v *validator) fail(at *path, format string, args ...any) {
	v.problem(v.where(at), at, format, args...)
}

func (v *validator) warn(at *path, format string, args ...any) {
	v.warning(v.where(at), at, format, args...)
}

// sound reports whether nothing is wrong with the settings: a warning must not rest on a value that is not the operator's.
func (v *validator) sound(settings ...*path) bool {
	for _, at := range settings {
		name := at.String()
		if slices.ContainsFunc(v.problems, func(p Problem) bool { return p.Path == name }) {
			return false
		}
	}
	return true
}

// missing reports whether key was not written in the section at. A section with a problem of its own, such as a
// misspelt key, has nothing missing: one mistake gives one message.
func (v *validator) missing(at *path, key string) bool {
	return !v.written(at.key(key)) && !v.broken.has(at.String())
}

func (v *validator) written(at *path) bool {
	_, written := v.config.places[at.String()]
	return written
}

// content checks everything that does not depend on who can reach the listeners.
func (v *validator) content() {
	c, root := v.config, (*path)(nil)
	if all := root.key("endpoints"); c.Endpoints != nil && len(c.Endpoints) == 0 && !v.broken.has("endpoints") {
		v.warn(all, "holds none: nothing is served until there is one")
	}
	v.positive(root.key("drain_timeout"), c.DrainTimeout)
	v.positive(root.key("hold_timeout"), c.HoldTimeout)
	if c.MaxBody <= 0 {
		v.fail(root.key("max_body"), "must be more than 0, is %d", c.MaxBody)
	}
	if c.BodyMemory != 0 && c.BodyMemory < c.MaxBody {
		v.fail(root.key("body_memory"), "must be at least max_body, which is %s, is %s", c.MaxBody, c.BodyMemory)
	}
	v.notNegative(root.keys("connections", "max"), c.Connections.Max)
	v.notNegative(root.keys("connections", "per_address"), c.Connections.PerAddress)
	if c.Connections.Max > 0 && c.Connections.PerAddress > c.Connections.Max && v.sound(root.keys("connections", "max"), root.keys("connections", "per_address")) {
		v.warn(root.keys("connections", "per_address"), "never takes effect: connections.max is %d", c.Connections.Max)
	}
	if c.H2C && c.TLS.On() {
		v.fail(root.key("h2c"), "is HTTP/2 without TLS, and tls is set, which brings HTTP/2; remove one")
	}
	v.deadlines(root.key("deadlines"), c.Deadlines)
	if n := c.Retry.MaxAttempts; n < 1 || n > 10 {
		v.fail(root.keys("retry", "max_attempts"), "must be 1 to 10 (1 never repeats), is %d", n)
	}
	if r := c.Retry.BudgetRatio; !(r >= 0 && r <= 1) {
		v.fail(root.keys("retry", "budget_ratio"), "must be 0 to 1, is %v", r)
	}
	v.notNegative(root.keys("retry", "budget_min"), c.Retry.BudgetMin)
	v.notNegative(root.keys("queue", "max_waiting"), c.Queue.MaxWaiting)
	v.healthChecks(root.key("health_checks"), c.HealthChecks)
	if n := c.Explain.RingMiB; n < 0 || n > mostRingMiB {
		v.fail(root.keys("explain", "ring_mib"), "must be 0 to %d, in MiB, is %d", mostRingMiB, n)
	}
	if n := c.Trace.MaxMiB; n < 1 || n > mostTraceMiB {
		v.fail(root.keys("trace", "max_mib"), "must be 1 to %d, in MiB, is %d; to record nothing, remove trace", mostTraceMiB, n)
	} else if v.written(root.keys("trace", "max_mib")) && v.missing(root.key("trace"), "path") {
		v.warn(root.key("trace"), "has no path, so that nothing is recorded; write path: trace.jsonl, or remove it")
	}
	v.oneOf(root.keys("log", "level"), c.Log.Level, "debug", "info", "warn", "error")
	v.oneOf(root.keys("log", "format"), c.Log.Format, "text", "json")
	v.oneOf(root.key("auth"), c.Auth, "", AuthNone)
	v.oneOf(root.key("credentials"), c.Credentials, "", CredentialsClient)
	v.headers()
	if _, err := netip.ParseAddrPort(c.DNSServer); err != nil && c.DNSServer != "" {
		v.fail(root.key("dns_server"), "must be an IP address and a port such as 10.0.0.53:53, is %s", show(c.DNSServer))
	}
	v.endpoints()
	v.models()
	v.virtualKeys()
}

// ConnectionsBeyond returns the warning for a connections.max that a process which may open so many files (0 = any number)
// never reaches, and whether it is one.
func (c *Config) ConnectionsBeyond(files int64) (w Warning, beyond bool) {
	if files <= 0 || int64(c.Connections.Max) < files {
		return Warning{}, false
	}
	v := newValidator(c)
	v.warn((*path)(nil).keys("connections", "max"), "%d is never reached: this process may open %d files, which connections to endpoints need too; "+
		"beyond that clients wait without an answer. Raise the limit of files (ulimit -n, LimitNOFILE), or leave connections.max out", c.Connections.Max, files)
	return v.warnings[0], true
}

// TraceUnwritable returns the warning for a trace that this process cannot write, for the reason err.
func (c *Config) TraceUnwritable(err error) Warning {
	v := newValidator(c)
	v.warn((*path)(nil).keys("trace", "path"), "%v; requests would be served, and not recorded", err)
	return v.warnings[0]
}

func (v *validator) deadlines(at *path, d Deadlines) {
	v.positive(at.key("deadline"), d.Deadline)
	v.positive(at.key("first_token"), d.FirstToken)
	v.positive(at.key("between_tokens"), d.BetweenTokens)
	v.positive(at.key("response"), d.Response)
	v.positive(at.key("connect"), d.Connect)
	if v.written(at.key("first_token")) && d.FirstToken > d.Deadline && v.sound(at.key("first_token"), at.key("deadline")) {
		v.warn(at.key("first_token"), "%s never takes effect: deadline ends a request without content after %s", d.FirstToken, d.Deadline)
	}
}

func (v *validator) positive(at *path, d time.Duration) {
	if d <= 0 {
		v.fail(at, "must be more than 0, is %s", d)
	}
}

func (v *validator) notNegative(at *path, n int) {
	if n < 0 {
		v.fail(at, "must be 0 or more, is %d", n)
	}
}

// The least and the greatest weight, as route takes them.
const (
	leastWeight = 1e-6
	mostWeight  = 1e9
)

// fits reports whether w is a weight.
func fits(w float64) bool { return w == 0 || w >= leastWeight && w <= mostWeight }

// weight reports whether w is a weight that picks.
func (v *validator) weight(at *path, w float64) bool {
	if !fits(w) {
		v.fail(at, "must be 0, or 0.000001 to 1000000000, is %v", w)
	}
	return w != 0
}

// domain checks the name of a failure domain, if one is given.
func (v *validator) domain(at *path, name string) {
	if name != "" || v.written(at) && !v.broken.has(at.String()) {
		v.name(at, name, "")
	}
}

func (v *validator) oneOf(at *path, value string, known ...string) {
	if !slices.Contains(known, value) {
		v.fail(at, "unknown value %s%s", show(value), DidYouMean(value, slices.DeleteFunc(known, func(s string) bool { return s == "" })))
	}
}

// name checks a name of ours; refused lists characters that it must not hold besides spaces and control characters.
func (v *validator) name(at *path, name, refused string) {
	switch {
	case name == "":
		v.fail(at, "the name is empty")
	case len(name) > longestName:
		v.fail(at, "the name is longer than %d bytes", longestName)
	case strings.ContainsAny(name, refused) || strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}):
		also := ""
		if refused != "" {
			also = ", " + strings.Join(strings.Split(refused, ""), ", ")
		}
		v.fail(at, "the name %s must not hold spaces, control characters%s", show(name), also)
	}
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'+.^_`|~-]+$")

// neverForwarded are credentials of the client, and headers that belong to one connection. They are those that package
// proxy keeps, and a test there compares the two.
var neverForwarded = map[string]string{
	"authorization": "credential", "x-api-key": "credential", "api-key": "credential", "x-goog-api-key": "credential",
	"cookie": "cookie", "proxy-authorization": "connection", "proxy-authenticate": "connection",
	"host": "connection", "content-length": "connection", "transfer-encoding": "connection", "connection": "connection",
	"keep-alive": "connection", "te": "connection", "trailer": "connection", "upgrade": "connection",
	"proxy-connection": "connection", "expect": "connection",
}

func (v *validator) headers() {
	at := (*path)(nil).key("forward_headers")
	for i, name := range v.config.ForwardHeaders {
		switch kind := neverForwarded[strings.ToLower(name)]; {
		case kind == "credential":
			v.fail(at.index(i), "%s is the client's credential; to send it upstream write credentials: client", show(name))
		case kind == "cookie":
			v.fail(at.index(i), "%s may hold credentials of the client and is never passed on; remove it", show(name))
		case strings.HasPrefix(strings.ToLower(name), "x-evenkeel-"):
			v.fail(at.index(i), "%s is for this balancer, as all x-evenkeel- headers, and is never passed on; remove it", show(name))
		case kind == "connection":
			v.fail(at.index(i), "%s belongs to one connection and is never passed on; remove it", show(name))
		case !headerName.MatchString(name):
			v.fail(at.index(i), "%s is not the name of a header (patterns are not supported)", show(name))
		}
	}
	at = (*path)(nil).key("expose_headers")
	for i, name := range v.config.ExposeHeaders {
		v.oneOf(at.index(i), name, "deployment", "attempts", "decision")
	}
}

// hostName matches names of hosts, and addresses.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.:-]{0,252}[A-Za-z0-9_])?$`)

func (v *validator) endpoints() {
	all := (*path)(nil).key("endpoints")
	pickable := len(v.config.Endpoints) == 0
	type address struct{ url, key string }
	first := map[address]string{}
	for _, e := range v.config.Endpoints {
		at := all.key(e.Name)
		v.name(at, e.Name, "/#@")
		v.endpointURL(at, e)
		if _, pool := e.PoolHost(); pool && e.Proxy != "" {
			v.fail(at.key("proxy"), "does not go with a dns+ url, whose addresses are connected to directly; remove one of them")
		}
		if e.Kind != "" && !slices.Contains(Kinds, e.Kind) {
			v.fail(at.key("kind"), "unknown kind %s%s", show(e.Kind), DidYouMean(e.Kind, Kinds))
		}
		if t := (EndpointTLS{}); e.TLS != t && strings.HasPrefix(strings.TrimPrefix(e.URL, poolPrefix), "http://") {
			v.fail(at.key("tls"), "is for https:// and the url is %s; write https, or remove tls", showURL(e.URL))
		}
		if name := e.TLS.ServerName; v.written(at.keys("tls", "server_name")) && !hostName.MatchString(name) {
			v.fail(at.keys("tls", "server_name"), "must be the name of a host, is %s", show(name))
		}
		v.notNegative(at.key("max_connections"), e.MaxConnections)
		v.dataParallel(at, e)
		v.limits(at, e.Limits)
		if v.weight(at.key("weight"), e.Weight) {
			pickable = true
		}
		v.domain(at.key("failure_domain"), e.FailureDomain)
		seen := map[string]bool{}
		for i, name := range e.Models {
			v.name(at.key("models").index(i), name, "")
			if seen[name] {
				v.fail(at.key("models").index(i), "%s is listed twice", show(name))
			}
			seen[name] = true
		}
		same := address{e.URL, e.APIKey.Reveal()}
		unknown := v.broken.has(at.key("api_key").String()) || v.broken.has(at.key("url").String())
		if before, again := first[same]; again && e.URL != "" && !unknown {
			v.warn(at.key("url"), "is the address and key of endpoint %s too; it will count as two", before)
		}
		if !unknown {
			first[same] = cmp.Or(first[same], e.Name)
		}
	}
	if !pickable {
		v.fail(all, "every weight is 0, so nothing could be picked; give one endpoint a weight above 0")
	}
}

// mostRanks is far beyond what one server has.
const mostRanks = 1024

// dataParallel checks how many ranks an endpoint has.
func (v *validator) dataParallel(at *path, e Endpoint) {
	switch n, at := e.DataParallel, at.key("data_parallel"); {
	case n < 0 || n > mostRanks || n == 0 && v.written(at):
		v.fail(at, "must be 1 to %d, as vLLM's --data-parallel-size, is %d", mostRanks, n)
	case n > 1 && e.Kind != "vllm":
		v.fail(at, "is for the ranks of vLLM; write kind: vllm too, or remove it")
	}
}

func (v *validator) endpointURL(at *path, e Endpoint) {
	if e.URL == "" {
		meant := kindURLs[nearest(e.Kind, slices.Values(Kinds))] != "" // a misspelt kind is reported, and once it is right there is a url
		if v.missing(at, "url") && !meant {
			v.fail(at, "needs a url such as http://10.0.0.1:8000 (only kinds openai and anthropic have one of their own)")
		}
		return
	}
	if canonical, err := canonicalURL(e.URL); err != nil || canonical != e.URL {
		v.fail(at.key("url"), "is not a canonical address")
	}
}

func (v *validator) limits(at *path, l Limits) {
	at = at.key("limits")
	v.notNegative(at.key("in_flight"), l.InFlight)
	v.notNegative(at.key("tokens"), l.Tokens)
	v.notNegative(at.key("rpm"), l.RPM)
	v.notNegative(at.key("tpm"), l.TPM)
}

var sha256Hex = regexp.MustCompile("^[0-9a-f]{64}$")

func (v *validator) virtualKeys() {
	all := (*path)(nil).key("virtual_keys")
	names, hashes := map[string]bool{}, map[string]bool{}
	if v.config.VirtualKeys != nil && len(v.config.VirtualKeys) == 0 {
		v.warn(all, "is empty, so no key is asked for; remove it, or list keys: [%s]", VirtualKey{}.form(""))
	}
	for i, k := range v.config.VirtualKeys {
		at := all.index(i)
		if v.broken.has(at.String()) {
			continue // one mistake gives one message
		}
		v.name(at.key("name"), k.Name, "")
		switch {
		case k.Name != "" && names[k.Name]:
			v.fail(at.key("name"), "the name %s is used twice", show(k.Name))
		case !sha256Hex.MatchString(k.SHA256):
			v.fail(at.key("sha256"), "must be the SHA-256 of the key, 64 hexadecimal digits; get it with: printf %%s \"$KEY\" | sha256sum")
		case hashes[k.SHA256]:
			v.fail(at.key("sha256"), "another virtual key has the same hash")
		}
		names[k.Name], hashes[k.SHA256] = true, true
	}
}
