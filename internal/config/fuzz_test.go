package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// FuzzLoad feeds any bytes as a config file. It must not panic, nor take long, nor repeat a secret; what loads keeps what
// validation promises.
func FuzzLoad(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(paths) == 0 {
		f.Fatal("no seeds", err)
	}
	examples, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range append(paths, examples...) {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("endpoints: {}"))
	const hidden = "hidden-0f9b1c"
	from := sources{
		env:  func(string) (string, bool) { return hidden, true },
		read: func(_, name string) (string, error) { return hidden, nil },
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		start := time.Now()
		c, warnings, err := load([]File{{"fuzz.yaml", data}}, from)
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("took %s", took)
		}
		text := lines(warnings)
		if err != nil {
			var problems Problems
			if !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("error %T %v, want Problems", err, err)
			}
			text += err.Error()
			var all Problems
			if !errors.As(c.Validate(checkStrategy), &all) || len(all) < len(problems) {
				t.Errorf("Validate says %v, and Load said %v", all, problems)
			}
			text += all.Error()
		} else if invalid := c.Validate(checkStrategy); invalid != nil {
			text += invalid.Error()
		} else {
			checkPromises(t, c)
		}
		if strings.Contains(text, hidden) {
			t.Errorf("a secret is in %q", text)
		}
	})
}

func checkPromises(t *testing.T, c *Config) {
	names, weights := map[string]bool{}, map[string]float64{}
	for _, e := range c.Endpoints {
		if names[e.Name] || e.Name == "" || strings.ContainsAny(e.Name, "/# \n") {
			t.Errorf("endpoint name %q", e.Name)
		}
		names[e.Name] = true
		if again, err := canonicalURL(e.URL); err != nil || again != e.URL {
			t.Errorf("URL %q: %v", e.URL, err)
		}
		if !(e.Weight >= 0) || strings.ContainsAny(e.APIKey.Reveal(), "\r\n\x00") {
			t.Errorf("weight or key of %q", e.Name)
		}
		if strings.ContainsAny(e.FailureDomain, " \n\t") {
			t.Errorf("failure domain %q", e.FailureDomain)
		}
		weights[e.Name] = e.Weight
	}
	for _, m := range c.Models {
		for _, p := range m.Providers {
			if !names[p.Name] || p.Model == "" || !(p.Weight >= 0) || !fits(p.Weight*weights[p.Name]) || strings.ContainsAny(p.FailureDomain, " \n\t") {
				t.Errorf("provider %+v", p)
			}
		}
	}
	if c.Deadlines.Connect <= 0 || c.MaxBody <= 0 || c.Retry.MaxAttempts < 1 || c.Endpoints == nil {
		t.Errorf("got %+v", c)
	}
}
