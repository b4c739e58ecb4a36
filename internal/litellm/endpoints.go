package litellm

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"evenkeel/internal/config"
)

// endpoint is one of the output: an address, asked with one credential.
type endpoint struct {
	where       place
	literal     string // the key itself, where the input holds it; it is never written. Or os.environ/NAME with a name that is odd
	key         string // the environment variable of the key; empty: none is sent
	at          value  // of the first key, else of the first deployment
	name        string
	urlVariable string   // that url is made of
	usual       string   // the variable that LiteLLM would read the key from; empty: none, as for servers of one's own
	base        string   // of the name
	comments    []string // above it
	models      []string // by their names there
	has         map[string]bool
	all         bool // whatever it lists is served
	azure       bool
}

// place is what endpoints differ by, besides the key.
type place struct{ kind, url string }

// address is a URL with the key that is sent there.
type address struct{ url, literal, key string }

// odd reports whether the key is in an environment variable that cannot be named here.
func (e *endpoint) odd() bool { return strings.HasPrefix(e.literal, fromEnvironment) }

// serves notes a model that the endpoint has.
func (e *endpoint) serves(name string) {
	if !e.has[name] {
		e.has[name] = true
		e.models = append(e.models, name)
	}
}

// target reads where the deployment with these params is, and with which key it is asked. It reports why it cannot be served.
func (c *converter) target(params *section, prefix string, model value) (*endpoint, bool) {
	p, is := lookUp(prefix)
	switch {
	case prefix == "":
		c.left(model, "names no provider that this import can tell; if it speaks OpenAI's API, write openai/ in front and import again")
		return nil, false
	case !is:
		c.left(model, "the provider %s is not known to this import; if it speaks OpenAI's API at /v1/..., write openai/ in front or in its place and import again", plainKey(prefix))
		return nil, false
	case p.refused != "":
		c.left(model, "the provider %s is not served by this version: %s", prefix, p.refused)
		return nil, false
	}
	credential, refused := c.credential(params)
	if refused {
		return nil, false
	}
	e := &endpoint{has: map[string]bool{}, where: place{kind: p.kind, url: p.url}, base: p.prefixes[0], azure: p.form == azureBase, at: model}
	if base, written := either(params, credential, "api_base", "base_url"); written {
		if !c.address(e, p, base) {
			return nil, false
		}
	} else if p.url == "" {
		c.left(model, "has no api_base, and where it is follows from LiteLLM's environment alone; write it, and import again")
		return nil, false
	}
	key, written := either(params, credential, "api_key")
	switch {
	case !written && p.key != "" && e.where == place{p.kind, p.url}:
		e.key = p.key
	case !written && p.form == azureBase:
		e.key = p.key
	case written && !c.key(e, key):
		return nil, false
	case !written && p.key != "":
		c.changed(model, "no api_key is written: LiteLLM sends %s there if it is set, here none is sent", p.key)
	}
	if p.form == azureBase {
		for _, from := range []*section{params, credential} {
			from.idle("api_version", "belongs to Azure's dated API, which is not used")
		}
	}
	if e.where == (place{p.kind, p.url}) || p.form == azureBase {
		e.usual = p.key
	}
	if p.note != "" {
		c.changed(model, "%s: %s", prefix, p.note)
	}
	return e, true
}

// credential is the entry of credential_list that a deployment names; nil if it names none.
func (c *converter) credential(params *section) (found *section, refused bool) {
	name, written := params.text("litellm_credential_name")
	if !written {
		return nil, false
	}
	v, _ := params.get("litellm_credential_name")
	found, is := c.credentials[name]
	if !is {
		c.left(v, "no entry of credential_list has this name, so the deployment is left out; credentials that are in LiteLLM's database have to be written here")
	}
	return found, !is
}

// either takes the first of keys that is written in params, else in the credential.
func either(params, credential *section, keys ...string) (v value, written bool) {
	for _, s := range []*section{params, credential} {
		for _, key := range keys {
			found, is := s.get(key)
			switch {
			case is && written:
				s.c.left(found, "does not count: %s is written too", v.path)
			case is:
				v, written = found, true
			}
		}
	}
	return v, written
}

