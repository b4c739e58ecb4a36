package config

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestReadSecret(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "config")
	write(t, filepath.Join(top, "outside.key"), "sk-outside")
	write(t, filepath.Join(dir, "a.key"), "sk-a\r\n\n")
	write(t, filepath.Join(dir, "keys", "b.key"), "sk b")
	write(t, filepath.Join(dir, "empty.key"), "\n")
	write(t, filepath.Join(dir, "big.key"), strings.Repeat("x", maxSecret+1))

	f := func(name, want, wantErr string) {
		t.Helper()
		got, err := readSecret(dir, name)
		if got != want || (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s gives %q, %v, want %q, %s", name, got, err, want, wantErr)
		}
	}
	f("a.key", "sk-a", "")
	f("keys/b.key", "sk b", "")
	f("keys/../a.key", "sk-a", "")
	f(filepath.Join(top, "outside.key"), "sk-outside", "")
	f("", "", "needs a path")
	f("absent.key", "", "does not exist")
	f(filepath.Join(top, "absent.key"), "", "does not exist")
	f("../outside.key", "", "cannot leave the directory")
	f("keys/../../outside.key", "", "cannot leave the directory")
	f("../../../../../../etc/passwd", "", "cannot leave the directory")
	f("keys", "", "is not a regular file")
	f(top, "", "is not a regular file")
	f("empty.key", "", "is empty")
	f("big.key", "", "is larger than 64 KiB")

	if runtime.GOOS == "windows" {
		return
	}
	// Links may point around within the directory, as in mounted secrets, but not out of it.
	for link, target := range map[string]string{"..data": "keys", "good.key": "..data/b.key", "bad.key": "../outside.key", "absolute.key": filepath.Join(top, "outside.key")} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	f("good.key", "sk b", "")
	f("bad.key", "", "path escapes")
	f("absolute.key", "", "path escapes")
	f("/dev/null", "", "is not a regular file")
}

// TestSecretsStayOut puts a secret wherever a hand may slip, and demands that no message and no print shows it.
func TestSecretsStayOut(t *testing.T) {
	const endpoint = "endpoints:\n  a:\n    url: http://a\n    "
	for _, text := range []string{
		endpoint + "api_key: sk-CANARY",
		endpoint + "api_key: sk-CANARY\n    weight: x",
		endpoint + "api_key: \"sk-CANARY",
		endpoint + "api_key: 'sk-CANARY\n    weight: 1",
		endpoint + "api_key: sk-CANARY: x",
		endpoint + "api_key:sk-CANARY",
		endpoint + "api_key=sk-CANARY",
		endpoint + "api_key: {sk-CANARY: 1}",
		endpoint + "api_key: [sk-CANARY",
		endpoint + "api_key: *sk-CANARY",
		endpoint + "api_key: !sk-CANARY x",
		endpoint + "api_key: %sk-CANARY",
		endpoint + "api_key: @sk-CANARY",
		endpoint + "api_key: |\n      sk-CANARY\n      b",
		endpoint + "api_key: |\n  sk-CANARY",
		endpoint + "\tapi_key: sk-CANARY",
		endpoint + "api-key: sk-CANARY",
		endpoint + "kind: vllm\n      api_key:sk-CANARY",
		endpoint + "kind: sk-CANARY",
		endpoint + "weight: sk-CANARY",
		endpoint + "limits: sk-CANARY",
		endpoint + "limits: {in_flight: \"api_key: CANARY\"}",
		endpoint + "models: [sk-CANARY, sk-CANARY]",
		endpoint + "api_key: ${sk-CANARY}",
		endpoint + "api_key: \"${SECRET}\\n\"",
		endpoint + "api_key: ${SECRET}\n    api_key: ${SECRET}",
		"endpoints: {a: {url: \"http://${SECRET}:x\"}}",
		"endpoints: {a: {url: \"http://${SECRET} \"}}",
		"endpoints: {a: {url: \"http://b/?${SECRET}\"}}",
		"endpoints: {a: {url: \"http://u:sk-CANARY@b\"}}",
		"endpoints: {a: {url: \"http://u:sk-CANARY@ b\"}}",
		"endpoints: {a: {url: \"http://b?k=sk-CANARY\"}}",
		"virtual_keys: [sk-CANARY]",
		"virtual_keys: [{name: a, sha256: CANARY}]",
		"sk-CANARY",
		"- sk-CANARY",
		"listen: \"Authorization: Bearer CANARY\"",
	} {
		c, warnings, err := Load([]File{{"a.yaml", []byte(text)}}, env("SECRET", "sk-CANARY"))
		out := lines(warnings)
		if err == nil {
			err = c.Validate(checkStrategy)
			out += fmt.Sprintf("%v %+v %#v", c.Endpoints, c.Endpoints, c.Endpoints)
		}
		if err != nil {
			out += err.Error()
		}
		if out == "" || strings.Contains(out, "CANARY") {
			t.Errorf("%q says %q", text, out)
		}
	}
}

