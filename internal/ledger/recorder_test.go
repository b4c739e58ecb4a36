package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/trace"
)

// desk is a directory with a Recorder that writes there.
type desk struct {
	t    *testing.T
	path string
	log  lockedBuffer
	*Recorder
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// taken returns what was logged since it was last asked, without times.
func (l *lockedBuffer) taken() (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
		lines = append(lines, line)
	}
	l.b.Reset()
	return lines
}

func newDesk(t *testing.T, limit int64) *desk {
	d := &desk{t: t, path: filepath.Join(t.TempDir(), "trace.jsonl")}
	d.Recorder = d.recorder(limit, NewTraceKey())
	return d
}

func (d *desk) recorder(limit int64, key TraceKey) *Recorder {
	r, err := NewRecorder(RecorderOptions{
		Path: d.path, Limit: limit, Key: key, Program: "test", Blocks: 256, Logger: slog.New(slog.NewTextHandler(&d.log, nil)),
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// running runs a Recorder until the returned function is called, which waits for its end.
func running(r *Recorder) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		r.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// page is a file as it is read: its entries, and the chains of their prompts.
type page struct {
	entries []trace.Entry
	chains  [][]uint64
}

func (d *desk) read(path string) (p page) {
	d.t.Helper()
	f, err := os.Open(path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	reader, chains := trace.NewReader(f, filepath.Base(path)), trace.NewChains()
	for {
		var e trace.Entry
		err := reader.Next(&e)
		if errors.Is(err, io.EOF) {
			return p
		}
		if err != nil {
			d.t.Fatal(err)
		}
		p.entries = append(p.entries, e)
		p.chains = append(p.chains, chains.Of(reader.Header().Key, &e.Prefix).Append(nil))
	}
}

func chain(n int, seed uint64) []uint64 {
	rng := rand.New(rand.NewPCG(seed, 1))
	c := make([]uint64, n)
	for i := range c {
		c[i] = rng.Uint64()
	}
	return c
}

func TestRecorderWritesWhatItWasGiven(t *testing.T) {
	d := newDesk(t, 1<<30)
	stop := running(d.Recorder)
	var work sync.WaitGroup
	for g := range 8 {
		work.Go(func() {
			for i := range 100 {
				d.Add(record(fmt.Sprintf("ek-%d-%d", g, i), 1, 2), chain(10+i, uint64(g)), "session")
			}
		})
	}
	work.Wait()
	stop()
	p := d.read(d.path)
	seen := map[string][]uint64{}
	for i, e := range p.entries {
		seen[e.ID] = p.chains[i]
		if e.Session == 0 || e.Session != p.entries[0].Session || len(e.Attempts) != 1 || e.Attempts[0].Deployment != "gpu-1/qwen3-32b" {
			t.Fatalf("%+v", e)
		}
	}
	if len(p.entries) != 800 || len(seen) != 800 {
		t.Fatalf("%d lines of %d exchanges", len(p.entries), len(seen))
	}
	for g := range 8 {
		for i := range 100 {
			now := seen[fmt.Sprintf("ek-%d-%d", g, i)]
			if len(now) != 10+i {
				t.Fatalf("the chain of %d/%d has %d blocks", g, i, len(now))
			}
			if i > 0 && now[9+i-1] != seen[fmt.Sprintf("ek-%d-%d", g, i-1)][9+i-1] {
				t.Fatalf("the prompt %d/%d does not go on where the one before ended", g, i)
			}
		}
	}
	if u := d.Usage(); u != (RecorderUsage{Written: 800}) {
		t.Errorf("%+v", u)
	}
	if lines := d.log.taken(); len(lines) > 0 {
		t.Errorf("logged %q", lines)
	}
	if info, err := os.Stat(d.path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
}

// A chain's own hashes do not get into the file, nor do equal ones under another key look alike.
func TestRecorderHidesHashes(t *testing.T) {
	d := newDesk(t, 1<<20)
	own := chain(3, 1)
	d.Add(record("ek-1", 1, 1), own, "")
	d.flush()
	d.close()
	for i, h := range d.read(d.path).entries[0].Prefix.Hashes {
		if h != d.o.Key.block(own[i]) {
			t.Errorf("%x is written as %x, want its HMAC", own[i], h)
		}
	}
	one, other := NewTraceKey(), NewTraceKey()
	for i := range uint64(100) {
		if h := one.block(i); h == i || h == other.block(i) || h>>trace.HashBits != 0 {
			t.Errorf("%d is written as %x, under another key as %x", i, h, other.block(i))
		}
	}
	again := traceKey(one.secret)
	if one.block(7) != again.block(7) || one.Name() != again.Name() || one.Prefixes() != again.Prefixes() {
		t.Error("the same secret gives another key")
	}
	if one.Prefixes() == other.Prefixes() || one.Prefixes() == one.secret || one.Name() == other.Name() {
		t.Error("keys")
	}
	if one.session("a", "bc") == one.session("ab", "c") || one.session("a", "b") == one.session("", "b") || one.session("a", "") != 0 {
		t.Error("sessions of different tenants are alike")
	}
}

// A full disk takes a part of what is written, then nothing; later there is room again.
func TestRecorderSurvivesAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 1<<20)
		room := 1 << 20
		d.append = func(f *os.File, b []byte) (int, error) {
			n, err := f.Write(b[:min(room, len(b))])
			if room -= n; n < len(b) && err == nil {
				err = syscall.ENOSPC
			}
			return n, err
		}
		stop := running(d.Recorder)
		add := func(id string) {
			d.Add(record(id, 1, 2), chain(20, 1), "")
			time.Sleep(flushEvery)
			synctest.Wait()
		}
		add("ek-1")
		room = 500
		add("ek-2")
		room = 200
		add("ek-3")
		add("ek-4")
		room = 1 << 20
		add("ek-5")
		add("ek-6")
		stop()
		var ids []string
		p := d.read(d.path)
		for _, e := range p.entries {
			ids = append(ids, e.ID)
		}
		if got := strings.Join(ids, " "); got != "ek-1 ek-5 ek-6" && got != "ek-1 ek-2 ek-5 ek-6" {
			t.Errorf("the file has %s", got)
		}
		if last := p.entries[len(p.entries)-2:]; last[0].Prefix.Known != 0 || last[1].Prefix.Known != 20 {
			t.Errorf("after an error %d, then %d blocks are known, want 0 and 20", last[0].Prefix.Known, last[1].Prefix.Known)
		}
		u := d.Usage()
		if u != (RecorderUsage{Written: uint64(len(ids)), Failed: 6 - uint64(len(ids))}) || len(ids) == 6 {
			t.Errorf("%+v, and the file has %d", u, len(ids))
		}
		lines := d.log.taken()
		if len(lines) != 2 || !strings.HasPrefix(lines[0], `level=WARN msg="the trace cannot be written; requests are served, and not recorded" path=`) ||
			!strings.Contains(lines[0], "no space left") || lines[1] != fmt.Sprintf(`level=INFO msg="the trace is written again" path=%s lost=%d`, d.path, u.Failed) {
			t.Errorf("logged\n%s", strings.Join(lines, "\n"))
		}
	})
}

// It is told once a minute, not with each line.
func TestRecorderWithoutAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 1<<20)
		d.o.Path = filepath.Join(d.path, "missing", "trace.jsonl")
		stop := running(d.Recorder)
		synctest.Wait()
		if lines := d.log.taken(); len(lines) != 1 || !strings.Contains(lines[0], "no such file or directory") {
			t.Errorf("at the start it logs %q", lines)
		}
		for range 90 {
			d.Add(record("ek-1", 1, 1), nil, "")
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if lines := d.log.taken(); len(lines) != 1 || !strings.Contains(lines[0], "lost=") {
			t.Errorf("in 90 seconds it logs %q", lines)
		}
		if err := os.MkdirAll(filepath.Dir(d.o.Path), 0o700); err != nil {
			t.Fatal(err)
		}
		d.Add(record("ek-2", 1, 1), nil, "")
		stop()
		if p := d.read(d.o.Path); len(p.entries) != 1 || p.entries[0].ID != "ek-2" {
			t.Errorf("%+v", p.entries)
		}
		if u := d.Usage(); u != (RecorderUsage{Written: 1, Failed: 90}) {
			t.Errorf("%+v", u)
		}
	})
}

func TestRecorderRefusesWhatIsNoFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 1<<20)
		if err := os.Mkdir(d.path, 0o700); err != nil {
			t.Fatal(err)
		}
		stop := running(d.Recorder)
		stop()
		if lines := d.log.taken(); len(lines) != 1 || !strings.Contains(lines[0], "is not a regular file") {
			t.Errorf("logged %q", lines)
		}
	})
}

// A disk that hangs holds nobody up: what comes is dropped and counted, and the process can end.
func TestRecorderBesideAHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 1<<20)
		hangs := make(chan struct{})
		d.append = func(f *os.File, b []byte) (int, error) {
			<-hangs
			return f.Write(b)
		}
		stop := running(d.Recorder)
		d.Add(record("ek-0", 1, 1), nil, "")
		time.Sleep(flushEvery)
		synctest.Wait()
		rec := record("ek-1", 1, 1)
		for range mostWaiting + 5 {
			d.Add(rec, nil, "")
		}
		if u := d.Usage(); u != (RecorderUsage{Busy: 5}) {
			t.Errorf("%+v", u)
		}
		before := time.Now()
		stop()
		if took := time.Since(before); took != recorderPatience {
			t.Errorf("the end took %v", took)
		}
		if lines := d.log.taken(); len(lines) != 1 || !strings.Contains(lines[0], "the disk does not take the end of the trace") {
			t.Errorf("logged %q", lines)
		}
		close(hangs)
		synctest.Wait()
		if u := d.Usage(); u != (RecorderUsage{Written: mostWaiting + 1, Busy: 5}) {
			t.Errorf("at last %+v", u)
		}
	})
}

