package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"evenkeel/internal/config"
)

// adminClient asks the admin listener of a running balancer.
type adminClient struct {
	url   string             // as given
	files config.EndpointTLS // as given
}

// adminPatience bounds a question to the admin listener.
const adminPatience = 10 * time.Second

// explain gets one record.
func (a adminClient) explain(ctx context.Context, id string, asJSON bool) (string, error) {
	base, err := a.base()
	if err != nil {
		return "", err
	}
	secure, err := a.tls()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, adminPatience)
	defer cancel()
	target := base + "/explain/" + url.PathEscape(id)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return "", fmt.Errorf("asking %s: %w", target, err)
	}
	req.Header.Set("Accept", "text/plain")
	if asJSON {
		req.Header.Set("Accept", "application/json")
	}
	res, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return "", a.unreached(base, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return "", fmt.Errorf("reading the answer of %s: %w", target, err)
	}
	if res.StatusCode != http.StatusOK {
		return "", refusal(base, res, body)
	}
	return string(body), nil
}

// base is the URL with a scheme and without a slash at its end.
func (a adminClient) base() (string, error) {
	if a.url == "" {
		return "", usageError{errors.New("--admin-url is empty; write the address of the balancer's admin listener, such as 127.0.0.1:8081")}
	}
	base := a.url
	secured := a.files != config.EndpointTLS{}
	switch {
	case !strings.Contains(base, "://") && secured:
		base = "https://" + base
	case !strings.Contains(base, "://"):
		base = "http://" + base
	}
	base = strings.TrimSuffix(base, "/")
	u, err := url.Parse(base)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", usageError{fmt.Errorf("--admin-url %q is not an address such as 127.0.0.1:8081 or https://lb:8081", a.url)}
	case secured && strings.HasPrefix(base, "http://"):
		return "", usageError{fmt.Errorf("--admin-url %q is plain HTTP, and --cacert, --cert and --key are for TLS; write https://, or leave them out", a.url)}
	}
	return base, nil
}

// tls loads the files.
func (a adminClient) tls() (*tls.Config, error) {
	switch {
	case a.files.Cert != "" && a.files.Key == "":
		return nil, usageError{errors.New("--cert needs --key beside it, the file of its private key")}
	case a.files.Key != "" && a.files.Cert == "":
		return nil, usageError{errors.New("--key needs --cert beside it, the file of your certificate")}
	}
	c, err := a.files.Load()
	var bad *config.FileError
	if errors.As(err, &bad) {
		flag := map[string]string{"ca": "cacert"}[bad.Key]
		if flag == "" {
			flag = bad.Key
		}
		return nil, fmt.Errorf("--%s: %q %s", flag, bad.File, bad.Text)
	}
	return c, err
}

// unreached words why there is no answer of base.
func (a adminClient) unreached(base string, err error) error {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var operation *net.OpError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s speaks plain HTTP: write http:// (its admin_tls is not set)", base)
	case errors.As(err, &authority) && a.files.CA == "":
		return fmt.Errorf("the certificate of %s is signed by nobody that this system knows; name the file of its authority with --cacert", base)
	case errors.As(err, &authority):
		return fmt.Errorf("the certificate of %s is not signed by an authority in --cacert %q; is it the file of its authority?", base, a.files.CA)
	case errors.As(err, &name):
		return fmt.Errorf("the certificate of %s is for another name: %w; write a name that it has in --admin-url", base, name)
	case errors.As(err, &verification):
		return fmt.Errorf("the certificate of %s is refused: %w", base, verification.Err)
	case errors.As(err, &operation) && operation.Op == "remote error" && a.files.Cert == "": // an alert of TLS
		return fmt.Errorf("%s refuses a client without a certificate (%w); name yours with --cert and --key", base, operation.Err)
	case errors.As(err, &operation) && operation.Op == "remote error":
		return fmt.Errorf("%s refuses the certificate in --cert %q: %w; is it signed by an authority in its admin_tls.client_ca?", base, a.files.Cert, operation.Err)
	}
	return fmt.Errorf("no balancer answers at %s: %w; is `evenkeel serve` running, and is this its --admin address?", base, err)
}

// refusal words an answer that is not the record.
func refusal(base string, res *http.Response, body []byte) error {
	var told struct{ Error string }
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case res.StatusCode == http.StatusBadRequest && strings.Contains(string(body), "HTTP request to an HTTPS server"):
		return fmt.Errorf("%s speaks TLS: write https://, with --cacert and the file of its authority unless the system knows it", base)
	case kind == "text/plain":
		return errors.New(strings.TrimSpace(string(body)))
	case json.Unmarshal(body, &told) == nil && told.Error != "":
		return errors.New(told.Error)
	}
	return fmt.Errorf("%s answers %s, but not as a balancer's admin listener does; is it the address given as --admin?", base, res.Status)
}
