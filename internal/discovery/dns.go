package discovery

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// shortestTTL and longestTTL bound what a record may say of how long it holds. A change is seen within the TTL and a
	// second in any case: a longer TTL is not waited for.
	shortestTTL = time.Second
	longestTTL  = 5 * time.Minute
	// noTTL is how long addresses hold that do not come from DNS, as those of /etc/hosts.
	noTTL = 30 * time.Second
	// firstRetry and longestRetry are the time to the next look-up after one that brought no address; it doubles.
	firstRetry   = time.Second
	longestRetry = 5 * time.Second
	// lookupTimeout bounds one look-up: the system's resolver asks each of its servers twice, for 5 s each.
	lookupTimeout = 10 * time.Second
	// maxAddresses bounds those of one name.
	maxAddresses = 1024
)

// Addresses is what is known of a name after a look-up. It is a value that nobody changes any more.
type Addresses struct {
	// List is sorted and without duplicates: what the name has or, where a look-up brought nothing, what it had.
	List []netip.Addr
	// Gone is true if the name has no address now, by the word of DNS. It may be right, or the moment of a restart in a
	// cluster: List still holds what it had.
	Gone bool
	// Err says why it could not be asked; it is for people.
	Err error
	// Next is the time to the next look-up.
	Next time.Duration
}

// ResolveOptions say how Resolve asks.
type ResolveOptions struct {
	// Server is the host:port of a DNS server to ask in place of the system's.
	Server string
}

// Resolve looks a name up until ctx ends, each time after the TTL of what it found, and calls out after each look-up. It
// follows the system's configuration (/etc/hosts, resolv.conf with search domains) and asks for both families; where one
// cannot be asked, what it brought last stays.
func Resolve(ctx context.Context, host string, o ResolveOptions, out func(Addresses)) {
	(&name{host: host, lookup: o.lookup}).watch(ctx, out)
}

// watch looks the name up until ctx ends.
func (n *name) watch(ctx context.Context, out func(Addresses)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		found := n.look(ctx)
		if ctx.Err() != nil {
			return
		}
		out(found)
		timer.Reset(found.Next)
	}
}

// name is the state of a name that is looked up again and again. It belongs to one goroutine.
type name struct {
	host   string
	lookup func(ctx context.Context, network, host string) records
	last   [2][]netip.Addr // what the families brought last, those of IPv4 first
	retry  time.Duration   // after the last look-up, if it brought nothing
}

// records is what came of asking for one family.
type records struct {
	list []netip.Addr
	ttl  time.Duration // 0 = unknown
	err  error         // with a *net.DNSError where DNS has spoken
}

// none reports whether DNS says that there is nothing.
func (r records) none() bool {
	var dns *net.DNSError
	return errors.As(r.err, &dns) && dns.IsNotFound
}

// look asks once, for both families at the same time.
func (n *name) look(ctx context.Context) Addresses {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	var asked [2]records
	var work sync.WaitGroup
	for i, network := range []string{"ip4", "ip6"} {
		work.Go(func() { asked[i] = n.lookup(ctx, network, n.host) })
	}
	work.Wait()
	return n.take(asked)
}

// take joins what the families brought with what is known.
func (n *name) take(asked [2]records) Addresses {
	next, ttl, some := n.last, time.Duration(0), false
	var failed error
	for i, r := range asked {
		switch {
		case r.err == nil:
			next[i], some = r.list, true
			if r.ttl > 0 && (ttl == 0 || r.ttl < ttl) {
				ttl = r.ttl
			}
		case r.none():
			next[i] = nil
		case failed == nil:
			failed = r.err
		}
	}
	a := Addresses{Err: failed, Gone: failed == nil && !some}
	if some || len(next[0])+len(next[1]) > 0 && !a.Gone {
		n.last = next // never nothing: that one family is gone while the other cannot be asked says little
	}
	a.List = joined(n.last)
	if some && failed == nil {
		n.retry = 0
		if ttl == 0 {
			ttl = noTTL
		}
		a.Next = min(max(ttl, shortestTTL), longestTTL)
		return a
	}
	n.retry = min(max(2*n.retry, firstRetry), longestRetry)
	a.Next = n.retry
	return a
}

// joined returns the addresses of both families, sorted.
func joined(families [2][]netip.Addr) []netip.Addr {
	var all []netip.Addr
	for _, f := range families {
		for _, address := range f {
			all = append(all, address.Unmap())
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	all = slices.Compact(all)
	return all[:min(len(all), maxAddresses)]
}

// lookup asks the system's resolver for one family and listens in on how long the answer holds, which it does not tell.
func (o ResolveOptions) lookup(ctx context.Context, network, host string) records {
	var heard ttl
	r := net.Resolver{
		PreferGo: true, // the other one, of C, asks on connections of its own
		// Else a server that fails for one search domain is passed over, and the last one's word is that there is nothing.
		StrictErrors: true,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if o.Server != "" {
				address = o.Server
			}
			var d net.Dialer
			c, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { _ = c.Close() }) // else a read waits out its time
			return heard.on(c), nil
		},
	}
	list, err := r.LookupNetIP(ctx, network, host)
	if err == nil && len(list) == 0 || otherFamily(err) {
		err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	var failed *net.DNSError
	if errors.As(err, &failed) && failed.Server != "" && o.Server != "" {
		failed.Server = o.Server // it names the one that it was about to ask
	}
	return records{list, heard.shortest(), err}
}

// otherFamily reports whether the name has addresses, and none of the family that was asked for, as one that /etc/hosts
// gives: the resolver names no *net.DNSError then.
func otherFamily(err error) bool {
	var address *net.AddrError
	return errors.As(err, &address) && address.Err == "no suitable address found"
}
