package config

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestEndpointsFile(t *testing.T) {
	dir := t.TempDir()
	main := put(t, dir, "main.yaml", "endpoints_file: fleet.yaml\nendpoints:\n  own: {url: http://own:1}\n  both: {api_key: file:key}\nmodels: {m: {providers: [{name: both}]}}\n")
	put(t, dir, "key", "sk-1\n")
	f := func(fleet, want string) {
		t.Helper()
		if fleet != "" {
			put(t, dir, "fleet.yaml", fleet)
		}
		c, _, err := LoadFiles(main)
		var got string
		if err == nil {
			err = c.Validate(nil)
		}
		if err != nil {
			got = strings.ReplaceAll(err.Error(), dir+"/", "")
		} else {
			for _, e := range c.Endpoints {
				got += e.Name + " " + e.URL + " " + e.APIKey.Reveal() + "\n"
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s:\ngot  %s\nwant %s", fleet, got, want)
		}
	}
	f("", `main.yaml:1:1: endpoints_file: "fleet.yaml" does not exist; a relative path starts at the directory of the config file`)
	f("endpoints:\n  both: {url: http://both:1}\n  gpu: {url: http://gpu:1}\n", "own http://own:1 \nboth http://both:1 sk-1\ngpu http://gpu:1 \n")
	f(`{"endpoints": {"both": {"url": "http://both:1"}}}`, "both http://both:1 sk-1\n")
	f("endpoints: {both: {url: http://both:1, api_key: sk-2}}", `fleet.yaml:1:40: endpoints.both.api_key: is set twice; the first is at main.yaml:4:10`)
	f(" ", "fleet.yaml: is empty; write endpoints: {} if it holds none for now")
	f("# nothing\n", "fleet.yaml: is empty; write endpoints: {}")
	f("endpoints:\n", "fleet.yaml:1:1: has no endpoints; write endpoints: {} if it holds none for now")
	f("gpu: {url: http://gpu:1}\n", "fleet.yaml:1:1: has no endpoints")
	f("endpoints: {}\nmodels: {}\n", `fleet.yaml:2:1: unknown key "models"`)
	f("- a\n", "fleet.yaml:1:1: must be a map (key: value), is a list")
	f("endpoints: {both: {url: http://both:1", "fleet.yaml:2:1: not YAML")
	f("endpoints: {}", "both")

	put(t, dir, "main.yaml", "endpoints_file: fleet.yaml\n")
	f("endpoints: {}", "")
	if c, warnings, err := LoadFiles(main); err != nil || c.Validate(nil) != nil || !strings.Contains(lines(warnings), "fleet.yaml:1:1: endpoints: holds none") {
		t.Errorf("an empty set: %v, %v", warnings, err)
	}
	f("endpoints:\n", "fleet.yaml:1:1: has no endpoints")
}

// Endpoints of a file may leave it while providers name them, and come back: a warning says which are missing.
func TestProvidersOfEndpointsThatComeAndGo(t *testing.T) {
	dir := t.TempDir()
	text := "endpoints_file: fleet.yaml\nmodels: {m: {providers: [{name: gpu-1}, {name: gpu-2}], fallback_chain: [other]}}\nhedge: {enabled: true, models: [other]}\n"
	main := put(t, dir, "main.yaml", text)
	f := func(fleet, wantError string, wantWarnings ...string) {
		t.Helper()
		put(t, dir, "fleet.yaml", fleet)
		c, warnings, err := LoadFiles(main)
		if err == nil || wantError != "" {
			err = c.Validate(nil)
		}
		got := ""
		if err != nil {
			got = strings.ReplaceAll(err.Error(), dir+"/", "")
		}
		if got != wantError {
			t.Errorf("%s:\ngot  %s\nwant %s", fleet, got, wantError)
		}
		if len(warnings) != len(wantWarnings) {
			t.Errorf("%s: warnings\n%s", fleet, lines(warnings))
		}
		for _, w := range wantWarnings {
			if !strings.Contains(lines(warnings), w) {
				t.Errorf("%s: warnings\n%s\nwant %s", fleet, lines(warnings), w)
			}
		}
	}
	const chain, hedged = "fallback_chain[0]: no model", "hedge.models[0]: no model"
	const gone = `no endpoint is named "gpu-2" at present; the provider is left out until endpoints_file holds it`
	f("endpoints: {gpu-1: {url: http://a}, gpu-2: {url: http://b}}", "", chain, hedged)
	f("endpoints: {gpu-1: {url: http://a}}", "", "main.yaml:2:42: models.m.providers[1].name: "+gone, chain, hedged)
	f("endpoints: {}", "", "endpoints: holds none", `"gpu-1" at present`, gone, chain, hedged)
	f("", "fleet.yaml: is empty; write endpoints: {} if it holds none for now")
	f("endpoints:\n", "fleet.yaml:1:1: has no endpoints; write endpoints: {} if it holds none for now")
	f("endpoints: {gpu-1: {url: http://a}, gpu", "fleet.yaml:2:1: not YAML: did not find expected ',' or '}' (while parsing a flow mapping from line 1); is a bracket left open?")
	f("endpoints: 5", "fleet.yaml:1:12: endpoints: must be a map (key: value), is text")
	if err := os.Remove(filepath.Join(dir, "fleet.yaml")); err != nil {
		t.Fatal(err)
	}
	c, warnings, _ := LoadFiles(main)
	if err := c.Validate(nil); len(warnings) > 0 || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("without the file: %v\n%s", err, lines(warnings))
	}
	put(t, dir, "main.yaml", strings.Replace(text, "endpoints_file: fleet.yaml", "endpoints: {gpu-1: {url: http://a}}", 1))
	f("", `main.yaml:2:42: models.m.providers[1].name: no endpoint is named "gpu-2"; did you mean "gpu-1"?`, chain, hedged)
}

