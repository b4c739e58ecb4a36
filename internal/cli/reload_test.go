//go:build unix

package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"evenkeel/internal/mock"
)

// replace puts a file in the place of another, as most editors save.
func replace(t *testing.T, file, text string) {
	t.Helper()
	if err := os.Rename(write(t, file+"~", text), file); err != nil {
		t.Fatal(err)
	}
}

// linked makes dir/name a link as those of a mounted ConfigMap: by way of ..data, which is swapped in one step.
func linked(t *testing.T, dir, name, text string) {
	t.Helper()
	version, err := os.MkdirTemp(dir, "..version")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(version, name), text)
	if err := os.Symlink(filepath.Base(version), filepath.Join(dir, "..next")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// servesModels waits until these models are listed, in the order of their names.
func (p *program) servesModels(names ...string) {
	p.t.Helper()
	p.await(fmt.Sprint("it serves ", names), func() bool {
		_, body := get(p.url + "/v1/models")
		at := 0
		for _, name := range names {
			i := strings.Index(body[at:], fmt.Sprintf("%q", name))
			if i < 0 {
				return false
			}
			at += i
		}
		return strings.Count(body, `"object":"model"`) == len(names)
	})
}

// A changed file takes effect by itself, however it is changed; running streams are not touched.
func TestConfigFileChanges(t *testing.T) {
	e := slow(t)
	dir := t.TempDir()
	text := func(models string) string {
		return fmt.Sprintf("endpoints: {e: {url: %q, models: [%s]}}\n", e.URL(), models)
	}
	link := filepath.Join(dir, "linked.yaml")
	linked(t, dir, "linked.yaml", "models: {}\n")
	file := write(t, filepath.Join(dir, "main.yaml"), text("m"))
	p := serve(t, "--config", file, "--config", link)
	s := p.stream("")

	write(t, file, text("m, written"))
	p.servesModels("m", "written")
	replace(t, file, text("m, renamed"))
	p.servesModels("m", "renamed")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	write(t, file, text("m, removed"))
	p.servesModels("m", "removed")
	linked(t, dir, "linked.yaml", "models: {linked: {providers: [{name: e, model: m}]}}\n")
	p.servesModels("linked", "m", "removed")
	p.says("configuration reloaded", 4)

	for _, bad := range []string{"", "endpoints: {e: {url: 1", "endpoints: {e: {urll: x}}\n"} {
		told := strings.Count(p.out.text(), "last good one stays")
		replace(t, file, bad)
		p.says("last good one stays", told+1)
	}
	reloads := strings.Count(p.out.text(), "configuration reloaded")
	replace(t, file, text("m, good"))
	p.servesModels("good", "linked", "m")
	p.says("configuration reloaded", reloads+1)
	if n := strings.Count(p.out.text(), "last good one stays"); n != 3 {
		t.Errorf("three bad files were told of %d times", n)
	}
	if _, err := s.reader.ReadString('\n'); err != nil {
		t.Errorf("the stream: %v", err)
	}
	s.body.Close()
}

// A secret's file is one of the configuration's.
func TestSecretFileChanges(t *testing.T) {
	e := mockEngine(t, mock.Config{Name: "e", Models: []string{"m"}, APIKey: upstreamKey})
	dir := t.TempDir()
	key := write(t, filepath.Join(dir, "key"), "wrong\n")
	file := write(t, filepath.Join(dir, "main.yaml"), fmt.Sprintf("endpoints: {e: {url: %q, api_key: file:key, models: [m]}}\n", e.URL()))
	p := serve(t, "--config", file)
	chat := func() int {
		status, _ := do(http.MethodPost, p.url+"/v1/chat/completions", fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, prompt))
		return status
	}
	if status := chat(); status == http.StatusOK {
		t.Fatal("a wrong key serves")
	}
	replace(t, key, upstreamKey+"\n")
	p.says("configuration reloaded", 1)
	p.await("the new key serves", func() bool { return chat() == http.StatusOK })
}

// Without watching, only the signal counts; the file of endpoints is looked at all the same, and by itself.
func TestEndpointsFileChanges(t *testing.T) {
	one := mockEngine(t, mock.Config{Name: "one", Models: []string{"one"}})
	two := mockEngine(t, mock.Config{Name: "two", Models: []string{"two"}})
	dir := t.TempDir()
	fleet := func(engines ...*mock.Engine) string {
		text := "endpoints:\n"
		for i, e := range engines {
			text += fmt.Sprintf("  gpu-%d: {url: %q}\n", i, e.URL())
		}
		return text
	}
	endpoints := write(t, filepath.Join(dir, "fleet.yaml"), fleet(one))
	file := write(t, filepath.Join(dir, "main.yaml"), "endpoints_file: fleet.yaml\n")
	p := serve(t, "--config", file, "--no-watch")
	p.servesModels("one")

	write(t, file, "endpoints_file: fleet.yaml\nbroken\n")
	replace(t, endpoints, fleet(one, two))
	p.servesModels("one", "two")

	for _, bad := range []string{"", "endpoints:\n", "endpoints: {gpu-0: {url: \"http", "endpoints: {gpu-0: {url: ftp://x}}\n"} {
		told := strings.Count(p.out.text(), "last good one stays")
		replace(t, endpoints, bad)
		p.says("last good one stays", told+1)
		p.servesModels("one", "two")
	}
	told := strings.Count(p.out.text(), "last good one stays")
	replace(t, endpoints, "endpoints: {}\n") // on purpose
	p.servesModels()
	p.says("holds none", 1)
	replace(t, endpoints, fleet(two))
	p.servesModels("two")
	if n := strings.Count(p.out.text(), "last good one stays"); n != told {
		t.Error("a file that is not watched was read")
	}

	p.signal(syscall.SIGHUP)
	p.says("last good one stays", told+1) // the broken one
	write(t, file, "endpoints_file: fleet.yaml\nmodels: {alias: {providers: [{name: gpu-0, model: two}]}}\n")
	p.signal(syscall.SIGHUP)
	p.servesModels("alias", "two")

	replace(t, endpoints, "endpoints: {gpu-1: {url: \""+one.URL()+"\"}}\n") // gpu-0 leaves, and a provider names it
	p.servesModels("one")
	p.says(`no endpoint is named \"gpu-0\" at present`, 1)
	replace(t, endpoints, fleet(two, one))
	p.servesModels("alias", "one", "two")
}
