// Package litellm turns the configuration of a LiteLLM proxy into one of ours, and says what did not carry over and what
// means something else. The result follows from the file alone: nothing is connected, and no environment is read.
package litellm

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"evenkeel/internal/config"
)

// Result is a converted configuration.
type Result struct {
	// Config is YAML that loads without errors once the environment variables that it names are set. It holds no secret.
	Config []byte
	Report Report
}

// Convert converts a file that config.ReadTree has read. It fails only if the file is not a LiteLLM configuration at all, or if it
// would become one that is too large: what does not carry over is in the report.
func Convert(file config.Tree) (Result, error) {
	if file.Kind != config.TreeMap {
		return Result{}, errors.New("is not a LiteLLM configuration: it has no model_list")
	}
	c := &converter{
		credentials: map[string]*section{}, environment: names{}, byAddress: map[address][]*endpoint{}, byName: map[string]*model{},
	}
	top := c.section("", file)
	if !slices.ContainsFunc(sections, func(name string) bool { _, written := top.index[name]; return written }) {
		return Result{}, errors.New("is not a LiteLLM configuration: it has none of " + strings.Join(sections, ", "))
	}
	c.noteEnvironment(file)
	c.readCredentials(top)
	router, module, general := top.below("router_settings"), top.below("litellm_settings"), top.below("general_settings")
	c.readStrategy(router)
	c.readModels(top, router)
	c.finishEndpoints()
	c.finishModels()
	c.readAliases(router)
	c.readFallbacks(router, module)
	c.readReliability(router, module)
	c.readGeneral(general, module)
	c.readEnvironment(top)
	router.rest(routerLeft)
	module.rest(moduleLeft)
	general.rest(generalLeft)
	top.rest(topLeft)
	for _, name := range slices.Sorted(maps.Keys(c.credentials)) {
		c.credentials[name].rest(paramsLeft)
	}
	c.keepClear()
	c.finishReport()
	text, err := c.write()
	return Result{Config: text, Report: c.report}, err
}

// sections are what a LiteLLM configuration consists of; one without all of them is something else.
var sections = []string{"model_list", "router_settings", "litellm_settings", "general_settings"}

// converter collects what the output will hold.
type converter struct {
	report       Report
	credentials  map[string]*section // credential_values by name
	environment  names               // variables that the file names, or that the output reads
	endpoints    []*endpoint
	byAddress    map[address][]*endpoint // those of one address and key, by the two
	models       []*model
	byName       map[string]*model
	deployments  int // of the input
	carried      int
	chains       int
	longestChain int
	settings     []string // that carried over
	shuffled     bool     // the strategy is simple-shuffle
	usage        bool     // or one by rpm and tpm

	listen, admin string // empty: the default
	keyHash       string // of a master_key in the file
	keyVariable   string // that holds the master_key
	strategy      string // empty: the default
	strategyNote  string
	affinity      string
	maxAttempts   int // 0: the default
	attemptsNote  string
	deadlines     []setting
	breaker       []setting
	probeInterval string
	maxBodyMB     string
	jsonLogs      bool
}

// setting is a line of the output.
type setting struct{ key, value string }

// noteEnvironment notes all variables that the file names, so that none of them gets another meaning.
func (c *converter) noteEnvironment(t config.Tree) {
	if name, is := variable(t.Text); is {
		c.environment.add(name)
	}
	for _, item := range t.Items {
		c.noteEnvironment(item)
	}
	for _, e := range t.Entries {
		c.noteEnvironment(e.Value)
	}
}

// readCredentials reads the credential_list, which deployments refer to by name.
func (c *converter) readCredentials(top *section) {
	list, written := top.get("credential_list")
	if !written {
		return
	}
	for _, item := range list.items() {
		s := item.section()
		if s == nil {
			continue
		}
		name, _ := s.text("credential_name")
		values := s.below("credential_values")
		s.idle("credential_info", "describes the credential for LiteLLM's console")
		s.rest(nil)
		if name == "" {
			c.left(item, "has no credential_name, so no deployment can refer to it")
			continue
		}
		if _, again := c.credentials[name]; again {
			c.left(item, "an earlier entry has the same credential_name, and that one counts")
			continue
		}
		c.credentials[name] = values
	}
}

// readEnvironment lists the variables that the file sets: a balancer's configuration sets none.
func (c *converter) readEnvironment(top *section) {
	s := top.below("environment_variables")
	if s == nil {
		return
	}
	used := map[string]bool{c.keyVariable: true}
	for _, e := range c.endpoints {
		used[e.key], used[e.urlVariable] = true, true
	}
	for _, e := range s.entries {
		if v, _ := s.get(e.Key); used[e.Key] {
			c.left(v, "a configuration sets no environment variables here; set it where evenkeel runs")
		} else {
			c.left(v, "a configuration sets no environment variables here; nothing in the new one reads it")
		}
	}
}
