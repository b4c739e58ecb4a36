package config

import "testing"

// TestExposure tries what listens where against what protects it.
func TestExposure(t *testing.T) {
	key := []VirtualKey{{"a", "5d5f0a0e0e1bb17e08a8a0d2e5dd0b3f43ff6d9f0b9c4e41a2be3a2b6f3b4c01"}}
	f := func(want string, change func(*Config)) {
		t.Helper()
		c := Default()
		c.Endpoints = []Endpoint{{Name: "a", URL: "http://a", Weight: 1}}
		change(&c)
		got := ""
		if err := c.Validate(nil); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	open := func(listen string) string {
		return "listen: " + listen + " is reachable by others without a key; write virtual_keys, tls with client_ca, or auth: none (--no-auth) to serve everybody"
	}
	f("", func(*Config) {})
	for _, loopback := range []string{"127.0.0.1:0", "127.1.2.3:80", "[::1]:8080", "[::ffff:127.0.0.1]:8080", "localhost:8080", "LOCALHOST:8080"} {
		f("", func(c *Config) { c.Listen = loopback })
		f("", func(c *Config) { c.Listen, c.Credentials = loopback, CredentialsClient })
		f("", func(c *Config) { c.Listen, c.Admin = "127.0.0.1:1", loopback })
	}
	for _, beyond := range []string{":8080", "0.0.0.0:8080", "[::]:8080", "10.0.0.1:8080", "gpu-1:8080", "[fe80::1%eth0]:8080", "localhost.example:8080"} {
		f(open(beyond), func(c *Config) { c.Listen = beyond })
		f("", func(c *Config) { c.Listen, c.Auth = beyond, AuthNone })
		f("", func(c *Config) { c.Listen, c.VirtualKeys = beyond, key })
		f("", func(c *Config) { c.Metrics = beyond; c.Listen = "127.0.0.1:1" })
		f("admin: "+beyond+" is reachable by others, and the admin listener knows them by client certificates only; write admin_tls with client_ca, or listen on 127.0.0.1 (for scrapers there is metrics:)",
			func(c *Config) { c.Listen, c.Admin = "127.0.0.1:1", beyond })
	}
	f("", func(c *Config) { c.Admin = "" })
	f("", func(c *Config) { c.Listen, c.Admin = "127.0.0.1:0", "127.0.0.1:0" })
	f("listen: is empty; write an address such as 127.0.0.1:8080", func(c *Config) { c.Listen = "" })
	for _, odd := range []string{"127.0.0.1", "127.0.0.1:http", "127.0.0.1:65536", "http://a:80", "::1:80"} {
		f("listen: must be host:port such as 127.0.0.1:8080, is "+show(odd), func(c *Config) { c.Listen = odd })
	}
	f(`forward_headers[0]: "X-API-Key" is the client's credential; to send it upstream write credentials: client`,
		func(c *Config) { c.ForwardHeaders = []string{"X-API-Key"} })
}

func TestConnectionsBeyond(t *testing.T) {
	f := func(connections int, files int64, want bool) {
		t.Helper()
		c := Default()
		c.Connections.Max = connections
		w, beyond := c.ConnectionsBeyond(files)
		if beyond != want || beyond != (w.Path == "connections.max") {
			t.Errorf("%d with %d files: %v, %q", connections, files, beyond, w)
		}
	}
	f(0, 1024, false)
	f(1023, 1024, false)
	f(1024, 1024, true)
	f(100_000, 1024, true)
	f(100_000, 0, false) // not bounded
}
