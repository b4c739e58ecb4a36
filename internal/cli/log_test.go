package cli

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/internal/config"
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
		_, l := newLogger(&out, config.Log{Level: "info", Format: "text"})
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

// stuckWriter does not take anything until it is told to.
type stuckWriter struct {
	countingWriter
	open chan struct{}
}

func (w *stuckWriter) Write(p []byte) (int, error) {
	<-w.open
	return w.countingWriter.Write(p)
}

func TestStuckLogHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stuckWriter{open: make(chan struct{})}
		_, l := newLogger(out, config.Log{Level: "info", Format: "json"})
		line := []byte(strings.Repeat("x", 1023) + "\n")
		write := func(n int) {
			for range n {
				if _, err := l.Write(line); err != nil {
					t.Fatal(err)
				}
			}
		}
		write(1)
		time.Sleep(logEvery) // the flush hangs now
		synctest.Wait()
		write(logRoom/len(line) + 7)
		close(out.open)
		l.Close()
		text, _ := out.seen()
		if got := strings.Count(text, "x\n"); got != 1+logRoom/len(line) {
			t.Errorf("%d lines were written", got)
		}
		if !strings.Contains(text, `"count":7}`) {
			t.Error("nothing tells of the lines that were dropped")
		}
	})
}
