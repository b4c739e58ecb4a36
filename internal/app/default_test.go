package app

import (
	"testing"

	"evenkeel/internal/config"
	"evenkeel/internal/strategy"
)

// TestDefaultStrategy: the configuration, which knows no strategies, names the one that they name.
func TestDefaultStrategy(t *testing.T) {
	if got := config.Default().Strategy.Name; got != strategy.Default {
		t.Errorf("%s, want %s", got, strategy.Default)
	}
}
