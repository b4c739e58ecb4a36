package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// ListenerTLS names the PEM files of a listener that speaks TLS.
type ListenerTLS struct {
	// Cert is the certificate with its chain, the leaf first. Without it the listener speaks plain HTTP.
	Cert string `yaml:"cert,file"`
	// Key is the private key of Cert, without a passphrase.
	Key string `yaml:"key,file"`
	// ClientCA holds the authorities that sign the certificates of clients; with it every client needs one.
	ClientCA string `yaml:"client_ca,file"`
}

// EndpointTLS says how an endpoint at an https URL is known, and how we are known to it. All files are PEM.
type EndpointTLS struct {
	// CA holds the authorities that sign the endpoint's certificate; empty takes those of the system.
	CA string `yaml:"ca,file"`
	// Cert and Key are our own certificate; empty shows none.
	Cert string `yaml:"cert,file"`
	Key  string `yaml:"key,file"`
	// ServerName is the name that the endpoint's certificate must have; empty takes the host of its URL.
	ServerName string `yaml:"server_name"`
}

// On reports whether the listener speaks TLS.
func (t ListenerTLS) On() bool { return t.Cert != "" }

// Certificates is what ListenerTLS names.
type Certificates struct {
	Pair      tls.Certificate // with its Leaf
	ClientCAs *x509.CertPool  // nil if clients need no certificate

	authorities []*x509.Certificate // in ClientCAs
}

// Load reads the files as they are now. The error names the setting and the file, and is of type *FileError.
func (t ListenerTLS) Load() (Certificates, error) { return t.load(readPEM) }

func (t ListenerTLS) load(read reader) (Certificates, error) {
	var c Certificates
	var err error
	if c.Pair, err = loadPair(read, t.Cert, t.Key); err != nil {
		return Certificates{}, err
	}
	if t.ClientCA != "" {
		if c.authorities, err = loadAuthorities(read, "client_ca", t.ClientCA); err != nil {
			return Certificates{}, err
		}
		c.ClientCAs = pool(c.authorities)
	}
	return c, nil
}

// Load reads the files as they are now, for a client. The error names the key of the setting and the file, and is of type
// *FileError.
func (t EndpointTLS) Load() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		authorities, err := loadAuthorities(readPEM, "ca", t.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool(authorities)
	}
	if t.Cert != "" {
		pair, err := loadPair(readPEM, t.Cert, t.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// FileError says what is wrong with a file that a setting names.
type FileError struct {
	Key  string // of the setting, in its section
	File string
	Text string // what is wrong, and what to do

	missing bool // there is no such file
}

// Error implements error.
func (e *FileError) Error() string { return fmt.Sprintf("%s: %s %s", e.Key, show(e.File), e.Text) }

func badFile(key, name, format string, args ...any) *FileError {
	return &FileError{Key: key, File: name, Text: fmt.Sprintf(format, args...)}
}

// reader reads a file of certificates or keys.
type reader func(name string) ([]byte, error)

// maxPEM bounds such a file; the largest bundles of authorities have about 250 KiB.
const maxPEM = 1 << 20 // bytes

// readPEM is the reader of this machine's files. Certificates may be behind any links: rotation works by them.
func readPEM(name string) ([]byte, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file") // opening a pipe would wait for its writer
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxPEM+1))
	if err == nil && len(data) > maxPEM {
		return nil, fmt.Errorf("is larger than %d KiB", maxPEM>>10)
	}
	return data, err
}

func readFileOf(read reader, key, name string) ([]byte, error) {
	data, err := read(name)
	switch {
	case err == nil:
		return data, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, &FileError{key, name, "does not exist", true}
	case errors.Is(err, fs.ErrPermission):
		return nil, badFile(key, name, "cannot be read: permission denied; give it to the user that runs evenkeel")
	}
	return nil, badFile(key, name, "cannot be read: %s", reason(err))
}