func TestRecorderBoundsHashes(t *testing.T) {
	d := newDesk(t, 1<<20)
	rec, long := record("ek-1", 1, 1), chain(trace.MaxBlocks, 1)
	for range mostHashesWaiting/trace.MaxBlocks + 3 {
		d.Add(rec, long, "")
	}
	if u := d.Usage(); u.Busy != 3 {
		t.Errorf("%+v", u)
	}
	select {
	case <-d.wake:
	default:
		t.Error("nobody was told that much waits")
	}
	d.Add(rec, nil, "")
	if u := d.Usage(); u.Busy != 3 {
		t.Error("an exchange without a prompt found no room")
	}
}

func TestNoRecorder(t *testing.T) {
	var r *Recorder
	r.Add(record("ek-1", 1, 1), nil, "")
	r.Run(context.Background())
	if u := r.Usage(); u != (RecorderUsage{}) {
		t.Errorf("%+v", u)
	}
	if _, err := NewRecorder(RecorderOptions{Path: "x"}); err == nil {
		t.Error("a Recorder without a limit")
	}
}

// The request's own goroutine allocates nothing, nor does the writing, once memory has grown to what is needed.
func TestRecorderAllocations(t *testing.T) {
	d := newDesk(t, 1<<30)
	rec, prefix := record("ek-1", 1, 2), chain(30, 1)
	var exchanges []*exchange.Record
	for i := range 100 {
		exchanges = append(exchanges, record(fmt.Sprint("ek-", i), 1, 2))
	}
	round := func() {
		for _, x := range exchanges {
			d.Add(x, prefix, "s")
		}
		d.flush()
	}
	for range 3 {
		round()
	}
	if n := testing.AllocsPerRun(20, round); n > 20 { // two calls of Stat, and the rest of the flush
		t.Errorf("100 exchanges cost %v allocations", n)
	}
	if n := testing.AllocsPerRun(20, func() { d.Add(rec, prefix, "s") }); n > 0 {
		t.Errorf("Add allocates %v times", n)
	}
	d.close()
}
