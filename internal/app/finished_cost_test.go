//go:build !race

package app

import (
	"io"
	"log/slog"
	"testing"

	"evenkeel/internal/exchange"
	"evenkeel/internal/proxy"
	"evenkeel/internal/route"
)

func TestLineCostsNoAllocation(t *testing.T) {
	l := Lines{Out: io.Discard}
	f := proxy.Finished{Record: &exchange.Record{Facts: route.Facts{ID: "ek-1", API: "chat", Model: "m"}, Attempts: []exchange.Attempt{{Deployment: "e/m"}}}}
	if n := testing.AllocsPerRun(1000, func() { l.write(slog.LevelInfo, f) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
