package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startPatience = 20 * time.Second // machines that run tests are slow
	stopPatience  = 10 * time.Second
	tick          = 10 * time.Millisecond // of /proc: USER_HZ is 100 on every Linux
)

// process is a program that this one has started.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string        // the file with its output
	done chan struct{} // closed when it has ended

	startPatience, stopPatience time.Duration
}

// start runs a program with its output in a file in dir.
func start(dir, name string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{}), startPatience: startPatience, stopPatience: stopPatience}
	file, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the program has its own
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = file, file
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { // ends with the program, which stop sees to
		_ = p.cmd.Wait() // how it ended does not matter
		close(p.done)
	}()
	return p, nil
}

// stop ends the program, and waits for it.
func (p *process) stop() error {
	children := descendantsOf(p.cmd.Process.Pid)
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-p.done:
		return nil
	case <-time.After(p.stopPatience):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	for _, pid := range children { // they outlive a parent that was killed
		if child, err := os.FindProcess(pid); err == nil {
			_ = child.Kill()
		}
	}
	return fmt.Errorf("%s did not end within %v and was killed", p.name, p.stopPatience)
}

// await returns all matches of a pattern in the output as soon as there are n.
func (p *process) await(ctx context.Context, pattern *regexp.Regexp, n int) (found [][]string, err error) {
	err = eventually(ctx, p, func() bool {
		found = pattern.FindAllStringSubmatch(p.output(), n)
		return len(found) == n
	})
	return found, err
}

func (p *process) output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// eventually asks every 10 ms until the condition holds, and gives up when p ends.
func eventually(ctx context.Context, p *process, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, p.startPatience)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; the end of its output:\n%s", p.name, ctx.Err(), tail(p.output()))
		case <-p.done:
			return p.ended()
		case <-look.C:
		}
	}
	return nil
}

// ended says that the program has ended although it was needed.
func (p *process) ended() error {
	return fmt.Errorf("%s has ended; the end of its output:\n%s", p.name, tail(p.output()))
}

func tail(text string) string { return text[max(0, len(text)-4000):] }

// usage is what a program has used: itself, its descendants that run, and, of CPU time, those that have ended and that
// were waited for.
type usage struct {
	cpu time.Duration
	rss int64 // bytes
}

func (p *process) usage() (usage, error) {
	var u usage
	for _, pid := range append(descendantsOf(p.cmd.Process.Pid), p.cmd.Process.Pid) {
		dir := "/proc/" + strconv.Itoa(pid)
		stat, err := os.ReadFile(dir + "/stat")
		gone := errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
		if gone && pid == p.cmd.Process.Pid {
			return u, p.ended()
		}
		if gone {
			continue
		}
		if err != nil {
			return u, fmt.Errorf("%s: %w", p.name, err)
		}
		s, err := parseStat(stat)
		if err != nil {
			return u, fmt.Errorf("%s: %s/stat: %w", p.name, dir, err)
		}
		u.cpu += max(s.cpu, onCPU(dir)) + s.ended
		u.rss += s.pages * int64(os.Getpagesize())
	}
	return u, nil
}

// onCPU is the CPU time of a process to the nanosecond, which its stat rounds down to ticks: the first number of each
// thread's schedstat. It lacks threads that have ended, and is 0 on kernels that do not tell.
func onCPU(dir string) time.Duration {
	threads, err := filepath.Glob(dir + "/task/*/schedstat")
	if err != nil {
		panic("BUG: bench: " + err.Error())
	}
	var sum time.Duration
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0
		}
		sum += time.Duration(ns)
	}
	return sum
}

// stat is what is used of /proc/PID/stat; see proc(5).
type stat struct {
	parent int
	cpu    time.Duration // user and system
	ended  time.Duration // the same of children that have ended and were waited for
	pages  int64         // resident
}

func parseStat(b []byte) (stat, error) {
	// The name of the program is in parentheses and may hold anything.
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return stat{}, errors.New("no name in parentheses")
	}
	const state, ppid, utime, stime, cutime, cstime, rss = 3, 4, 14, 15, 16, 17, 24 // fields are counted from 1
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) <= rss-state {
		return stat{}, fmt.Errorf("%d fields behind the name, want more than %d", len(fields), rss-state)
	}
	var numbers [6]int64
	for i, field := range []int{ppid, utime, stime, cutime, cstime, rss} {
		n, err := strconv.ParseInt(fields[field-state], 10, 64)
		if err != nil {
			return stat{}, fmt.Errorf("field %d: %w", field, err)
		}
		numbers[i] = n
	}
	return stat{parent: int(numbers[0]), cpu: time.Duration(numbers[1]+numbers[2]) * tick,
		ended: time.Duration(numbers[3]+numbers[4]) * tick, pages: numbers[5]}, nil
}

// descendantsOf returns the processes that run and that a process, or one of these, has started; parents come first.
func descendantsOf(ancestor int) []int {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		panic("BUG: bench: " + err.Error())
	}
	children := map[int][]int{} // by parent
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		if s, err := parseStat(b); err == nil {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
				children[s.parent] = append(children[s.parent], pid)
			}
		}
	}
	pids := slices.Clone(children[ancestor])
	for i := 0; i < len(pids); i++ {
		pids = append(pids, children[pids[i]]...)
	}
	return pids
}
