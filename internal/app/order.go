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

// forgiveNewKeys closes the breakers of credentials whose key changed: what was refused was the old one.
func (a *App) forgiveNewKeys(old, c *config.Config) {
	keys := map[string]*config.Endpoint{}
	for i := range old.Endpoints {
		keys[old.Endpoints[i].Name] = &old.Endpoints[i]
	}
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		if before := keys[e.Name]; before != nil && !before.APIKey.Equal(e.APIKey) {
			_ = a.router.Override(time.Now(), route.CredentialScope.String(), e.Name, route.ForgetFailure) // none: it shares another's, or had no key
		}
	}
}