// loadPair reads a certificate and its key.
func loadPair(read reader, cert, key string) (tls.Certificate, error) {
	chain, err := readFileOf(read, "cert", cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	private, err := readFileOf(read, "key", key)
	if err != nil {
		return tls.Certificate{}, err
	}
	certs, others := blocks(chain)
	_, keys := blocks(private)
	switch {
	case len(certs) == 0 && hasKey(others):
		return tls.Certificate{}, badFile("cert", cert, "holds a private key and no certificate; are cert and key switched?")
	case len(certs) == 0:
		return tls.Certificate{}, badFile("cert", cert, "holds no certificate; it must be PEM, with -----BEGIN CERTIFICATE-----")
	case !hasKey(keys):
		return tls.Certificate{}, badFile("key", key, "holds no private key; it must be PEM, with -----BEGIN PRIVATE KEY-----")
	case bytes.Contains(private, []byte("ENCRYPTED")):
		return tls.Certificate{}, badFile("key", key, "is locked by a passphrase; write it without one: openssl pkey -in KEY -out KEY-WITHOUT")
	}
	if err := wellFormed("cert", cert, certs); err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(chain, private)
	if err != nil {
		return tls.Certificate{}, badFile("key", key, "does not go with the certificate in %s: %s", show(cert), strings.TrimPrefix(err.Error(), "tls: "))
	}
	return pair, nil
}

// loadAuthorities reads the certificates of authorities.
func loadAuthorities(read reader, key, name string) ([]*x509.Certificate, error) {
	data, err := readFileOf(read, key, name)
	if err != nil {
		return nil, err
	}
	certs, _ := blocks(data)
	if len(certs) == 0 {
		return nil, badFile(key, name, "holds no certificate; it must be PEM, with -----BEGIN CERTIFICATE-----")
	}
	if err := wellFormed(key, name, certs); err != nil {
		return nil, err
	}
	authorities := make([]*x509.Certificate, len(certs))
	for i, der := range certs {
		authorities[i], _ = x509.ParseCertificate(der) // well-formed
	}
	return authorities, nil
}

func pool(authorities []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, a := range authorities {
		p.AddCert(a)
	}
	return p
}

func wellFormed(key, name string, certs [][]byte) error {
	for i, der := range certs {
		if _, err := x509.ParseCertificate(der); err != nil {
			return badFile(key, name, "holds a certificate that is broken (the %d. of %d): %s", i+1, len(certs), strings.TrimPrefix(err.Error(), "x509: "))
		}
	}
	return nil
}

// blocks returns the certificates of a PEM file in DER, and the names of its other parts.
func blocks(data []byte) (certs [][]byte, others []string) {
	for {
		block, rest := pem.Decode(data)
		switch {
		case block == nil:
			return certs, others
		case block.Type == "CERTIFICATE":
			certs = append(certs, block.Bytes)
		default:
			others = append(others, block.Type)
		}
		data = rest
	}
}

func hasKey(names []string) bool {
	for _, name := range names {
		if strings.HasSuffix(name, "PRIVATE KEY") {
			return true
		}
	}
	return false
}

// expiresSoon is from when on a certificate's end is worth a warning: automatic renewal is due before, at a third of a
// 90-day certificate's life.
const expiresSoon = 14 * 24 * time.Hour

// expiryForm is how a certificate's end is written.
const expiryForm = "2006-01-02 15:04 MST"

// Expiry says what is to be known about a certificate's time, empty if it is far from its ends.
func Expiry(c *x509.Certificate, now time.Time) string {
	switch {
	case now.After(c.NotAfter):
		return fmt.Sprintf("the certificate has expired on %s, so clients refuse it; renew it", c.NotAfter.UTC().Format(expiryForm))
	case now.Before(c.NotBefore):
		return fmt.Sprintf("the certificate is valid only from %s on; is the clock right?", c.NotBefore.UTC().Format(expiryForm))
	case c.NotAfter.Sub(now) < expiresSoon:
		return fmt.Sprintf("the certificate expires on %s; renew it, the new files are taken without a restart", c.NotAfter.UTC().Format(expiryForm))
	}
	return ""
}

// files checks what the settings of TLS name, with read. It is done once, when the files of the configuration are read.
func (v *validator) files(read reader, now time.Time) {
	root := (*path)(nil)
	v.listenerTLS(root.key("tls"), v.config.TLS, read, now)
	v.listenerTLS(root.key("admin_tls"), v.config.AdminTLS, read, now)
	for _, e := range v.config.Endpoints {
		v.endpointTLS(root.keys("endpoints", e.Name, "tls"), e.TLS, read, now)
	}
}

func (v *validator) listenerTLS(at *path, t ListenerTLS, read reader, now time.Time) {
	if !v.paired(at, t.Cert, t.Key) {
		return
	}
	if !t.On() {
		if t.ClientCA != "" {
			v.fail(at.key("client_ca"), "needs a certificate of our own beside it; write cert and key")
		}
		return
	}
	c, err := t.load(read)
	if !v.file(at, err) {
		return
	}
	v.expiry(at.key("cert"), c.Pair.Leaf, now)
	v.authorities(at.key("client_ca"), c.authorities, now)
	if leaf := c.Pair.Leaf; len(leaf.DNSNames) == 0 && len(leaf.IPAddresses) == 0 {
		v.warn(at.key("cert"), "the certificate has no subject alternative name, so most clients refuse it; issue one with the names that clients connect to")
	}
}

func (v *validator) endpointTLS(at *path, t EndpointTLS, read reader, now time.Time) {
	if t.CA != "" {
		authorities, err := loadAuthorities(read, "ca", t.CA)
		if v.file(at, err) {
			v.authorities(at.key("ca"), authorities, now)
		}
	}
	if v.paired(at, t.Cert, t.Key) && t.Cert != "" {
		pair, err := loadPair(read, t.Cert, t.Key)
		if v.file(at, err) {
			v.expiry(at.key("cert"), pair.Leaf, now)
		}
	}
}

// paired reports whether a certificate and a key are written both or not at all.
func (v *validator) paired(at *path, cert, key string) bool {
	for _, one := range []struct{ has, lacks, written, missing string }{{cert, key, "cert", "key"}, {key, cert, "key", "cert"}} {
		if one.has != "" && one.lacks == "" {
			if v.missing(at, one.missing) {
				v.fail(at.key(one.written), "needs %s beside it, the other half of the pair", one.missing)
			}
			return false
		}
	}
	return true
}

// file reports whether a file was good; else the problem is noted at its setting.
func (v *validator) file(at *path, err error) bool {
	var bad *FileError
	if errors.As(err, &bad) {
		hint := ""
		if bad.missing {
			hint = "; a relative path starts at the directory of its config file"
		}
		v.fail(at.key(bad.Key), "%s %s%s", show(bad.File), bad.Text, hint)
	}
	return err == nil
}

func (v *validator) expiry(at *path, c *x509.Certificate, now time.Time) {
	if text := Expiry(c, now); text != "" {
		v.warn(at, "%s", text)
	}
}

// authorities warns of those whose time is not now: what they signed is refused.
func (v *validator) authorities(at *path, list []*x509.Certificate, now time.Time) {
	for _, a := range list {
		if text := authorityExpiry(a, len(list) > 1, now); text != "" {
			v.warn(at, "%s", text)
		}
	}
}

// authorityExpiry is Expiry for an authority's certificate, which it names if it is one of several.
func authorityExpiry(a *x509.Certificate, named bool, now time.Time) string {
	who := "the authority"
	if named {
		who += " " + show(a.Subject.String())
	}
	switch {
	case now.After(a.NotAfter):
		return fmt.Sprintf("%s has expired on %s, so every certificate that it signed is refused; put the new one into the file", who, a.NotAfter.UTC().Format(expiryForm))
	case now.Before(a.NotBefore):
		return fmt.Sprintf("%s is valid only from %s on; is the clock right?", who, a.NotBefore.UTC().Format(expiryForm))
	case a.NotAfter.Sub(now) < expiresSoon:
		return fmt.Sprintf("%s expires on %s; put the new one into the file, it is taken without a restart", who, a.NotAfter.UTC().Format(expiryForm))
	}
	return ""
}
