package ledger

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func TestTraceKeyIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.key")
	var work sync.WaitGroup
	var names [8]string
	for i := range names {
		work.Go(func() {
			k, err := OpenTraceKey(path)
			if err != nil {
				t.Error(err)
			}
			names[i] = k.Name()
		})
	}
	work.Wait()
	k, err := OpenTraceKey(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name != k.Name() || len(name) != 8 {
			t.Errorf("keys %q, then %q", names, k.Name())
		}
	}
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v, %v", info.Mode(), err)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}

func TestTraceKeyErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.key")
	f := func(text, want string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenTraceKey(path); err == nil || !strings.Contains(err.Error(), want) || len(text) > 3 && strings.Contains(err.Error(), text) {
			t.Errorf("%.40q: got %v, want %q", text, err, want)
		}
	}
	f("", "holds 0 characters, expected 64 hexadecimal digits; move it away")
	f("abc", "holds 3 characters")
	f(strings.Repeat("z", 64), "does not hold 64 hexadecimal digits")
	f(strings.Repeat("a", 2000), "is not a file of 64 hexadecimal digits")
	if err := os.WriteFile(path, []byte(strings.Repeat("aB", 32)+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTraceKey(path); err != nil {
		t.Error(err)
	}
	if _, err := OpenTraceKey(filepath.Join(path, "in", "trace.key")); err == nil {
		t.Error("a key in a directory that is none")
	}
}
