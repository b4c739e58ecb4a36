package fixture

import (
	"context" // want import of context
	"iter"
	"sync"
	s "sync"
	"sync/atomic"
)

type guarded struct {
	mu    sync.Mutex
	once  s.Once
	count atomic.Int64
	group sync.WaitGroup // want sync.WaitGroup
	cond  *s.Cond        // want sync.Cond
}

func (g *guarded) run(seq iter.Seq[int]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count.Add(1)
	go g.once.Do(func() {})           // want a go statement
	defer func() { go func() {}() }() // want a go statement
	g.group.Go(func() {})             // want sync.WaitGroup.Go
	next, stop := iter.Pull(seq)      // want iter.Pull
	_, _ = next, stop
	_, cancel := context.WithCancel(context.Background()) // want context.WithCancel | context.Background
	cancel()
}
