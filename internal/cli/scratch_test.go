//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A trace that is too large for memory goes to a file that nobody sees, and where there is no room for one the user is told what to do.
func TestScratch(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var s scratch
	if _, err := s.WriteAt([]byte("begin"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteAt([]byte("end"), 10); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 13)
	if _, err := s.ReadAt(b, 0); err != nil || string(b) != "begin\x00\x00\x00\x00\x00end" {
		t.Errorf("%q, %v", b, err)
	}
	_ = s.file.Close()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	t.Setenv("TMPDIR", filepath.Join(dir, "none"))
	text := "TIMESTAMP,ContextTokens,GeneratedTokens\n" + strings.Repeat("2023-11-16 18:17:03,480,10\n", 200_000)
	file := in(t, map[string]string{"large.csv": text})("large.csv")
	code, _, stderr := command("simulate", "--trace", file, "--strategy", "least_tokens")
	if code != exitFailure || !strings.Contains(stderr, file+": it is too large for memory, and cannot be kept elsewhere: open ") || !strings.Contains(stderr, "(TMPDIR names the folder of temporary files)") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
