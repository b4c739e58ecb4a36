//go:build !race

package router

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/tests/harness"
	"evenkeel/tests/realengine"
)

// target is a way to the engines.
type target struct {
	name  string
	how   string // it runs, for the report
	extra bool   // scripts/peers installs it; the others are there after make setup
	// ready returns why it cannot be measured on this machine; nil = it can always.
	ready func(t *testing.T) error
	start func(t *testing.T, f fleet) running
}

// fleet is what a balancer stands before.
type fleet struct {
	kind  string // of the engines, as evenkeel names it
	model string
	urls  []string
}

// deployment is the name that evenkeel gives to the model at one of the engines.
func (f fleet) deployment(i int) string { return fmt.Sprintf("engine-%d/%s", i, f.model) }

// running is a balancer that serves.
type running struct {
	url      string
	evenkeel *harness.Balancer // nil = it is another one
	stop     func()
}

// startPatience is how long a balancer may take to serve: the routers in Python wheels look for their engines first.
const startPatience = 90 * time.Second

// evenkeel runs the program, with settings besides its strategy.
func evenkeel(strategy string, settings ...string) target {
	name := strings.Join(append([]string{"evenkeel " + strategy}, settings...), ", ")
	return target{
		name: name, how: "`" + strings.Join(append([]string{"strategy: " + strategy}, settings...), "`, `") + "`, else as it is without configuration",
		start: func(t *testing.T, f fleet) running { return startEvenkeel(t, f, strategy, settings) },
	}
}

// noAffinity leaves a strategy to itself.
const noAffinity = "affinity: {mode: none}"

func startEvenkeel(t *testing.T, f fleet, strategy string, settings []string) running {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "strategy: %s\n%s\nexplain: {ring_mib: 64}\nendpoints:\n", strategy, strings.Join(settings, "\n"))
	for i, url := range f.urls {
		fmt.Fprintf(&text, "  engine-%d: {url: %q, kind: %s}\n", i, url, f.kind)
	}
	lb := harness.Evenkeel(t, "--config", write(t, "evenkeel.yaml", text.String()))
	harness.Eventually(t, 10*time.Second, "evenkeel knows all engines", func() bool {
		_, body, err := harness.Get(lb.AdminURL + "/deployments")
		return err == nil && strings.Count(string(body), `"id":`) >= len(f.urls)
	})
	return running{url: lb.URL, evenkeel: lb, stop: func() { lb.Stop(t, 20*time.Second) }}
}

// nginx runs in one process, so that it knows of all requests when it counts; its way of choosing is a line of its configuration.
func nginx(name, how, choose string) target {
	const text = `daemon off;
master_process off;
worker_rlimit_nofile 8192;
pid %[1]s/nginx.pid;
error_log %[1]s/error.log warn;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  client_max_body_size 32m;
  client_body_buffer_size 2m;
  upstream engines {
    %[2]s
%[3]s    keepalive 256;
  }
  server {
    listen %[4]s;
    location / {
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 10m;
    }
  }
}
`
	return target{name: "nginx " + name, how: how, ready: onPath("nginx"), start: func(t *testing.T, f fleet) running {
		dir, address := t.TempDir(), freeAddress(t)
		servers := ""
		for _, url := range f.urls {
			servers += fmt.Sprintf("    server %s;\n", strings.TrimPrefix(url, "http://"))
		}
		file := filepath.Join(dir, "nginx.conf")
		if err := os.WriteFile(file, fmt.Appendf(nil, text, dir, choose, servers, address), 0o600); err != nil {
			t.Fatal(err)
		}
		return serving(t, f, address, exec.Command("nginx", "-p", dir, "-e", filepath.Join(dir, "error.log"), "-c", file))
	}}
}

func haproxy(name, how, choose string) target {
	return target{name: "haproxy " + name, how: how, extra: true, ready: onPath("haproxy"), start: func(t *testing.T, f fleet) running {
		address := freeAddress(t)
		text := fmt.Sprintf(`global
  maxconn 4096
defaults
  mode http
  timeout connect 10s
  timeout client 10m
  timeout server 10m
  option http-no-delay
  http-reuse always
listen engines
  bind %s
  %s
`, address, choose)
		for i, url := range f.urls {
			text += fmt.Sprintf("  server engine-%d %s\n", i, strings.TrimPrefix(url, "http://"))
		}
		return serving(t, f, address, exec.Command("haproxy", "-db", "-f", write(t, "haproxy.cfg", text)))
	}}
}

// pythonRouter is one of the two routers that come as Python packages and stem from one. scripts/peers installs them.
func pythonRouter(name, policy string) target {
	home := func(t *testing.T) string { return filepath.Join(harness.Root(t), ".cache", "peers", name) }
	return target{
		name: name + " " + policy, extra: true, how: "its defaults, which are `--policy " + policy + "`",
		ready: func(t *testing.T) error {
			if _, err := os.Stat(filepath.Join(home(t), "version")); err == nil {
				return nil
			}
			if text, err := os.ReadFile(filepath.Join(home(t), "failed")); err == nil {
				return fmt.Errorf("it could not be installed: %s", strings.TrimSpace(string(text)))
			}
			return fmt.Errorf("it is not installed: run scripts/peers")
		},
		start: func(t *testing.T, f fleet) running {
			address := freeAddress(t)
			host, port, _ := net.SplitHostPort(address)
			_, spare, _ := net.SplitHostPort(freeAddress(t))
			args := append([]string{"-m", strings.ReplaceAll(name, "-", "_") + ".launch_router", "--host", host, "--port", port,
				"--prometheus-host", host, "--prometheus-port", spare, "--log-level", "error", "--policy", policy, "--worker-urls"}, f.urls...)
			return serving(t, f, address, exec.Command(filepath.Join(home(t), "bin", "python"), args...))
		},
	}
}

func onPath(name string) func(*testing.T) error {
	return func(*testing.T) error {
		_, err := exec.LookPath(name)
		return err
	}
}

// serving runs a balancer and waits until it passes a question on to an engine.
func serving(t *testing.T, f fleet, address string, cmd *exec.Cmd) running {
	t.Helper()
	p := harness.Start(t, cmd)
	url := "http://" + address
	harness.Eventually(t, startPatience, cmd.Path+" serves", func() bool {
		_, err := realengine.Ask(t.Context(), realengine.Question{
			URL: url, Model: f.model, Messages: []realengine.Message{{Role: "user", Content: "wind"}}, Tokens: 1, Seed: 1,
		})
		return err == nil
	})
	return running{url: url, stop: p.Kill}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// freeAddress returns one on loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
