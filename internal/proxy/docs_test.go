package proxy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocsNameEveryCode: docs/http.md lists every code of ours that the sources of the data plane use.
func TestDocsNameEveryCode(t *testing.T) {
	page, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile(`"evenkeel(_[a-z_]+)"`)
	found := 0
	for _, dir := range []string{".", "../exchange", "../llm"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			source, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range code.FindAllStringSubmatch(string(source), -1) {
				found++
				if !strings.Contains(string(page), m[1]+"`") {
					t.Errorf("%s: evenkeel%s is not in docs/http.md", f, m[1])
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d codes found: the search is broken", found)
	}
}

// TestDocsNameEveryForwardedHeader: the list of request headers in docs/http.md is the one in use.
func TestDocsNameEveryForwardedHeader(t *testing.T) {
	page, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range forwarded {
		if !strings.Contains(string(page), "`"+strings.ToLower(name)+"`") {
			t.Errorf("%s is not in docs/http.md", name)
		}
	}
	for _, p := range forwardedPrefixes {
		if !strings.Contains(string(page), "`"+strings.ToLower(p)+"*`") {
			t.Errorf("%s* is not in docs/http.md", p)
		}
	}
}