func TestFilesThatWereRead(t *testing.T) {
	dir := t.TempDir()
	main := put(t, dir, "main.yaml", "endpoints_file: fleet.yaml\nendpoints: {a: {url: http://a:1, api_key: file:key}, b: {url: http://b:1, api_key: file:absent}}\n")
	fleet := put(t, dir, "fleet.yaml", "endpoints: {c: {url: http://c:1}}")
	key := put(t, dir, "key", "sk-1\n")
	c, _, err := LoadFiles(main)
	if err == nil {
		t.Fatal("a secret is missing")
	}
	got := c.Files()
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{filepath.Join(dir, "absent"), fleet, key, main}) {
		t.Errorf("got %v", names)
	}
	for name, sum := range got {
		if looked := LookAt(name, Look{}).Sum; looked != sum {
			t.Errorf("%s looks unlike what was read", name)
		}
		if zero := sum == (Sum{}); zero != strings.HasSuffix(name, "absent") {
			t.Errorf("%s: is it there? %v", name, !zero)
		}
	}
}

// A look sees every change of content, in whatever way it comes about, and none where there is none.
func TestLookAt(t *testing.T) {
	dir := t.TempDir()
	file := put(t, dir, "f", "one")
	last := LookAt(file, Look{})
	f := func(title string, differs bool, change func()) {
		t.Helper()
		change()
		now := LookAt(file, last)
		if (now.Sum != last.Sum) != differs {
			t.Errorf("%s: differs: %v, want %v", title, now.Sum != last.Sum, differs)
		}
		last = now
	}
	old := func() {
		if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	f("nothing", false, func() {})
	f("written anew, same size", true, func() { put(t, dir, "f", "two") })
	f("at once again, same size", true, func() { put(t, dir, "f", "six") })
	f("touched", false, old)
	f("a line break", false, func() { put(t, dir, "f", "six\n") })
	f("renamed over", true, func() {
		if err := os.Rename(put(t, dir, "other", "ten"), file); err != nil {
			t.Fatal(err)
		}
	})
	f("moved away", true, func() { _ = os.Rename(file, filepath.Join(dir, "away")) })
	f("a symbolic link", true, func() { _ = os.Symlink("away", file) })
	f("to another file of the same content", false, func() {
		put(t, dir, "same", "ten")
		_ = os.Remove(file)
		_ = os.Symlink("same", file)
	})
	f("to another one", true, func() {
		put(t, dir, "elsewhere", "ton")
		_ = os.Remove(file)
		_ = os.Symlink("elsewhere", file)
	})
	f("a directory in its place", true, func() {
		_ = os.Remove(file)
		_ = os.Mkdir(file, 0o700)
	})
}
