package app

import (
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/route"
)

// order carries out what an operator says about a deployment, an endpoint or a credential, and leaves a line in the log
// of who said it.
func (a *App) order(kind, name string, o route.Override, by string) error {
	err := a.router.Override(time.Now(), kind, name, o)
	if err != nil {
		a.logger.Warn("order refused", kind, name, "order", o.String(), "by", by, "error", err)
		return err
	}
	a.logger.Warn("order", kind, name, "order", o.String(), "by", by)
	return nil
}

// forgiveNewKeys closes the breakers of credentials whose key changed: what was refused was the old one. Orders about them hold.
func (a *App) forgiveNewKeys(old, c *config.Config) {
	keys := map[string]*config.Endpoint{}
	for i := range old.Endpoints {
		keys[old.Endpoints[i].Name] = &old.Endpoints[i]
	}
	renewed := map[string]bool{}
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		before := keys[e.Name]
		renewed[e.Name] = before != nil && !before.APIKey.Equal(e.APIKey)
	}
	now, kind := time.Now(), route.CredentialScope
	for _, s := range a.router.View(now).Scopes {
		if s.Kind != kind || !renewed[poolName(s.Name)] {
			continue
		}
		for _, o := range []route.Override{route.ForgetFailure, s.Breaker.Order} {
			_ = a.router.Override(now, kind.String(), s.Name, o) // it was there a moment ago, or has left
		}
	}
}
