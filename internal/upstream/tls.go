package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// TLS says how an https endpoint is met. Files are PEM, and are read again when they have changed, for the
// connections made from then on; while the new ones cannot be used, the old ones stay.
type TLS struct {
	CA         string // file of authorities to trust in place of the system's; empty = the system's
	Cert, Key  string // files of the client's certificate, its chain after it, and its key; both or none
	ServerName string // what the endpoint's certificate must name; empty = the URL's host
}

// credentials is a TLS configuration that follows its files.
type credentials struct {
	from TLS

	mu     sync.Mutex
	stamps [3]stamp // of the files when they were read last
	loaded *tls.Config
}

// stamp tells versions of a file apart.
type stamp struct {
	changed time.Time
	size    int64
}

// newCredentials reads the files. host is the URL's.
func newCredentials(from TLS, host string) (*credentials, error) {
	if from.ServerName == "" {
		from.ServerName = host
	}
	c := &credentials{from: from, stamps: from.stamps()}
	loaded, err := from.load()
	if err != nil {
		return nil, err
	}
	c.loaded = loaded
	return c, nil
}

// config returns what the files hold now, or the last that could be used.
func (c *credentials) config() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.from.stamps(); now != c.stamps {
		c.stamps = now
		if loaded, err := c.from.load(); err == nil {
			c.loaded = loaded
		}
	}
	return c.loaded
}

func (t TLS) stamps() (s [3]stamp) {
	for i, name := range []string{t.CA, t.Cert, t.Key} {
		if name == "" {
			continue
		}
		if info, err := os.Stat(name); err == nil {
			s[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return s
}

func (t TLS) load() (*tls.Config, error) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: t.ServerName,
		NextProtos: []string{"h2", "http/1.1"},
		// Another handshake with the same endpoint is cheaper then, for both.
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("tls.ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca: %s holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)", t.CA)
		}
	}
	switch {
	case t.Cert == "" && t.Key == "":
		return config, nil
	case t.Cert == "" || t.Key == "":
		return nil, errors.New("tls.cert and tls.key go together: one is set, the other is not")
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("tls.cert %s, tls.key %s: %w", t.Cert, t.Key, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}
