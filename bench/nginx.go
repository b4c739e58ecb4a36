package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// nginxConfig is what an operator would write to put nginx before inference engines: one worker per core, nothing
// buffered on the way to the client, connections kept on both sides for good, an access log that is written in
// batches, as evenkeel's is.
func nginxConfig(dir string, targets map[string]place) string {
	var b strings.Builder
	fmt.Fprintf(&b, `daemon off;
worker_processes auto;
worker_rlimit_nofile 16384;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx-error.log warn;
events { worker_connections 4096; }
http {
  access_log %[1]s/nginx-access.log combined buffer=64k;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  keepalive_requests 100000000;
  client_body_buffer_size 1m;
  tcp_nodelay on;
`, dir)
	for name, t := range targets {
		fmt.Fprintf(&b, "  upstream %s {\n", name)
		for _, engine := range t.engines {
			fmt.Fprintf(&b, "    server %s;\n", engine)
		}
		fmt.Fprintf(&b, `    keepalive 512;
    keepalive_requests 100000000;
  }
  server {
    listen %s;
    location / {
      proxy_pass http://%s;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }
  }
`, t.nginx, name)
	}
	b.WriteString("}\n")
	return b.String()
}

// startNginx runs nginx with a free port for each set of engines and writes the addresses into places.
func startNginx(dir string, places map[string]place) (*process, error) {
	free, err := freeAddresses(len(places))
	if err != nil {
		return nil, err
	}
	for name, p := range places {
		p.nginx, free = free[0], free[1:]
		places[name] = p
	}
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(nginxConfig(dir, places)), 0o600); err != nil {
		return nil, err
	}
	return start(dir, "nginx", "nginx", "-p", dir, "-e", filepath.Join(dir, "nginx-error.log"), "-c", file)
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
