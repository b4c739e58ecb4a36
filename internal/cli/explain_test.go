//go:build unix

package cli

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/console"
	"evenkeel/internal/mock"
	"evenkeel/internal/strategy"
	"evenkeel/tests/certs"
)

func TestExplainWithoutAnID(t *testing.T) {
	for _, id := range []string{"", " "} {
		if code, _, errs := command("explain", id); code != exitUsage || !strings.Contains(errs, "the ID is empty; write the one in the response header x-evenkeel-id") {
			t.Errorf("%q: exit code %d\n%s", id, code, errs)
		}
	}
}

func TestExplainARunningBalancer(t *testing.T) {
	one := mockEngine(t, mock.Config{Name: "one", Models: []string{"m"}, OutputTokens: 3})
	two := mockEngine(t, mock.Config{Name: "two", Models: []string{"m"}, OutputTokens: 3})
	p := serve(t, one.URL(), two.URL())
	explain := func(code int, args ...string) string {
		t.Helper()
		got, stdout, stderr := command(append([]string{"explain", "--admin-url", p.admin + "/"}, args...)...)
		if got != code || strings.Contains(stdout+stderr, canary) {
			t.Errorf("explain %q: exit code %d, want %d; stdout %q, stderr %q", args, got, code, stdout, stderr)
		}
		return stdout + stderr
	}
	if text := explain(exitFailure, "last"); !strings.Contains(text, "none has ended since the start") {
		t.Errorf("before the first request: %q", text)
	}
	first := p.stream("")
	first.rest()
	p.await("the first has ended", func() bool { status, _ := get(p.admin + "/explain/" + first.id); return status == http.StatusOK })
	second := p.stream("")
	second.rest()
	p.await("the second has ended", func() bool { status, _ := get(p.admin + "/explain/" + second.id); return status == http.StatusOK })

	story := explain(exitOK, first.id)
	for _, want := range []string{first.id, strategy.Default, hostPort(one.URL()) + "/m", hostPort(two.URL()) + "/m", "complete"} {
		if !strings.Contains(story, want) {
			t.Errorf("the story lacks %q:\n%s", want, story)
		}
	}
	if last := explain(exitOK, "last"); !strings.Contains(last, second.id) || strings.Contains(last, first.id) {
		t.Errorf("last is not the second request, %s:\n%s", second.id, last)
	}
	var e console.Explanation
	if err := json.Unmarshal([]byte(explain(exitOK, "--json", first.id)), &e); err != nil || e.ID != first.id || len(e.Attempts) != 1 || e.Attempts[0].Outcome.OutputTokens != 3 {
		t.Errorf("%v: %+v", err, e)
	}
	for _, id := range []string{"ek-000000000000000000000000", "../metrics", "a b%", "x\x1b[31m"} {
		if text := explain(exitFailure, "--json", id); !strings.HasPrefix(text, "evenkeel: no finished request") {
			t.Errorf("unknown id %q, as JSON: %q", id, text)
		}
		if text := explain(exitFailure, id); !strings.Contains(text, "no finished request") || strings.Contains(text, "\x1b") {
			t.Errorf("unknown id %q: %q", id, text)
		}
	}
	if code, _, stderr := command("explain", "--admin-url", p.url, "last"); code != exitFailure || !strings.Contains(stderr, p.url+" answers 404 Not Found, but not as") {
		t.Errorf("asked at the data listener: exit code %d, stderr %q", code, stderr)
	}
}

// The admin listener of this balancer speaks TLS, and asks for a certificate.
func TestExplainOverTLS(t *testing.T) {
	dir, ca, other := t.TempDir(), certs.NewAuthority(t, "ours"), certs.NewAuthority(t, "theirs")
	ca.Local(t).Write(t, dir, "server")
	cert, key := ca.Local(t).Write(t, dir, "client")
	strange, strangeKey := other.Local(t).Write(t, dir, "strange")
	authority, wrong := certs.WriteFile(t, dir, "ca.pem", ca.PEM), certs.WriteFile(t, dir, "wrong.pem", other.PEM)
	e := mockEngine(t, mock.Config{Name: "e", Models: []string{"m"}, OutputTokens: 3})
	p := serve(t, "--config", write(t, filepath.Join(dir, "c.yaml"), fmt.Sprintf(
		"endpoints: {e: {url: %q}}\nadmin_tls: {cert: server.pem, key: server.key, client_ca: ca.pem}", e.URL())))
	s := p.stream("")
	s.rest()
	address := hostPort(p.admin)
	explain := func(code int, want string, args ...string) {
		t.Helper()
		got, stdout, stderr := command(append([]string{"explain", "last"}, args...)...)
		if got != code || !strings.Contains(stdout+stderr, want) {
			t.Errorf("%q: exit code %d, want %d; %q does not say %q", args, got, code, stdout+stderr, want)
		}
	}
	all := []string{"--cacert", authority, "--cert", cert, "--key", key}
	p.await("the record is there", func() bool {
		code, _, _ := command(append([]string{"explain", s.id, "--admin-url", "https://" + address}, all...)...)
		return code == exitOK
	})
	explain(exitOK, s.id, append(all, "--admin-url", "https://"+address)...)
	explain(exitOK, s.id, append(all, "--admin-url", address)...) // https is assumed
	explain(exitFailure, "http://"+address+" speaks TLS: write https://", "--admin-url", address)
	explain(exitFailure, "name the file of its authority with --cacert", "--admin-url", "https://"+address)
	explain(exitFailure, fmt.Sprintf("not signed by an authority in --cacert %q", wrong), "--admin-url", address, "--cacert", wrong)
	explain(exitFailure, "refuses a client without a certificate (tls: certificate required); name yours with --cert and --key", "--admin-url", address, "--cacert", authority)
	explain(exitFailure, "admin_tls.client_ca", "--admin-url", address, "--cacert", authority, "--cert", strange, "--key", strangeKey)
	elsewhere := httptest.NewUnstartedServer(http.NotFoundHandler())
	elsewhere.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	elsewhere.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, time.Now().Add(time.Hour), "lb.internal").TLS(t)}}
	elsewhere.StartTLS()
	defer elsewhere.Close()
	explain(exitFailure, "is for another name", "--admin-url", elsewhere.URL, "--cacert", authority)
	plain := hostPort(p.url)
	explain(exitFailure, "https://"+plain+" speaks plain HTTP: write http://", "--admin-url", plain, "--cacert", authority)
	explain(exitUsage, "--cert needs --key beside it", "--cert", cert)
	explain(exitUsage, "--key needs --cert beside it", "--key", key)
	explain(exitUsage, "is plain HTTP, and --cacert", "--admin-url", "http://"+address, "--cacert", authority)
	none := filepath.Join(dir, "none.pem")
	explain(exitFailure, fmt.Sprintf("--cacert: %q does not exist\n", none), "--admin-url", address, "--cacert", none)
	explain(exitFailure, fmt.Sprintf("--key: %q does not go with the certificate", strangeKey), "--admin-url", address, "--cert", cert, "--key", strangeKey)
}
