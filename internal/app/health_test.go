package app

import (
	"testing"

	"evenkeel/internal/config"
	"evenkeel/internal/route"
)

// TestHealthDefaults: an empty configuration asks of the router what the router does by itself.
func TestHealthDefaults(t *testing.T) {
	c := config.Default()
	want := route.DefaultHealth
	want.SlowStart = 2 * want.ResetAfter
	if got := healthRules(&c.HealthChecks); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestHealthOff: what the operator switches off is not what was left out.
func TestHealthOff(t *testing.T) {
	c := config.Default()
	c.HealthChecks.SlowStart, c.HealthChecks.MaxEjection = 0, 0
	if h := healthRules(&c.HealthChecks); h.SlowStart >= 0 || !(h.MaxEjection > 0 && h.MaxEjection < 1e-9) {
		t.Errorf("got %+v", h)
	}
}