// address reads an api_base.
func (c *converter) address(e *endpoint, p *provider, base value) bool {
	text := base.at.Value.Text
	refuse := func(format string, args ...any) bool {
		c.left(base, "the deployment is left out: its api_base "+format, args...)
		return false
	}
	if name, is := variable(text); is {
		e.urlVariable, e.base = name, strings.ReplaceAll(strings.ToLower(name), "_", "-")
		for _, end := range []string{"-api-base", "-base-url", "-base", "-url", "-endpoint"} {
			e.base = strings.TrimSuffix(e.base, end)
		}
		e.base = cmp.Or(e.base, p.prefixes[0])
		e.where.url = "${" + name + "}"
		if p.form == azureBase {
			e.where.url += "/openai"
			c.todo(base, "%s must be the resource alone, such as https://NAME.openai.azure.com, without a slash at its end", name)
		}
		if p.kind == "openai" && p.form == sdkBase {
			e.where.kind = ""
		}
		return true
	}
	if base.at.Value.Kind != config.TreeText || strings.HasPrefix(text, fromEnvironment) || strings.Contains(text, "${") {
		return refuse("must be a URL or os.environ/NAME")
	}
	canonical, err := config.BaseURL(text)
	if err != nil {
		return refuse("%v", err)
	}
	again, err := config.BaseURL(canonical)
	u, parseErr := url.Parse(canonical)
	if err != nil || parseErr != nil || again != canonical || !strings.HasPrefix(canonical, "http") {
		return refuse("is not a URL such as http://10.0.0.1:8000")
	}
	e.base = u.Host
	switch p.form {
	case azureBase:
		resource, ok := azureResource(u)
		if !ok {
			return refuse("must be an Azure resource such as https://NAME.openai.azure.com; another server of OpenAI's API is written as openai/, with its api_base")
		}
		canonical, e.base = "https://"+u.Host+"/openai", "azure-"+resource
	case sdkBase:
		if path := strings.TrimRight(text, "/"); !strings.HasSuffix(path, "/v1") && canonical != p.url {
			c.changed(base, "does not end in /v1: LiteLLM adds /chat/completions and the like to it, here requests bring /v1/chat/completions")
		}
		if p.kind == "openai" && canonical != p.url {
			e.where.kind = "" // a server of its own
		}
	}
	e.where.url = canonical
	if canonical == p.url {
		e.base = p.prefixes[0]
	}
	return true
}

// azureResource returns the name of the resource at an address, which may go on to a deployment.
func azureResource(u *url.URL) (name string, ok bool) {
	name, domain, _ := strings.Cut(u.Host, ".")
	ok = slices.Contains([]string{"openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com"}, domain) &&
		(u.Path == "" || u.Path == "/openai" || strings.HasPrefix(u.Path, "/openai/") || u.Path == "/models") && u.Scheme == "https"
	return name, ok
}

// placeholders are what people write where an SDK wants a key and the server none, in lower case.
var placeholders = []string{"none", "null", "empty", "dummy", "dummy-key", "fake", "fake-key", "fake-api-key", "sk-fake", "not-needed", "not_needed", "no-key", "na", "n/a", "x", "xxx",
	"anything", "placeholder"}

// key reads an api_key.
func (c *converter) key(e *endpoint, v value) bool {
	text := v.at.Value.Text
	name, isVariable := variable(text)
	switch {
	case v.at.Value.Kind != config.TreeText:
		c.left(v, "must be text, is %s; the deployment is left out", v.at.Value.Kind)
		return false
	case isVariable:
		e.key = name
	case text == "" || slices.Contains(placeholders, strings.ToLower(text)) && e.where.kind != "openai" && e.where.kind != "anthropic":
		c.report.Idle = append(c.report.Idle, finding(v, "is a word in place of a key; none is sent"))
	default:
		e.literal, e.at = text, v
	}
	return true
}

// put returns the endpoint that is like e, which may be e itself. Of one address with one key that is of a kind here and to be asked for
// it there, the kind is known.
func (c *converter) put(e *endpoint) *endpoint {
	id := address{e.where.url, e.literal, e.key}
	for _, old := range c.byAddress[id] {
		switch {
		case e.where.kind == old.where.kind:
			return old
		case e.where.kind == "anthropic" || old.where.kind == "anthropic": // the key goes in another header
		case old.where.kind == "":
			old.where.kind = e.where.kind
			return old
		case e.where.kind == "":
			return old
		}
	}
	c.byAddress[id] = append(c.byAddress[id], e)
	c.endpoints = append(c.endpoints, e)
	return e
}

