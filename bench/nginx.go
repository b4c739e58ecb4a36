package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// nginxConfig is what an operator would write to put nginx before inference engines: one worker per core, nothing
// buffered on the way to the client, bodies read whole and kept in memory, connections kept on both sides for good, an
// access log that is written in batches, as evenkeel's is.
func (b *bed) nginxConfig(dir string, served []model, connections uint64) string {
	var text strings.Builder
	fmt.Fprintf(&text, `daemon off;
worker_processes auto;
worker_rlimit_nofile %[2]d;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx-error.log warn;
events { worker_connections %[3]d; }
http {
  access_log %[1]s/nginx-access.log combined buffer=64k;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  keepalive_requests 100000000;
  client_max_body_size 32m;
  client_body_buffer_size 2m;
  tcp_nodelay on;
  ssl_protocols TLSv1.2 TLSv1.3;
  ssl_certificate %[4]s;
  ssl_certificate_key %[5]s;
  proxy_ssl_protocols TLSv1.2 TLSv1.3;
  proxy_ssl_trusted_certificate %[6]s;
  proxy_ssl_verify on;
  proxy_ssl_name localhost;
`, dir, fileLimit(), connections, b.certs.cert, b.certs.key, b.certs.ca)
	for _, m := range served {
		fmt.Fprintf(&text, "  upstream %s {\n", m.name)
		for _, engine := range b.places[m.name][direct].addresses {
			fmt.Fprintf(&text, "    server %s;\n", engine)
		}
		secure, scheme := "", "http"
		if m.clientTLS {
			secure = " ssl http2" // for those who ask for it
		}
		if m.engineTLS {
			scheme = "https"
		}
		fmt.Fprintf(&text, `    keepalive 512;
    keepalive_requests 100000000;
  }
  server {
    listen %s%s;
    location / {
      proxy_pass %s://%s;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }
  }
`, b.places[m.name][nginx].addresses[0], secure, scheme, m.name)
	}
	text.WriteString("}\n")
	return text.String()
}

// workerConnections is how many connections, on both sides, an nginx worker may have; each takes memory.
const workerConnections = 4096

// startNginx runs an nginx with a free port for each model and adds it to their places.
func (b *bed) startNginx(ctx context.Context, served []model, name string, connections uint64) (*process, error) {
	dir := filepath.Join(b.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	free, err := freeAddresses(len(served))
	if err != nil {
		return nil, err
	}
	for i, m := range served {
		to := way{addresses: free[i : i+1]}
		if m.clientTLS {
			to.tls = b.certs.client
		}
		b.places[m.name][nginx] = to
	}
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(b.nginxConfig(dir, served, connections)), 0o600); err != nil {
		return nil, err
	}
	p, err := b.launch(name, "nginx", "-p", dir, "-e", filepath.Join(dir, "nginx-error.log"), "-c", file)
	if err != nil {
		return nil, err
	}
	for _, m := range served {
		to := b.places[m.name][nginx]
		to.proxy = p
		b.places[m.name][nginx] = to
		if err := eventually(ctx, p, func() bool { return listening(ctx, to) }); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func listening(ctx context.Context, to way) bool {
	c := newConn(to.addresses[0], to.tls, nil)
	defer c.close()
	return c.dial(ctx) == nil
}

// freeAddresses returns addresses on loopback that nobody listens on. nginx cannot choose a port itself.
func freeAddresses(n int) ([]string, error) {
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // only now, so that no address comes twice
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}
