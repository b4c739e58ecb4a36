package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// taken is one profile that evenkeel's admin listener gives.
type taken struct {
	file string
	path string // below /debug/pprof/; %d is the length in seconds
}

// Those of one stage are taken at the same time; evenkeel samples only one of CPU time, locks and waits at a time, since
// each of them shows in the others.
var stages = [][]taken{
	{{"cpu", "profile?seconds=%d"}, {"allocs", "allocs?seconds=%d"}},
	{{"inuse", "heap"}},
	{{"mutex", "mutex?seconds=%d"}},
	{{"block", "block?seconds=%d"}},
}

// top is a part of top20.txt: a profile and how it is sorted.
type top struct {
	about, file string
	flags       []string
}

var tops = []top{
	{"CPU time, in the function itself", "cpu", nil},
	{"CPU time, with what the function calls", "cpu", []string{"-cum", "-nodecount=50"}},
	{"memory allocated, bytes", "allocs", []string{"-sample_index=alloc_space"}},
	{"memory allocated, objects", "allocs", []string{"-sample_index=alloc_objects"}},
	{"memory in use, bytes", "inuse", []string{"-sample_index=inuse_space"}},
	{"waiting for locks", "mutex", nil},
	{"waiting of all kinds", "block", nil},
}

// What there is to see of streams that are held open.
var (
	heldStage = []taken{{"inuse", "heap?gc=1"}, {"goroutine", "goroutine"}}
	heldTops  = []top{
		{"memory in use, bytes", "inuse", []string{"-sample_index=inuse_space"}},
		{"memory in use, objects", "inuse", []string{"-sample_index=inuse_objects"}},
		{"goroutines, by where they wait", "goroutine", []string{"-cum", "-nodecount=50"}},
	}
)

// profile runs cells against evenkeel alone and writes its profiles into a folder for each.
func profile(ctx context.Context, o options, w io.Writer) (err error) {
	b, err := newBed(ctx, o.cells, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, c := range o.cells {
		dir := filepath.Join(o.profile, c.name)
		err := os.MkdirAll(dir, 0o755)
		if err == nil && c.held > 0 {
			err = b.profileHeld(ctx, c, dir)
		} else if err == nil {
			err = b.profile(ctx, o, c, dir)
		}
		if err != nil {
			return fmt.Errorf("cell %s: %w", c.name, err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "top20.txt"))
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\nprofiles of cell %s are in %s; look at one with: go tool pprof -http=: %[3]s/inuse.pprof\n", text, c.name, dir)
	}
	return nil
}

// profile takes the profiles of one cell while its load runs.
func (b *bed) profile(ctx context.Context, o options, c cell, dir string) error {
	want, err := b.ask(ctx, c)
	if err != nil {
		return err
	}
	to := b.places[c.model][evenkeel]
	l := newLoad(c, to, want)
	defer l.close()
	var over atomic.Bool
	ended := make(chan struct{})
	go func() { // ends soon after over is set, or ctx ends
		defer close(ended)
		l.run(ctx, time.Second, func() bool { return !over.Load() })
	}()
	err = sleep(ctx, 2*time.Second) // of warming up
	var first sample
	for i, stage := range stages {
		take := func() error { return to.balancer.take(ctx, max(1, int(o.seconds)), stage, dir) }
		if i > 0 {
			err = errors.Join(err, take())
		} else if err == nil {
			first, err = b.during(evenkeel, l, take)
		}
	}
	over.Store(true)
	<-ended
	if err != nil {
		return err
	}
	if sum := l.tally(); sum.wrong() > 0 {
		return fmt.Errorf("%w: %d of %d, for example %q", errLost, sum.wrong(), sum.wrong()+sum.complete, sum.examples[0])
	}
	about := fmt.Sprintf("Cell %s: %s. Here %.0f %ss/s at %.2f µs of CPU time each, with profiling.\n\n", c.name, c.about, first.perSecond(), c.unit, first.perUnit())
	return b.top20(ctx, dir, about, tops)
}

// profileHeld takes the profiles of an evenkeel of its own while streams are held open, and says what the runtime holds
// for each of them above what it holds idle.
func (b *bed) profileHeld(ctx context.Context, c cell, dir string) error {
	e, err := b.startEvenkeel(ctx, []model{held}, "evenkeel-"+c.name)
	if err != nil {
		return err
	}
	to := b.places[held.name][evenkeel]
	if err := warm(ctx, to); err != nil {
		return err
	}
	idle, err := e.memory()
	if err != nil {
		return err
	}
	n := holdable(c.held)
	about := fmt.Sprintf("Cell %s: %d streams are open. KB (1,000 bytes) for each above what is there without:\n\n", c.name, n)
	_, err = open(ctx, c, to, n, func() (int64, error) {
		now, err := e.memory()
		if err != nil {
			return 0, err
		}
		for i, m := range now {
			about += fmt.Sprintf("%8.2f  %s\n", (m.bytes-idle[i].bytes)/1e3/float64(n), m.name)
		}
		return 0, e.take(ctx, 0, heldStage, dir)
	})
	if err != nil {
		return err
	}
	return b.top20(ctx, dir, about+"\n", heldTops)
}

// kept is a kind of memory of a process.
type kept struct {
	name  string
	bytes float64
}

var keptLine = regexp.MustCompile(`(?m)^((?:process_resident_memory|go_memstats_\w+)_bytes) (\S+)$`)

// memory returns what evenkeel and its runtime say of their memory.
func (e *balancer) memory() ([]kept, error) {
	_, metrics, err := e.get("/metrics")
	if err != nil {
		return nil, err
	}
	var all []kept
	for _, m := range keptLine.FindAllSubmatch(metrics, -1) {
		n, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", m[0], err)
		}
		all = append(all, kept{string(m[1]), n})
	}
	return all, nil
}

// take takes profiles at the same time.
func (e *balancer) take(ctx context.Context, seconds int, stage []taken, dir string) error {
	results := make(chan error, len(stage))
	for _, t := range stage {
		path := t.path
		if strings.Contains(path, "%d") {
			path = fmt.Sprintf(path, seconds)
		}
		go func() { results <- download(ctx, e.admin+"/debug/pprof/"+path, filepath.Join(dir, t.file+".pprof")) }() // ends with the profile, or ctx
	}
	var problems []error
	for range stage {
		problems = append(problems, <-results)
	}
	return errors.Join(problems...)
}

func download(ctx context.Context, url, file string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Close = true
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d: %.200s", url, res.StatusCode, body)
	}
	return os.WriteFile(file, body, 0o644)
}

// top20 writes the greatest parts of all profiles into one text.
func (b *bed) top20(ctx context.Context, dir, about string, tops []top) error {
	var text strings.Builder
	text.WriteString(about)
	for _, t := range tops {
		args := append([]string{"tool", "pprof", "-top", "-nodecount=20"}, t.flags...)
		args = append(args, b.binary(), filepath.Join(dir, t.file+".pprof"))
		out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		fmt.Fprintf(&text, "## %s\n\n%s\n", t.about, out)
	}
	return os.WriteFile(filepath.Join(dir, "top20.txt"), []byte(text.String()), 0o644)
}
