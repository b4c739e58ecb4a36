package config

// Hedge lets a second attempt begin beside one that takes longer than usual to its first token.
type Hedge struct {
	Enabled bool `yaml:"enabled"`
	// BudgetRatio is what each first attempt earns of a hedge; a hedge takes 1, and 1 of the retry budget too.
	BudgetRatio float64 `yaml:"budget_ratio"`
	// Models are those for which it holds; empty means all.
	Models []string `yaml:"models"`
}

func (v *validator) hedge(at *path, models words) {
	h, retry := v.config.Hedge, v.config.Retry
	of := (*path)(nil).key("retry")
	switch r := h.BudgetRatio; {
	case !(r >= 0 && r <= 1):
		v.fail(at.key("budget_ratio"), "must be 0 to 1, is %v", r)
	case !h.Enabled:
	case retry.MaxAttempts == 1 && v.sound(of.key("max_attempts")):
		v.warn(at.key("enabled"), "never takes effect: a hedge is a second attempt, and retry.max_attempts is 1")
	case r > retry.BudgetRatio && v.sound(at.key("budget_ratio"), of.key("budget_ratio")):
		v.warn(at.key("budget_ratio"), "%v is never reached: hedges take from the retry budget too, and retry.budget_ratio is %v", r, retry.BudgetRatio)
	}
	for i, name := range h.Models {
		if !models.has(name) && v.endpointsKnown() {
			v.warn(at.key("models").index(i), "no model %s is configured; it matters only if an endpoint serves it%s", show(name), v.near(name, models))
		}
	}
}
