package app

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"evenkeel/internal/config"
)

// What looks see while files change, and readings come to something or not.
func TestFilesChange(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fleet := func(n int) { put("fleet.yaml", fmt.Sprintf("endpoints: {e: {url: http://e:%d}}", n)) }
	main := func(extra string) { put("main.yaml", "endpoints_file: fleet.yaml\n"+extra) }
	load := func() *config.Config {
		t.Helper()
		c, _, err := config.LoadFiles(at("main.yaml"))
		if c == nil && err == nil {
			t.Fatal("no configuration and no error")
		}
		return c
	}
	fleet(1)
	main("")
	running := load()
	var f Files
	f.Tried(running, true)
	looks := func(title string, want ...Changed) {
		t.Helper()
		for i, w := range want {
			if got := f.Look(running); got != w {
				t.Errorf("%s: look %d sees %d, want %d", title, i, got, w)
			}
		}
	}
	looks("nothing", Unchanged, Unchanged)
	fleet(2)
	looks("endpoints", Unchanged, EndpointsFile)
	f.TriedEndpoints(load())
	looks("endpoints were read", Unchanged)
	fleet(3)
	looks("the first of two changes", Unchanged)
	fleet(4)
	looks("while it is being written", Unchanged, EndpointsFile)
	main("retry: {max_attempts: 2}\n")
	looks("both", Unchanged, ConfigFiles)
	running = load()
	f.Tried(running, true)
	main("rety:\n")
	looks("a bad one", Unchanged, ConfigFiles)
	f.Tried(load(), false)
	looks("a bad one was tried", Unchanged, Unchanged)
	fleet(5)
	looks("endpoints beside a bad one", Unchanged, EndpointsFile)
	f.TriedEndpoints(running)
	_ = os.Remove(at("main.yaml"))
	looks("it is gone", Unchanged, ConfigFiles)
	f.Tried(load(), false)
	looks("its absence was told", Unchanged, Unchanged)
	main("endpoints: {a: {url: http://a, api_key: file:key}}\n")
	looks("with a secret that is not there yet", Unchanged, ConfigFiles)
	f.Tried(load(), false)
	looks("that was told", Unchanged)
	put("key", "sk-1")
	looks("the secret comes", Unchanged, ConfigFiles)

	off := *load()
	off.Watch = false
	running = &off
	f.Tried(running, true)
	main("")
	looks("not watched", Unchanged, Unchanged)
	fleet(6)
	looks("but endpoints", Unchanged, EndpointsFile)
}
