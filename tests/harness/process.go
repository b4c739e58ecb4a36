package harness

import (
	"bytes"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a running program. Its methods are for one goroutine, but Output
// is safe for any.
type Process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   lines
	seen  int           // lines that Await has passed
	done  chan struct{} // closed when the program has ended and its output is complete
}

// Start runs cmd until the test ends; cmd must not have its pipes set. Its
// stdout and stderr are collected and shown if the test fails.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{name: cmd.Path, cmd: cmd, done: make(chan struct{})}
	p.out.changed = make(chan struct{}, 1)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	p.stdin = stdin
	stdout, stderr := &lineWriter{to: &p.out}, &lineWriter{to: &p.out}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = 5 * time.Second // for a child of the program that keeps its output open
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	go func() { // ends when the program does; Kill, called by Cleanup, sees to that
		cmd.Wait() // the exit status is in cmd.ProcessState
		stdout.flush()
		stderr.flush()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the end of the output of %s:\n%s", p.name, p.tail())
		}
	})
	return p
}

// Kill ends the program at once, as a crash would, and waits for it.
func (p *Process) Kill() {
	p.cmd.Process.Kill() // fails only if it has ended already
	p.stdin.Close()
	<-p.done
}

// Terminate asks the program to end and returns its exit code. It fails the
// test if the program has not ended within the limit.
func (p *Process) Terminate(t testing.TB, limit time.Duration) int {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("terminate %s: %v", p.name, err)
	}
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	select {
	case <-p.done:
	case <-deadline.C:
		t.Fatalf("%s still runs %v after SIGTERM; its output:\n%s", p.name, limit, p.tail())
	}
	return p.ExitCode()
}

// ExitCode returns the code of a program that has ended.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output returns the lines written so far.
func (p *Process) Output() string {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return strings.Join(p.out.all, "\n")
}

// tail returns the last lines, which is what a person can read.
func (p *Process) tail() string {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return strings.Join(p.out.all[max(0, len(p.out.all)-60):], "\n")
}

// WriteLine sends a line to the program's stdin.
func (p *Process) WriteLine(t testing.TB, line string) {
	t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		t.Fatalf("write to %s: %v; its output:\n%s", p.name, err, p.tail())
	}
}

// Await returns the submatches of the next line that matches, beginning after
// the line that the last call returned. It fails the test if the program ends
// first or the time is up.
func (p *Process) Await(t testing.TB, pattern *regexp.Regexp, limit time.Duration) []string {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for ended := false; ; {
		for line, ok := p.out.at(p.seen); ok; line, ok = p.out.at(p.seen) {
			p.seen++
			if m := pattern.FindStringSubmatch(line); m != nil {
				return m
			}
		}
		if ended {
			t.Fatalf("%s ended with code %d before it wrote %q; its output:\n%s", p.name, p.ExitCode(), pattern, p.tail())
		}
		select {
		case <-p.out.changed:
		case <-p.done:
			ended = true
		case <-deadline.C:
			t.Fatalf("%s did not write %q within %v; its output:\n%s", p.name, pattern, limit, p.tail())
		}
	}
}

// lines is a growing list with a wake-up for one reader.
type lines struct {
	mu      sync.Mutex
	all     []string // guarded by mu
	changed chan struct{}
}

func (l *lines) add(line string) {
	l.mu.Lock()
	l.all = append(l.all, line)
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *lines) at(i int) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i >= len(l.all) {
		return "", false
	}
	return l.all[i], true
}

// lineWriter cuts what is written into lines. It is written to by one
// goroutine.
type lineWriter struct {
	to      *lines
	partial []byte
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.partial = append(w.partial, b...)
	for {
		end := bytes.IndexByte(w.partial, '\n')
		if end < 0 {
			return len(b), nil
		}
		w.to.add(string(bytes.TrimSuffix(w.partial[:end], []byte{'\r'})))
		w.partial = w.partial[end+1:]
	}
}

func (w *lineWriter) flush() {
	if len(w.partial) > 0 {
		w.to.add(string(w.partial))
		w.partial = nil
	}
}
