package config

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/tests/certs"
)

// certificates writes files that tests of TLS name, and returns their directory and the authority of the good ones.
func certificates(t testing.TB) (dir string, ca *certs.Authority) {
	t.Helper()
	dir, ca = t.TempDir(), certs.NewAuthority(t, "one")
	local, other := ca.Local(t), certs.NewAuthority(t, "two").Local(t)
	local.Write(t, dir, "good")
	ca.Issue(t, time.Now().Add(-time.Hour), "localhost").Write(t, dir, "expired")
	ca.Issue(t, time.Now().Add(24*time.Hour), "localhost").Write(t, dir, "soon")
	ca.Issue(t, time.Now().AddDate(1, 0, 0)).Write(t, dir, "nameless")
	for name, data := range map[string][]byte{
		"ca.pem": ca.PEM, "other.key": other.Key, "empty.pem": nil, "text.pem": []byte("no certificate"),
		"both.pem":    slices.Concat(local.Cert, local.Key),
		"rotated.pem": slices.Concat(ca.PEM, ca.Issue(t, time.Now().Add(-time.Hour), "localhost").Cert),
		"chain.pem":   slices.Concat(local.Cert, ca.PEM),
		"broken.pem":  []byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"),
		"half.pem":    slices.Concat(local.Cert, []byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")),
		"locked.key":  []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n"),
		"huge.pem":    make([]byte, maxPEM+1),
	} {
		certs.WriteFile(t, dir, name, data)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir, ca
}

// TestTLSFiles checks what is said about files, which are read when the configuration is.
func TestTLSFiles(t *testing.T) {
	dir, _ := certificates(t)
	f := func(text, want string) {
		t.Helper()
		text += "\nendpoints: {e: {url: https://e}}"
		c, warnings, err := Load([]File{{filepath.Join(dir, "c.yaml"), []byte(text)}}, env())
		got := lines(warnings)
		if err != nil {
			got += err.Error() + "\n"
			if again := c.Validate(nil); again == nil || !strings.Contains(again.Error(), err.Error()) {
				t.Errorf("%s\nLoad says\n%v\nand Validate\n%v", text, err, again)
			}
		}
		got = strings.NewReplacer(dir+"/c.yaml", "c.yaml", dir, "DIR").Replace(got)
		if want == "" && got != "" || !strings.Contains(got, want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s\nsays\n%swant\n%s", text, got, want)
		}
	}
	f("tls: {cert: good.pem, key: good.key}", "")
	f("tls: {cert: "+dir+"/good.pem, key: "+dir+"/good.key, client_ca: ca.pem}", "")
	f("tls: {cert: chain.pem, key: good.key}", "")
	f("tls: {cert: both.pem, key: both.pem}", "")
	f("admin_tls: {cert: good.pem, key: good.key}", "")
	f("tls: {cert: nothing.pem, key: good.key}", `c.yaml:1:7: tls.cert: "DIR/nothing.pem" does not exist; a relative path starts at the directory of its config file`)
	f("tls: {cert: good.pem, key: nothing.key}", `c.yaml:1:23: tls.key: "DIR/nothing.key" does not exist`)
	f("tls: {cert: folder, key: good.key}", `tls.cert: "DIR/folder" cannot be read: is not a regular file`)
	f("tls: {cert: huge.pem, key: good.key}", "is larger than 1024 KiB")
	f("tls: {cert: empty.pem, key: good.key}", "tls.cert: \"DIR/empty.pem\" holds no certificate; it must be PEM")
	f("tls: {cert: text.pem, key: good.key}", "holds no certificate")
	f("tls: {cert: broken.pem, key: good.key}", "holds a certificate that is broken (the 1. of 1)")
	f("tls: {cert: half.pem, key: good.key}", "holds a certificate that is broken (the 2. of 2)")
	f("tls: {cert: good.key, key: good.pem}", `tls.cert: "DIR/good.key" holds a private key and no certificate; are cert and key switched?`)
	f("tls: {cert: good.pem, key: good.pem}", `tls.key: "DIR/good.pem" holds no private key`)
	f("tls: {cert: good.pem, key: other.key}", `tls.key: "DIR/other.key" does not go with the certificate in "DIR/good.pem": private key does not match public key`)
	f("tls: {cert: good.pem, key: locked.key}", "is locked by a passphrase; write it without one: openssl pkey")
	f("tls: {cert: good.pem, key: good.key, client_ca: good.key}", `tls.client_ca: "DIR/good.key" holds no certificate`)
	f("admin_tls: {cert: good.pem, key: good.key, client_ca: half.pem}", "admin_tls.client_ca: \"DIR/half.pem\" holds a certificate that is broken")
	f("tls: {cert: expired.pem, key: expired.key}", "c.yaml:1:7: tls.cert: the certificate has expired on ")
	f("tls: {cert: soon.pem, key: soon.key}", "renew it, the new files are taken without a restart")
	f("tls: {cert: good.pem, key: good.key, client_ca: expired.pem}", "c.yaml:1:38: tls.client_ca: the authority has expired on ")
	f("admin_tls: {cert: good.pem, key: good.key, client_ca: soon.pem}", "admin_tls.client_ca: the authority expires on ")
	f("tls: {cert: good.pem, key: good.key, client_ca: rotated.pem}", `tls.client_ca: the authority "CN=test" has expired on `)
	f("tls: {cert: nameless.pem, key: nameless.key}", "tls.cert: the certificate has no subject alternative name")

	f("tls: {cert: good.pem}", "c.yaml:1:7: tls.cert: needs key beside it, the other half of the pair")
	f("tls: {key: good.key}", "tls.key: needs cert beside it")
	f("tls: {client_ca: ca.pem}", "tls.client_ca: needs a certificate of our own beside it; write cert and key")
	f("tls: {cert: good.pem, kye: good.key}", `tls: unknown key "kye"; did you mean "key"?`)
	f("tls: {cert: '', key: good.key}", "tls.cert: is empty; write the path of a file, or remove the key")
	f("tls: {cert: 'file:good.pem', key: good.key}", "takes the path alone, without file: in front")
	f("tls: {cert: \"-----BEGIN CERTIFICATE-----\\nMIIB\", key: good.key}", "takes the path of a file, not its content")
	f("tls: {cert: [good.pem], key: good.key}", "tls.cert: must be text, is a list")
	f("h2c: true", "")
	f("h2c: true\ntls: {cert: good.pem, key: good.key}", "c.yaml:1:1: h2c: is HTTP/2 without TLS, and tls is set")
}

func TestEndpointTLSFiles(t *testing.T) {
	dir, _ := certificates(t)
	f := func(endpoint, want string) {
		t.Helper()
		_, warnings, err := Load([]File{{filepath.Join(dir, "c.yaml"), []byte("endpoints: {e: {" + endpoint + "}}")}}, env())
		got := lines(warnings)
		if err != nil {
			got += err.Error() + "\n"
		}
		got = strings.NewReplacer(dir+"/c.yaml", "c.yaml", dir, "DIR").Replace(got)
		if want == "" && got != "" || !strings.Contains(got, want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s\nsays\n%swant\n%s", endpoint, got, want)
		}
	}
	f("url: https://e, tls: {ca: ca.pem, cert: good.pem, key: good.key, server_name: gpu-1.internal}", "")
	f("url: https://e, tls: {ca: nothing.pem}", `endpoints.e.tls.ca: "DIR/nothing.pem" does not exist`)
	f("url: https://e, tls: {ca: expired.pem}", "endpoints.e.tls.ca: the authority has expired on ")
	f("url: https://e, tls: {ca: soon.pem}", "it is taken without a restart")
	f("url: https://e, tls: {cert: good.pem}", "endpoints.e.tls.cert: needs key beside it")
	f("url: https://e, tls: {cert: soon.pem, key: soon.key}", "endpoints.e.tls.cert: the certificate expires on ")
	f("url: https://e, tls: {server_name: 'a b'}", `endpoints.e.tls.server_name: must be the name of a host, is "a b"`)
	f("url: http://e, tls: {ca: ca.pem}", `endpoints.e.tls: is for https:// and the url is "http://e"; write https, or remove tls`)
	f("url: https://e, proxy: http://Proxy.Internal:3128/", "")
	f("url: https://e, proxy: 'proxy:3128'", `endpoints.e.proxy: "proxy:3128" is not an address such as http://10.0.0.9:3128`)
	f("url: https://e, proxy: socks5://proxy:3128", "must start with http://")
	f("url: https://e, proxy: http://user:hunter2@proxy:3128", `"http://[redacted]@proxy:3128" must not hold a user or password`)
	f("url: https://e, proxy: http://proxy:3128/path", "must be host and port only")
	f("url: https://e, proxy: http://:3128", "has no host")
	f("url: https://e, max_connections: -1", "endpoints.e.max_connections: must be 0 or more, is -1")
}

// A listener that others reach is fine where clients need a certificate.
func TestClientCertificatesAreAuthentication(t *testing.T) {
	dir, _ := certificates(t)
	f := func(text string, wrong ...string) {
		t.Helper()
		c, _, err := Load([]File{{filepath.Join(dir, "c.yaml"), []byte(text + "\nendpoints: {e: {url: http://e}}")}}, env())
		if err != nil {
			t.Fatal(err)
		}
		var problems Problems
		errors.As(c.Validate(nil), &problems)
		var paths []string
		for _, p := range problems {
			paths = append(paths, p.Path)
		}
		if fmt.Sprint(paths) != fmt.Sprint(wrong) {
			t.Errorf("%s\nwrong are %v, want %v", text, problems, wrong)
		}
	}
	const pair = "cert: good.pem, key: good.key"
	f("listen: 0.0.0.0:8080\ntls: {"+pair+"}", "listen")
	f("listen: 0.0.0.0:8080\ntls: {" + pair + ", client_ca: ca.pem}")
	f("listen: 0.0.0.0:8080\nadmin_tls: {"+pair+", client_ca: ca.pem}", "listen")
	f("admin: 0.0.0.0:8081\nadmin_tls: {"+pair+"}", "admin")
	f("admin: 0.0.0.0:8081\ntls: {"+pair+", client_ca: ca.pem}", "admin")
	f("admin: 0.0.0.0:8081\nadmin_tls: {" + pair + ", client_ca: ca.pem}")
}

func TestExpiry(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	f := func(from, to time.Duration, want string) {
		t.Helper()
		got := Expiry(&x509.Certificate{NotBefore: now.Add(from), NotAfter: now.Add(to)}, now)
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%v to %v: %q, want %q", from, to, got, want)
		}
	}
	const day = 24 * time.Hour
	f(-day, 15*day, "")
	f(-day, 13*day, "expires on 2026-06-14 12:00 UTC")
	f(-2*day, -day, "has expired on 2026-05-31 12:00 UTC")
	f(day, 90*day, "valid only from 2026-06-02 12:00 UTC")
}

// TestEndpointTLSLoad: errors name the key and the file.
func TestEndpointTLSLoad(t *testing.T) {
	dir, ca := certificates(t)
	f := func(files EndpointTLS, want string) {
		t.Helper()
		c, err := files.Load()
		var bad *FileError
		switch {
		case want == "" && (err != nil || (files.CA != "") != (c.RootCAs != nil) || (files.Cert != "") != (len(c.Certificates) == 1)):
			t.Errorf("%+v: %v, %+v", files, err, c)
		case want == "" && files.CA != "" && !c.RootCAs.Equal(ca.Pool()):
			t.Errorf("%+v: other authorities", files)
		case want != "" && (!errors.As(err, &bad) || err.Error() != want):
			t.Errorf("%+v: %v, want %s", files, err, want)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	f(EndpointTLS{}, "")
	f(EndpointTLS{CA: in("ca.pem")}, "")
	f(EndpointTLS{CA: in("ca.pem"), Cert: in("good.pem"), Key: in("good.key")}, "")
	f(EndpointTLS{CA: in("none.pem")}, fmt.Sprintf("ca: %q does not exist", in("none.pem")))
	f(EndpointTLS{Cert: in("good.pem"), Key: in("none.key")}, fmt.Sprintf("key: %q does not exist", in("none.key")))
}

// FuzzPEM feeds any bytes as a file of certificates, of a key and of authorities.
func FuzzPEM(f *testing.F) {
	pair := certs.NewAuthority(f, "one").Local(f)
	for _, seed := range [][]byte{nil, pair.Cert, pair.Key, slices.Concat(pair.Key, pair.Cert), []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")} {
		f.Add(seed, seed)
		f.Add(pair.Cert, seed)
		f.Add(seed, pair.Key)
	}
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		files := map[string][]byte{"c": cert, "k": key}
		read := func(name string) ([]byte, error) { return files[name], nil }
		var bad *FileError
		got, err := ListenerTLS{Cert: "c", Key: "k", ClientCA: "c"}.load(read)
		switch {
		case err != nil && (!errors.As(err, &bad) || bad.Text == ""):
			t.Errorf("error %T %v, want a *FileError", err, err)
		case err == nil && (got.Pair.Leaf == nil || got.Pair.PrivateKey == nil || got.ClientCAs == nil):
			t.Errorf("no error, and %+v", got)
		}
	})
}
