package app

import (
	"math"
	"testing"

	"evenkeel/internal/config"
)

func TestBodyMemory(t *testing.T) {
	f := func(configured config.Size, limit, want int64) {
		t.Helper()
		if got := bodyMemory(&config.Config{MaxBody: 32 << 20, BodyMemory: configured}, limit); got != want {
			t.Errorf("configured %s, limit %d: %d, want %d", configured, limit, got, want)
		}
	}
	f(0, math.MaxInt64, 1<<30)
	f(0, 8<<30, 1<<30)
	f(0, 2<<30, 512<<20)
	f(0, 128<<20, 64<<20)
	f(0, 100<<20, 50<<20)
	f(0, 64<<20, 36<<20)
	f(40<<20, 2<<30, 40<<20)
	f(5<<30, 2<<30, 5<<30)
}
