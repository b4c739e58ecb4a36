package config

// document is a whole file: the settings, and the sections that later versions act on. Those are decoded as strictly as
// the rest, so that a typo shows today, and each that is written gives a warning.
type document struct {
	Config       `yaml:",inline"`
	RoutingRules []routingRule `yaml:"routing_rules"`
	Profiles     []profile     `yaml:"profiles,named"`
}

// laterSections are the keys of document that this version does not act on.
var laterSections = []string{"routing_rules", "profiles"}

type routingRule struct {
	Match   ruleMatch `yaml:"match"`
	Model   string    `yaml:"model"`
	Profile string    `yaml:"profile"`
	Default string    `yaml:"default"`
}

type ruleMatch struct {
	Tools        bool   `yaml:"tools"`
	NoTools      bool   `yaml:"no_tools"`
	Vision       bool   `yaml:"vision"`
	JSONMode     bool   `yaml:"json_mode"`
	Complexity   string `yaml:"complexity"`
	MaxTokens    string `yaml:"max_tokens"` // a comparison: "< 4000"
	PromptTokens string `yaml:"prompt_tokens"`
	Model        string `yaml:"model"`
}

type profile struct {
	Name             string    `yaml:"-"`
	Strategy         Strategy  `yaml:"strategy"`
	Objective        string    `yaml:"objective"`
	Deadlines        Deadlines `yaml:"deadlines"`
	Retry            Retry     `yaml:"retry"`
	Fallback         any       `yaml:"fallback"`
	Hedge            any       `yaml:"hedge"`
	Affinity         any       `yaml:"affinity"`
	DollarsPerSecond float64   `yaml:"dollars_per_second"`
}
