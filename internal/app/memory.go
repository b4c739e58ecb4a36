package app

import (
	"context"
	"log/slog"
	"math"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"evenkeel/internal/proxy"
)

const (
	// memoryEvery is how often the memory in use is looked at.
	memoryEvery = 100 * time.Millisecond
	// From these shares of the limit on large requests are refused, and all; until what is in use is below the shares
	// beside. Beyond the limit Go's collector would take half of the CPU and free nothing.
	memoryShort, memoryEnough        = 0.85, 0.70
	memoryVeryShort, memoryOnlyShort = 0.95, 0.85
	// memoryCollect is how often the collector is made to run while what is held nears the limit, garbage included: else
	// nobody knows how much of it lives until the limit is reached, nor, later, that it lives no more.
	memoryCollect = 500 * time.Millisecond
)

// memoryGuard watches how near the process is to its memory limit. state is for any goroutine; the rest belongs to run.
type memoryGuard struct {
	usage   func() memoryUsage
	collect func()
	logger  *slog.Logger
	state   atomic.Uint32 // a proxy.Shortage

	collected time.Time
}

// memoryUsage is what of the limit is in use, and what is held with garbage, in bytes. Limit is math.MaxInt64 if there is
// none.
type memoryUsage struct{ used, held, limit int64 }

func (u memoryUsage) share(bytes int64) float64 { return float64(bytes) / float64(u.limit) }

func newMemoryGuard(logger *slog.Logger) *memoryGuard {
	return &memoryGuard{usage: newMemoryReader(), collect: runtime.GC, logger: logger}
}

// run looks at the memory until ctx ends.
func (g *memoryGuard) run(ctx context.Context) {
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.look(time.Now())
		}
	}
}

// shortage is what the last look found.
func (g *memoryGuard) shortage() proxy.Shortage { return proxy.Shortage(g.state.Load()) }

// look takes the state that fits the memory in use, and logs it when it changes.
func (g *memoryGuard) look(now time.Time) {
	u, was := g.usage(), g.shortage()
	if (was != proxy.Enough || u.share(u.held) >= memoryShort) && now.Sub(g.collected) >= memoryCollect {
		g.collected = now
		g.collect()
		u = g.usage()
	}
	is := next(was, u.share(u.used))
	if is == was {
		return
	}
	g.state.Store(uint32(is))
	level, text := slog.LevelWarn, "memory is short: large requests are refused"
	switch is {
	case proxy.Enough:
		level, text = slog.LevelInfo, "memory is enough again: all requests are served"
	case proxy.VeryShort:
		text = "memory is very short: new requests are refused"
	}
	g.logger.Log(context.Background(), level, text, "used_mib", u.used>>20, "limit_mib", u.limit>>20)
}

// next is the state that follows from one and the share of the limit that is in use.
func next(was proxy.Shortage, share float64) proxy.Shortage {
	switch {
	case share >= memoryVeryShort, was == proxy.VeryShort && share >= memoryOnlyShort:
		return proxy.VeryShort
	case share >= memoryShort, was != proxy.Enough && share >= memoryEnough:
		return proxy.Short
	}
	return proxy.Enough
}

// newMemoryReader returns what reads the runtime's own numbers. What lives is as the last collection found it: near the
// limit one is never long ago. Garbage and free memory do not count, since Go makes way for what is needed.
func newMemoryReader() func() memoryUsage {
	const (
		limit = iota
		live
		total
		objects
		free
		released
		unused
	)
	s := []metrics.Sample{
		limit: {Name: "/gc/gomemlimit:bytes"}, live: {Name: "/gc/heap/live:bytes"}, total: {Name: "/memory/classes/total:bytes"},
		objects: {Name: "/memory/classes/heap/objects:bytes"}, free: {Name: "/memory/classes/heap/free:bytes"},
		released: {Name: "/memory/classes/heap/released:bytes"}, unused: {Name: "/memory/classes/heap/unused:bytes"},
	}
	return func() memoryUsage {
		metrics.Read(s)
		n := func(i int) int64 { return int64(min(s[i].Value.Uint64(), math.MaxInt64)) }
		beside := n(total) - n(objects) - n(free) - n(released) - n(unused) // stacks and the runtime's own
		return memoryUsage{used: n(live) + beside, held: n(objects) + beside, limit: n(limit)}
	}
}
