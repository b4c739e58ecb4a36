package config

import (
	"net/netip"
	"strings"
	"testing"

	"evenkeel/internal/secret"
)

func TestCanonicalURL(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		got, err := canonicalURL(text)
		if err != nil || got != want {
			t.Errorf("%s gives %s, %v, want %s", text, got, err, want)
			return
		}
		if again, err := canonicalURL(got); err != nil || again != got {
			t.Errorf("%s is not canonical: %s, %v", got, again, err)
		}
	}
	f("http://h:1", "http://h:1")
	f("http://h:1/", "http://h:1")
	f("http://h:1/v1", "http://h:1")
	f("http://h:1/v1/", "http://h:1")
	f("http://h:1//v1//", "http://h:1")
	f("HTTP://GPU-1.Example:8000/v1", "http://gpu-1.example:8000")
	f("https://h/openai/v1", "https://h/openai")
	f("https://h/Serving/Endpoints", "https://h/Serving/Endpoints")
	f("https://h/a%2Fb/v1", "https://h/a%2Fb")
	f("http://h/xv1", "http://h/xv1")
	f("http://h:80", "http://h")
	f("https://h:443/v1", "https://h")
	f("http://h:443", "http://h:443")
	f("http://h:08000", "http://h:8000")
	f("http://[::1]:8000/v1", "http://[::1]:8000")
	f("http://[FE80::1%25eth0]:8000", "http://[fe80::1%25eth0]:8000")
	f("http://[::1]", "http://[::1]")
	f("http://10.0.0.1:8000", "http://10.0.0.1:8000")
	f("DNS+HTTP://VLLM-Headless:8000/v1", "dns+http://vllm-headless:8000")
	f("dns+https://vllm:443/base/", "dns+https://vllm/base")
}

func TestPoolMembers(t *testing.T) {
	f := func(poolURL, host, address, want string) {
		t.Helper()
		pool := Endpoint{Name: "pool", URL: poolURL, Weight: 2, Models: []string{"m"}}
		if got, ok := pool.PoolHost(); got != host || !ok {
			t.Errorf("%s: host %q %v, want %q", poolURL, got, ok, host)
		}
		m := pool.Member(netip.MustParseAddr(address))
		if got := m.Name + " " + m.URL + " " + m.Address; got != want || m.Weight != 2 || len(m.Models) != 1 {
			t.Errorf("%s at %s: got %s, want %s", poolURL, address, got, want)
		}
		if _, ok := m.PoolHost(); ok {
			t.Errorf("%s: a member is a pool", poolURL)
		}
	}
	f("dns+http://vllm:8000", "vllm", "10.0.0.7", "pool@10.0.0.7:8000 http://vllm:8000 10.0.0.7:8000")
	f("dns+http://vllm:8000/base", "vllm", "fd00::7", "pool@[fd00::7]:8000 http://vllm:8000/base [fd00::7]:8000")
	f("dns+http://vllm", "vllm", "10.0.0.7", "pool@10.0.0.7:80 http://vllm 10.0.0.7:80")
	f("dns+https://vllm.example", "vllm.example", "10.0.0.7", "pool@10.0.0.7:443 https://vllm.example 10.0.0.7:443")
	single := Endpoint{URL: "http://vllm:8000"}
	if host, ok := single.PoolHost(); ok {
		t.Errorf("a single endpoint is a pool of %q", host)
	}
}

func TestFromURLs(t *testing.T) {
	c, err := FromURLs([]string{"http://gpu-1:8000", "http://GPU-2:8000/v1/", "http://[::1]:8000", "https://api.example", "dns+http://vllm:8000/v1"}, secret.New("sk"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(nil); err != nil {
		t.Error(err)
	}
	var got []string
	for _, e := range c.Endpoints {
		got = append(got, e.Name+" "+e.URL)
		if e.APIKey.Reveal() != "sk" || e.Weight != 1 || e.Kind != "" {
			t.Errorf("got %+v", e)
		}
	}
	want := "gpu-1:8000 http://gpu-1:8000|gpu-2:8000 http://gpu-2:8000|[::1]:8000 http://[::1]:8000|api.example https://api.example|vllm:8000 dns+http://vllm:8000"
	if strings.Join(got, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
	}

	_, err = FromURLs([]string{"http://a:1", "a:1", "http://A:1/v1", "http://user:sk-CANARY@b:1"}, secret.String{})
	wantErr := `URL "a:1" needs http:// or https:// in front
URLs "http://a:1" and "http://A:1/v1" are both named a:1; remove one, or name them in a config file
URL "http://[redacted]@b:1" must not hold a user or password; write the credential as api_key`
	if err == nil || err.Error() != wantErr {
		t.Errorf("got\n%v\nwant\n%s", err, wantErr)
	}
	if _, err = FromURLs(nil, secret.String{}); err == nil || !strings.Contains(err.Error(), "no URL") {
		t.Errorf("no URLs give %v", err)
	}
}

func TestShowURLHidesSecrets(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got := showURL(text); got != want {
			t.Errorf("%s shows %s, want %s", text, got, want)
		}
	}
	f("http://h:1/v1", `"http://h:1/v1"`)
	f("http://user:pw@h:1", `"http://[redacted]@h:1"`)
	f("http://user:p@w?#/@h:1", `"http://[redacted]@h:1"`)
	f("user:pw@h", `"[redacted]@h"`)
	f("http://h/?key=pw", `"http://h/?..."`)
	f("http://h/#pw", `"http://h/#..."`)
}
