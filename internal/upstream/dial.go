package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"
)

// headStart is how long an address is tried alone before the next one joins (RFC 8305 §5).
const headStart = 250 * time.Millisecond

// dialer makes connections to one endpoint. Nothing of it comes from the environment.
type dialer struct {
	net     net.Dialer
	addr    string        // host:port of the endpoint
	proxy   string        // host:port of the proxy between; empty = none
	tls     *credentials  // nil: the endpoint speaks plain
	timeout time.Duration // for all of it together: name, TCP, proxy, TLS
	names   names
}

func newDialer(base, proxy *url.URL, secure *credentials, timeout time.Duration) *dialer {
	d := &dialer{addr: hostPort(base), tls: secure, timeout: timeout, names: names{lookup: net.DefaultResolver.LookupNetIP}}
	d.net.KeepAlive = 30 * time.Second
	if proxy != nil {
		d.proxy = hostPort(proxy)
	}
	return d
}

// hostPort is where a URL's host listens.
func hostPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// dial connects. Where the endpoint speaks TLS, the handshake is done.
func (d *dialer) dial(ctx context.Context) (*socket, *tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	to := d.addr
	if d.proxy != "" {
		to = d.proxy
	}
	raw, err := d.connect(ctx, to)
	if err != nil {
		return nil, nil, d.explain(ctx, err, "")
	}
	s, err := newSocket(raw)
	if err == nil && d.tls != nil && d.proxy != "" {
		if err = tunnel(ctx, s, d.addr); err != nil {
			err = d.explain(ctx, err, "proxy "+d.proxy+": ")
		}
	}
	if err != nil || d.tls == nil {
		return closeUnless(err, raw, s, nil)
	}
	secured := tls.Client(s, d.tls.config())
	if err = secured.HandshakeContext(ctx); err != nil {
		err = d.explain(ctx, err, "TLS handshake: ")
	}
	return closeUnless(err, raw, s, secured)
}

func closeUnless(err error, raw net.Conn, s *socket, secured *tls.Conn) (*socket, *tls.Conn, error) {
	if err != nil {
		_ = raw.Close() // not fit for anything
		return nil, nil, err
	}
	return s, secured, nil
}

// connectTimeout says that connecting took too long.
type connectTimeout struct{}

func (connectTimeout) Error() string   { return "connect timeout" }
func (connectTimeout) Timeout() bool   { return true }
func (connectTimeout) Temporary() bool { return true }

var errConnectTimeout net.Error = connectTimeout{}

// explain says at what a connection failed, and whether time ran out.
func (d *dialer) explain(ctx context.Context, err error, at string) error {
	if end, _ := ctx.Deadline(); !time.Now().Before(end) { // whichever of both clocks saw it first
		err = fmt.Errorf("%w after %v", errConnectTimeout, d.timeout)
		if at == "" {
			at = "dial " + d.addr + ": "
		}
	}
	if at == "" {
		return err // it names the address
	}
	return fmt.Errorf("%s%w", at, err)
}

// connect makes a TCP connection to host and port.
func (d *dialer) connect(ctx context.Context, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return d.net.DialContext(ctx, "tcp", addr)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port %q is not a number up to 65535", port)
	}
	found, late, err := d.names.find(ctx, host)
	if err != nil {
		return nil, err
	}
	c, err := d.race(ctx, alternate(found), uint16(number))
	if err == nil || !late || ctx.Err() != nil {
		return c, err
	}
	found, lookupErr := d.names.ask(ctx, host) // it may have moved
	if lookupErr != nil || len(found) == 0 {
		return nil, err
	}
	return d.race(ctx, alternate(found), uint16(number))
}

// alternate orders addresses so that both families come in turn, beginning with that of the first (RFC 8305 §4).
func alternate(found []netip.Addr) []netip.Addr {
	var families [2][]netip.Addr
	for _, a := range found {
		a = a.Unmap()
		which := 0
		if a.Is4() != found[0].Unmap().Is4() {
			which = 1
		}
		families[which] = append(families[which], a)
	}
	all := make([]netip.Addr, 0, len(found))
	for i := range found {
		for _, f := range families {
			if i < len(f) {
				all = append(all, f[i])
			}
		}
	}
	return all
}

// race connects to the first address that answers. Each gets a head start over the next, so that one that leads
// nowhere costs a moment and not the whole timeout. net.Dialer does that between two families only.
func (d *dialer) race(ctx context.Context, to []netip.Addr, port uint16) (net.Conn, error) {
	if len(to) == 0 {
		return nil, errors.New("the name has no address")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends those that lost
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	try := func(a netip.Addr) { // ends when it is connected, has failed, or another one won
		c, err := d.net.DialContext(ctx, "tcp", netip.AddrPortFrom(a, port).String())
		select {
		case results <- result{c, err}:
		case <-ctx.Done():
			if err == nil {
				_ = c.Close() // too late
			}
		}
	}
	next := time.NewTimer(0)
	defer next.Stop()
	var first error
	for begun, running := 0, 0; ; {
		select {
		case <-next.C:
			if begun < len(to) {
				go try(to[begun])
				begun, running = begun+1, running+1
				next.Reset(headStart)
			}
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			if first == nil {
				first = r.err
			}
			if running--; running == 0 && begun == len(to) {
				return nil, first
			}
			next.Reset(0)
		case <-ctx.Done():
			if first == nil {
				first = ctx.Err()
			}
			return nil, first
		}
	}
}

// tunnel asks a proxy for a connection to an address.
func tunnel(ctx context.Context, s *socket, addr string) error {
	defer context.AfterFunc(ctx, s.interrupt)()
	if _, err := io.WriteString(s, "CONNECT "+addr+" HTTP/1.1\r\nHost: "+addr+"\r\n\r\n"); err != nil {
		return err
	}
	c := &conn{sock: s, wire: s}
	var h head
	switch err := c.final(&h); {
	case err != nil:
		return err
	case h.status > 299:
		return fmt.Errorf("it refuses to connect to %s: %d %s", addr, h.status, http.StatusText(h.status))
	case !c.in.empty():
		return errors.New("it says more than it was asked")
	}
	return nil
}
