package discovery

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"evenkeel/internal/llm"
	"evenkeel/internal/secret"
)

// maxBody bounds the body of an answer, in bytes after decompression. A list of all models of a large provider has about
// 500 KB, the metrics of a busy engine have less.
const maxBody = 4 << 20

// client sends GETs to one endpoint.
type client struct {
	rt      http.RoundTripper
	target  Target
	timeout time.Duration // for one GET with its body
	// failed is the first GET whose answer did not come, or not to its end. From then on no GET is sent until it is
	// cleared: a server that hangs would cost a timeout for each.
	failed error
}

// answer is what came back for a GET.
type answer struct {
	status int // 0: no HTTP answer, and err says why
	header http.Header
	body   []byte // nil if it did not come whole, and err says why
	err    error
}

// get sends one GET with the headers of a kind of endpoint; an unknown kind has those of OpenAI's API.
func (c *client) get(ctx context.Context, kind, path string) answer {
	if c.failed != nil {
		return answer{err: c.failed}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.target.URL+path, nil)
	if err != nil {
		c.failed = fmt.Errorf("GET %s: the URL of endpoint %q is not usable", path, c.target.Name)
		return answer{err: c.failed}
	}
	c.setHeaders(req.Header, kind)
	resp, err := c.rt.RoundTrip(req) // not an http.Client: it would follow redirects
	if err != nil {
		c.failed = c.failure(path, err)
		return answer{err: c.failed}
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		c.failed = c.failure(path, err)
		a.err = c.failed
	case len(body) > maxBody:
		a.err = fmt.Errorf("GET %s: the answer is longer than %d MiB", path, maxBody>>20)
	default:
		a.body = body
	}
	return a
}

func (c *client) setHeaders(h http.Header, kind string) {
	k, ok := llm.LookupKind(kind)
	if !ok {
		k, _ = llm.LookupKind(generic)
	}
	for _, d := range k.DefaultHeaders {
		h.Set(d.Name, d.Value)
	}
	if !c.target.APIKey.IsZero() {
		h.Set(k.CredentialHeader, k.CredentialPrefix+c.target.APIKey.Reveal())
	}
	h.Set("Accept", "application/json, text/plain;q=0.5")
	h.Set("User-Agent", "evenkeel")
}

// failure puts a transport's error into words. Some quote what the server sent, and a server may send the key back.
func (c *client) failure(path string, err error) error {
	if c.holdsKey(err.Error()) {
		return fmt.Errorf("GET %s: no usable answer: it is garbled, and holds the endpoint's key", path)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("GET %s: no whole answer in time (%v for one GET): %w", path, c.timeout, err)
	}
	if _, noTLS := errors.AsType[tls.RecordHeaderError](err); noTLS {
		return fmt.Errorf("GET %s: the server does not speak TLS; if it should not, write http:// in the url of endpoint %q: %w",
			path, c.target.Name, err)
	}
	return fmt.Errorf("GET %s: %w", path, err)
}

// location returns where a redirect leads, as far as it can be shown.
func (c *client) location(a answer) string {
	u, err := url.Parse(a.header.Get("Location"))
	if err != nil || u.Host == "" || clean(u.Host+u.Path) == "" || c.holdsKey(u.Host+u.Path) {
		return "another address"
	}
	return strconv.Quote(u.Scheme + "://" + u.Host + u.Path)
}

func (c *client) holdsKey(text string) bool {
	f := secret.NewFinder(c.target.APIKey)
	return f.In([]byte(text))
}

// page returns the body of a page, or nil if the answer is not 200.
func (c *client) page(ctx context.Context, kind, path string) []byte {
	if a := c.get(ctx, kind, path); a.status == http.StatusOK {
		return a.body
	}
	return nil
}

// object decodes a page that is a JSON object; what it lacks, or has of another type, stays zero.
func (c *client) object(ctx context.Context, kind, path string, v any) bool {
	return decode(c.page(ctx, kind, path), v)
}

// decode is lenient: a value of a wrong type leaves its field zero and the others as they are.
func decode(body []byte, v any) bool {
	err := json.Unmarshal(body, v)
	_, wrongType := errors.AsType[*json.UnmarshalTypeError](err)
	return err == nil || wrongType
}
