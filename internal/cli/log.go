package cli

import (
	"bufio"
	"io"
	"log/slog"
	"sync"
	"time"

	"evenkeel/internal/config"
)

const (
	logBuffer = 64 << 10
	logEvery  = 100 * time.Millisecond // the longest a line waits
)

// logWriter gathers lines, so that a busy balancer does not make a system call for each. Safe for concurrent use.
type logWriter struct {
	mu   sync.Mutex
	w    *bufio.Writer
	stop chan struct{}
	done chan struct{}
}

// newLogWriter returns a writer whose Close must be called: it writes what is left.
func newLogWriter(w io.Writer) *logWriter {
	l := &logWriter{w: bufio.NewWriterSize(w, logBuffer), stop: make(chan struct{}), done: make(chan struct{})}
	go l.flushing() // ends with Close
	return l
}

func (l *logWriter) flushing() {
	defer close(l.done)
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			l.flush()
			return
		case <-tick.C:
			l.flush()
		}
	}
}

func (l *logWriter) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.w.Flush() // there is nowhere left to tell that the log cannot be written
}

func (l *logWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (l *logWriter) Close() {
	close(l.stop)
	<-l.done
}

func newLogger(w io.Writer, l config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		panic("BUG: cli: the log level was not validated: " + l.Level)
	}
	o := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