// TestReferencesInFlowStyle writes ${NAME} where YAML alone would stumble over its braces.
func TestReferencesInFlowStyle(t *testing.T) {
	_, _, err := Load([]File{{"a.yaml", []byte(`endpoints:
  a: {kind: openai, api_key: ${A}, url: http://${B}:80${C}/x, wieght: 1}
  b: {kind: openai, api_key: "${A}${B}", url: 'http://b'}
`)}}, env("A", "sk-a", "B", "host", "C", "81"))
	want := `a.yaml:2:63: endpoints.a: unknown key "wieght"; did you mean "weight"?`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	c, _, err := Load([]File{{"a.yaml", []byte("endpoints: {a: {api_key: ${A}, url: http://${B}:80${C}/x}, b: {kind: openai, api_key: \"${A}${B}\"}}\nstrategy: {name: ${B}}")}},
		env("A", "sk-a", "B", "host", "C", "81"))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{c.Endpoints[0].APIKey.Reveal(), c.Endpoints[0].URL, c.Endpoints[1].APIKey.Reveal(), c.Strategy.Name}
	if wanted := []string{"sk-a", "http://host:8081/x", "sk-ahost", "${B}"}; !slices.Equal(got, wanted) {
		t.Errorf("got %q, want %q", got, wanted)
	}
}

func TestResolveSecret(t *testing.T) {
	t.Setenv("EVENKEEL_TEST_KEY", "sk-env")
	name := filepath.Join(t.TempDir(), "a.key")
	write(t, name, "sk-file\n")
	f := func(text, want, wantErr string) {
		t.Helper()
		got, warnings, err := ResolveSecret("--key", text)
		if wantErr != "" {
			wantErr = "--key: " + wantErr
		}
		if got.Reveal() != want || (err == nil) != (wantErr == "") || err != nil && err.Error() != wantErr {
			t.Errorf("%q gives %q, %v, want %q, %s", text, got.Reveal(), err, want, wantErr)
		}
		warning := ""
		if text == "sk-plain" {
			warning = "--key: is a secret in plain text; write ${NAME} for an environment variable, or file:PATH"
		}
		if said := lines(warnings); wantErr == "" && strings.TrimSpace(said) != warning {
			t.Errorf("%q warns %q, want %q", text, said, warning)
		}
	}
	f("", "", "")
	f("sk-plain", "sk-plain", "")
	f("file:nope", "", `secret file "nope": does not exist; a relative path starts at the working directory`)
	f("file:../nope", "", `secret file "../nope": a relative path cannot leave the working directory; write an absolute path`)
	f("${EVENKEEL_TEST_KEY}", "sk-env", "")
	f("file:"+name, "sk-file", "")
	f("${EVENKEEL_TEST_ABSENT}", "", "environment variable EVENKEEL_TEST_ABSENT is not set; set it before starting")
	f("$EVENKEEL_TEST_KEY", "", "a reference to the environment needs braces: ${NAME}")
	f("sk-CANARY\r\nx-evil: 1", "", "the secret holds a line break or another control character, which no header can carry")
}
