package cli

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"

	"evenkeel/internal/config"
)

const (
	logRoom  = 4 << 20                // bytes of lines that may wait
	logEvery = 100 * time.Millisecond // the longest a line waits
)

// logWriter gathers lines and writes them beside the requests, so that a busy balancer does not make a system
// call for each, and none waits for a pipe that nobody reads: what finds no room is dropped and counted. Safe
// for concurrent use.
type logWriter struct {
	w      io.Writer
	notice func(dropped int) []byte // a line that says how many were
	stop   chan struct{}
	done   chan struct{}

	mu      sync.Mutex
	lines   []byte
	spare   []byte
	dropped int
}

// newLogger returns a logger and the writer behind it, whose Close must be called: it writes what is left.
func newLogger(w io.Writer, c config.Log) (*slog.Logger, *logWriter) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		panic("BUG: cli: the log level was not validated: " + c.Level)
	}
	logger := func(w io.Writer) *slog.Logger {
		o := &slog.HandlerOptions{Level: level}
		if c.Format == "json" {
			return slog.New(slog.NewJSONHandler(w, o))
		}
		return slog.New(slog.NewTextHandler(w, o))
	}
	l := &logWriter{w: w, stop: make(chan struct{}), done: make(chan struct{}), notice: func(dropped int) []byte {
		var b bytes.Buffer
		logger(&b).Error("log lines were dropped: the log is not read fast enough", "count", dropped)
		return b.Bytes()
	}}
	go l.flushing() // ends with Close
	return logger(l), l
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

// flush writes what has gathered. Only flushing calls it.
func (l *logWriter) flush() {
	l.mu.Lock()
	lines, dropped := l.lines, l.dropped
	l.lines, l.spare, l.dropped = l.spare[:0], nil, 0
	l.mu.Unlock()
	if dropped > 0 {
		lines = append(lines, l.notice(dropped)...)
	}
	if len(lines) > 0 {
		_, _ = l.w.Write(lines) // there is nowhere left to tell that the log cannot be written
	}
	l.mu.Lock()
	l.spare = lines
	l.mu.Unlock()
}

// Write takes one line.
func (l *logWriter) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines)+len(line) > logRoom {
		l.dropped++
	} else {
		l.lines = append(l.lines, line...)
	}
	return len(line), nil
}

// closePatience is how long Close waits for a log that is not read.
const closePatience = time.Second

// Close writes what is left, unless nobody reads it.
func (l *logWriter) Close() {
	close(l.stop)
	select {
	case <-l.done:
	case <-time.After(closePatience):
	}
}
