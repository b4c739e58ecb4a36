package app

import (
	"log/slog"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/proxy"
)

func TestMemoryGuard(t *testing.T) {
	lines := newLogBuffer()
	u := memoryUsage{limit: 1000 << 20}
	collections := 0
	g := &memoryGuard{usage: func() memoryUsage { return u }, collect: func() { collections++ }, logger: slog.New(slog.NewTextHandler(lines, nil))}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := func(usedMiB int64, want proxy.Shortage, wantCollections int) {
		t.Helper()
		u.used = usedMiB << 20
		u.held = u.used
		g.look(now)
		if got := g.shortage(); got != want || collections != wantCollections {
			t.Errorf("%d of 1000 MiB: state %d, %d collections; want %d, %d", usedMiB, got, collections, want, wantCollections)
		}
		now = now.Add(memoryEvery)
	}
	f(0, proxy.Enough, 0)
	f(849, proxy.Enough, 0)
	f(850, proxy.Short, 1)
	f(949, proxy.Short, 1)
	f(950, proxy.VeryShort, 1)
	f(1200, proxy.VeryShort, 1)
	f(850, proxy.VeryShort, 1)
	f(849, proxy.Short, 2) // half a second after the first
	f(700, proxy.Short, 2)
	f(699, proxy.Enough, 2)
	f(849, proxy.Enough, 2)
	f(951, proxy.VeryShort, 2)
	u.limit = math.MaxInt64 // it was lifted
	f(1200, proxy.Enough, 3)
	f(1200, proxy.Enough, 3)
	u.limit = 1000 << 20
	now = now.Add(time.Second)
	u.used, u.held = 100<<20, 900<<20 // most of it is garbage
	if g.look(now); g.shortage() != proxy.Enough || collections != 4 {
		t.Errorf("garbage: state %d, %d collections", g.shortage(), collections)
	}
	text := lines.text()
	if n := strings.Count(text, "\n"); n != 6 {
		t.Errorf("%d lines for 6 changes:\n%s", n, text)
	}
	for _, part := range []string{
		`level=WARN msg="memory is short: large requests are refused" used_mib=850 limit_mib=1000`,
		`level=WARN msg="memory is very short: new requests are refused" used_mib=950 limit_mib=1000`,
		`level=INFO msg="memory is enough again: all requests are served" used_mib=699 limit_mib=1000`,
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the log lacks %q:\n%s", part, text)
		}
	}
}

// TestMemoryReader: what lives counts, what is garbage does not.
func TestMemoryReader(t *testing.T) {
	read := newMemoryReader()
	used := func() int64 {
		runtime.GC()
		return read().used
	}
	before := used()
	block := make([]byte, 64<<20)
	held := used() - before
	runtime.KeepAlive(block)
	after := used() - before
	if held < 60<<20 || held > 80<<20 || after > 10<<20 {
		t.Errorf("64 MiB count as %d MiB while they are held, and as %d MiB after", held>>20, after>>20)
	}
	if allocs := testing.AllocsPerRun(100, func() { read() }); allocs > 0 {
		t.Errorf("%v allocations for a look", allocs)
	}
}
