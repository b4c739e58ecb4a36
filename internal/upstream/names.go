package upstream

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"
)

const (
	// namePatience is how long a connection waits for DNS where the addresses of last time are known.
	namePatience = 250 * time.Millisecond
	// nameRest is for how long nobody waits any more once DNS did not answer.
	nameRest = time.Second
)

// names finds the addresses of an endpoint's host. While DNS does not say, those that it said last are used: whether
// somebody is there is for the connection to find out. Safe for concurrent use.
type names struct {
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

	mu     sync.Mutex
	last   []netip.Addr
	failed time.Time // when DNS last did not say, while last was known
}

// find returns the addresses of host, which is always the same, and whether they are those of last time because DNS took
// its time just now.
func (n *names) find(ctx context.Context, host string) (found []netip.Addr, late bool, err error) {
	n.mu.Lock()
	last, rests := n.last, time.Since(n.failed) < nameRest
	n.mu.Unlock()
	switch {
	case last == nil:
		found, err = n.ask(ctx, host)
		return found, false, err
	case rests:
		return last, false, nil
	}
	patience, cancel := context.WithTimeout(ctx, namePatience)
	defer cancel()
	if found, err = n.ask(patience, host); err == nil && len(found) > 0 {
		return found, false, nil
	}
	return last, true, ctx.Err()
}

// ask waits for DNS.
func (n *names) ask(ctx context.Context, host string) ([]netip.Addr, error) {
	found, err := n.lookup(ctx, "ip", host)
	if !errors.Is(ctx.Err(), context.Canceled) { // else the caller has left, which says nothing about DNS
		n.note(found, err)
	}
	return found, err
}

func (n *names) note(found []netip.Addr, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err == nil && len(found) > 0:
		n.last, n.failed = found, time.Time{}
	case n.last != nil:
		n.failed = time.Now()
	}
}
