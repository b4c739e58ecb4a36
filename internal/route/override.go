package route

import (
	"fmt"
	"maps"
	"strings"
	"time"
)

// Override is an order of the operator. It holds until the next one, over reloads, and ends with the process. Who leaves the
// fleet while one holds, and comes back within OrderKept at the same URL, finds it in force.
type Override uint8

// The orders.
const (
	Automatic     Override = iota // no order: what is measured decides
	Drain                         // nothing new; what runs may finish
	Disable                       // nothing new, and said so
	Force                         // everything, whatever was measured
	ForgetFailure                 // closed, as if it had never failed; then automatic
)

var overrideNames = [...]string{"automatic", "drain", "disable", "force", "reset"}

func (o Override) String() string { return overrideNames[o] }

// ParseOverride returns the order of that name.
func ParseOverride(name string) (Override, error) {
	for i, n := range overrideNames {
		if n == name {
			return Override(i), nil
		}
	}
	return 0, fmt.Errorf("unknown order %.50q: it is %s", name, OverrideNames())
}

// OverrideNames lists the orders for people.
func OverrideNames() string { return strings.Join(overrideNames[:], ", ") }

// OrderKept is how long an order outlives what it is about. A machine may take hours to mend; an address that is given
// to another one later must not be kept from use for ever.
const OrderKept = 24 * time.Hour

// keptOrder is an order about a unit that is forgotten.
type keptOrder struct {
	order Override
	until time.Time
}

// keep remembers the order about a unit that is forgotten.
func (r *Router) keep(now time.Time, k key, o Override) {
	if o != Automatic && o != ForgetFailure {
		r.orders[k] = keptOrder{o, now.Add(OrderKept)}
	}
}

// expire drops the orders that were kept for long enough.
func (r *Router) expire(now time.Time) {
	maps.DeleteFunc(r.orders, func(_ key, kept keptOrder) bool { return !now.Before(kept.until) })
}

// recall puts the order in force that was kept for a unit that is back, if one was.
func (r *Router) recall(now time.Time, u *unit) {
	u.breaker.order = r.orders[u.key].order
	delete(r.orders, u.key)
}

// Override gives an order about the deployment, endpoint or credential of that name. Kind is "deployment" or the word
// of a ScopeKind. An error says that there is none, nor was one that left the fleet with an order that is kept.
func (r *Router) Override(now time.Time, kind, name string, o Override) error {
	woken, found := r.override(now, kind, name, o)
	wake(woken)
	if !found {
		return fmt.Errorf("no %s is called %q", kind, name)
	}
	return nil
}

func (r *Router) override(now time.Time, kind, name string, o Override) (woken []*Ticket, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, u := range r.units {
		if k.name != name || kindName(k.kind) != kind {
			continue
		}
		found = true
		b := &u.breaker
		if b.order == Drain || b.order == Disable {
			b.well = now
		}
		b.order = o
		if o == ForgetFailure {
			*b = breaker{gen: b.gen + 1, away: b.away, opened: b.opened, last: b.last}
			if n := r.nodes[k]; n != nil {
				n.failed = decayed{}
			}
		}
	}
	r.expire(now)
	for k := range r.orders {
		if k.name == name && kindName(k.kind) == kind {
			found = true
			delete(r.orders, k)
			r.keep(now, k, o)
		}
	}
	return r.sweep(now), found
}

func kindName(kind byte) string {
	if kind == 'd' {
		return "deployment"
	}
	return ScopeKind(kind - scopeKey(0)).String()
}
