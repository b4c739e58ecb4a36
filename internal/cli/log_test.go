package cli

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// countingWriter counts the calls that would be system calls.
type countingWriter struct {
	mu    sync.Mutex
	b     bytes.Buffer
	calls int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	return w.b.Write(p)
}

func (w *countingWriter) seen() (string, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String(), w.calls
}

func TestLogLinesAreGatheredButNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out countingWriter
		l := newLogWriter(&out)
		for range 100 {
			if _, err := l.Write([]byte("a line\n")); err != nil {
				t.Fatal(err)
			}
		}
		if _, calls := out.seen(); calls != 0 {
			t.Errorf("%d writes at once", calls)
		}
		time.Sleep(logEvery) // virtual
		synctest.Wait()
		if text, calls := out.seen(); text != strings.Repeat("a line\n", 100) || calls != 1 {
			t.Errorf("after %v: %d bytes in %d writes", logEvery, len(text), calls)
		}
		if _, err := l.Write([]byte("the last\n")); err != nil {
			t.Fatal(err)
		}
		l.Close()
		if text, _ := out.seen(); !strings.HasSuffix(text, "the last\n") {
			t.Error("Close lost a line")
		}
	})
}