// longestBase bounds the parts of an endpoint's name, which come from an address and from a variable.
const longestBase = 100

// finishEndpoints gives endpoints their names, and keys that the input holds their variables.
func (c *converter) finishEndpoints() {
	for _, e := range c.endpoints {
		if e.key != "" {
			c.environment.add(e.key)
		}
	}
	count, used := map[string]int{}, names{}
	for _, e := range c.endpoints {
		e.base = strings.Map(func(r rune) rune {
			if strings.ContainsRune("/#@", r) || r <= ' ' || r > '~' {
				return '-'
			}
			return r
		}, e.base[:min(len(e.base), longestBase)])
		count[e.base]++
	}
	variables := map[string]string{} // of keys that the input holds
	for _, e := range c.endpoints {
		name := e.base
		if words := distinct(e.key, e.base); count[e.base] > 1 && words != "" {
			name += "-" + words[:min(len(words), longestBase)]
		}
		e.name = used.next(name, "-")
		if e.literal == "" {
			continue
		}
		name = e.usual
		if e.key = variables[e.literal]; e.key != "" {
			continue
		}
		if name == "" || c.environment.has(name) {
			name = variableOf(e.name) + "_API_KEY"
		}
		e.key = c.environment.next(name, "_")
		variables[e.literal] = e.key
		if e.odd() {
			c.todo(e.at, "names a variable that ${NAME} cannot name; set %s to what it holds", e.key)
		} else {
			c.todo(e.at, "is a key in plain text; set %s to it, which the new configuration reads, and take it out of here", e.key)
		}
	}
	for _, e := range c.endpoints {
		if e.literal != "" && !e.odd() {
			e.comments = append(e.comments, fmt.Sprintf("The key was in plain text at line %d: set %s to it.", e.at.at.Line, e.key))
		}
		if e.azure {
			e.comments = append(e.comments, "Azure's v1 API: models are the names of deployments.")
		}
	}
}

// names are names that are taken, with the number that was last put behind each.
type names map[string]int

func (n names) has(name string) bool { return n[name] > 0 }

func (n names) add(name string) { n[name] = max(n[name], 1) }

// next returns name, or with a number behind it the first that is free, and takes it.
func (n names) next(name, joint string) string {
	found := name
	for n.has(found) {
		n[name]++
		found = name + joint + strconv.Itoa(n[name])
	}
	n.add(found)
	return found
}

// distinct is what the name of a key's variable says beyond that it is a key of base: eu of OPENAI_API_KEY_EU.
func distinct(variable, base string) string {
	words := strings.FieldsFunc(strings.ToLower(variable), func(r rune) bool { return r == '_' })
	said := strings.FieldsFunc(base, func(r rune) bool { return strings.ContainsRune("-_.:", r) })
	said = append(said, "api", "key", "token", "secret", strings.ReplaceAll(base, "_", ""))
	words = slices.DeleteFunc(words, func(w string) bool { return slices.Contains(said, w) })
	return strings.Join(words, "-")
}

// variableOf makes the name of an environment variable of any other.
func variableOf(name string) string {
	out := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r - 'a' + 'A'
		}
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
	if out = strings.Trim(out, "_"); out == "" || out[0] >= '0' && out[0] <= '9' {
		out = "ENDPOINT_" + out
	}
	return cmp.Or(out, "ENDPOINT")
}

// keepClear moves our own listeners away from an endpoint that is where they are by default.
func (c *converter) keepClear() {
	taken := map[string]bool{}
	for _, e := range c.endpoints {
		u, err := url.Parse(e.where.url)
		if err != nil {
			continue
		}
		if host := u.Hostname(); host == "localhost" || host == "0.0.0.0" || host == "::1" || host == "::" || strings.HasPrefix(host, "127.") || strings.HasPrefix(host, "::ffff:") {
			taken[u.Port()] = true
		}
	}
	if !taken["8080"] && !taken["8081"] {
		return
	}
	port := 4000
	for taken[strconv.Itoa(port)] || taken[strconv.Itoa(port+1)] {
		port += 2
	}
	c.listen, c.admin = fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("127.0.0.1:%d", port+1)
}
