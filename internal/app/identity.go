package app

import (
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/telemetry"
)

// certificateLook is how often the files of certificates are read. Whatever renews them does so days before it must.
const certificateLook = 10 * time.Second

// identity is a listener's side of TLS: it serves with the newest certificate that could be loaded.
type identity struct {
	setting string // that names the files
	logger  *slog.Logger
	metrics *telemetry.Listener
	current atomic.Pointer[tls.Config]

	mu      sync.Mutex
	files   config.ListenerTLS
	certs   config.Certificates // what current was made from
	failure string              // met by the last look, empty if none
	told    bool                // failure is in the log
}

// newIdentity loads the files; nil if none are configured.
func newIdentity(setting string, files config.ListenerTLS, metrics *telemetry.Listener, logger *slog.Logger) (*identity, error) {
	if !files.On() {
		return nil, nil
	}
	i := &identity{setting: setting, logger: logger, metrics: metrics}
	apply, err := i.renewal(files)
	if err != nil {
		return nil, err
	}
	apply()
	return i, nil
}

// renewal loads files and returns what makes them those in use. The receiver may be nil: then there is nothing to do.
func (i *identity) renewal(files config.ListenerTLS) (apply func(), err error) {
	if i == nil {
		return func() {}, nil
	}
	certs, err := files.Load()
	if err != nil {
		return nil, settingError{i.setting, err}
	}
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.files = files
		i.use(certs)
	}, nil
}

// settingError names the section of a setting that an error is about.
type settingError struct {
	section string
	err     error
}

func (e settingError) Error() string { return e.section + "." + e.err.Error() }

func (e settingError) Unwrap() error { return e.err }

// use makes certs the ones in use. Callers hold mu.
func (i *identity) use(certs config.Certificates) {
	c := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{certs.Pair},
	}
	if certs.ClientCAs != nil {
		c.ClientCAs, c.ClientAuth = certs.ClientCAs, tls.RequireAndVerifyClientCert
	}
	i.certs, i.failure, i.told = certs, "", false
	i.current.Store(c)
	i.metrics.Certificate(certs.Pair.Leaf.NotAfter)
	i.metrics.CertificateReloaded(true)
}

// server is the configuration of a server, which asks for the current one at each handshake.
func (i *identity) server() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return i.current.Load(), nil },
	}
}

// names are those that the certificate in use is for.
func (i *identity) names() []string {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.certs.Pair.Leaf.DNSNames
}

// watch takes new files as they come, until ctx ends.
func (i *identity) watch(ctx context.Context) {
	look := time.NewTicker(certificateLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			i.look(time.Now())
		}
	}
}

// look reads the files and uses what is new. What cannot be used is told when it is so for the second time: it may have
// been the middle of a renewal.
func (i *identity) look(now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	certs, err := i.files.Load()
	if err != nil {
		text := settingError{i.setting, err}.Error()
		if text == i.failure && !i.told {
			i.logger.Error("new files of a certificate cannot be used; the one before them stays", "error", text)
			i.metrics.CertificateReloaded(false)
			i.told = true
		}
		i.told = i.told && text == i.failure
		i.failure = text
		return
	}
	if alike(certs, i.certs) {
		if i.failure != "" {
			i.failure, i.told = "", false
			i.metrics.CertificateReloaded(true)
		}
		return
	}
	i.use(certs)
	i.logger.Info("new certificate", "setting", i.setting, "until", certs.Pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	if text := config.Expiry(certs.Pair.Leaf, now); text != "" {
		i.logger.Warn("certificate", "setting", i.setting, "warning", text)
	}
}

// alike reports whether two certificates are the same, with their chains and the authorities of clients.
func alike(a, b config.Certificates) bool {
	if (a.ClientCAs == nil) != (b.ClientCAs == nil) || a.ClientCAs != nil && !a.ClientCAs.Equal(b.ClientCAs) {
		return false
	}
	return slices.EqualFunc(a.Pair.Certificate, b.Pair.Certificate, slices.Equal)
}
