package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/trace"
)

const (
	// What may wait to be written: at one flush a second, and one more when half is taken, 4,000 exchanges per second and far
	// more in a burst. A record takes some KiB, and a hash 8 bytes.
	mostWaiting       = 4096
	mostHashesWaiting = 1 << 20
	flushEvery        = time.Second
	// writeAtOnce is from how many bytes on lines are written, so that the file's size is looked at in time.
	writeAtOnce = 256 << 10
	// rememberedHashes is what the Recorder remembers of hashes that the file has, so that it need not repeat them; it is at most
	// twice as many, in about 8 MB. Prompts of 2,000 tokens have 24.
	rememberedHashes = 128 << 10
	// tellAgain is how often it is said that the trace still cannot be written.
	tellAgain = time.Minute
	// recorderPatience is how long Run waits, once its context has ended, for a disk that hangs.
	recorderPatience = 5 * time.Second
)

// RecorderOptions describe a Recorder.
type RecorderOptions struct {
	Path    string
	Limit   int64 // bytes after which the file is moved to Path.1, in the place of the one that is there
	Key     TraceKey
	Program string // version, for the header
	Blocks  int    // bytes of text that a block of a prefix is
	Logger  *slog.Logger
}

// Recorder writes finished exchanges to a trace (package trace). Add may be called by any number of goroutines and never waits for
// the disk: what finds no room is dropped and counted. Exchanges are written as long as Run runs. A nil Recorder records nothing.
//
// Several processes may write to one file, as they do for a moment in a hand-over: each writes whole lines at its end, and under a
// header of its own. A file that was moved or removed is left, and a new one begun.
type Recorder struct {
	o    RecorderOptions
	wake chan struct{} // much is waiting

	mu      sync.Mutex
	waiting batch
	spare   batch // of the last flush, to be used again
	usage   RecorderUsage

	// Of the goroutine that writes.
	file     *os.File
	headed   bool // the file has our header, and nothing after it that is not ours
	torn     bool // it ends amid a line, perhaps
	thinner  *trace.Thinner
	entry    trace.Entry
	lines    []byte
	append   func(*os.File, []byte) (int, error) // os.File.Write but in tests
	failing  bool
	lost     uint64 // exchanges, since it fails
	nextTold time.Time
}

// RecorderUsage counts exchanges since the start.
type RecorderUsage struct {
	Written uint64
	Busy    uint64 // dropped, since too many waited to be written
	Failed  uint64 // dropped, since the file could not be written
}

// batch is what waits to be written.
type batch struct {
	entries []waiting
	hashes  []uint64 // of all entries
}

type waiting struct {
	record   *exchange.Record
	session  string
	from, to int // in hashes
}

// NewRecorder returns a Recorder. It touches no file until Run.
func NewRecorder(o RecorderOptions) (*Recorder, error) {
	if o.Path == "" || o.Limit <= 0 || o.Logger == nil {
		return nil, errors.New("ledger: a Recorder needs a path, a limit above 0 and a logger")
	}
	return &Recorder{o: o, wake: make(chan struct{}, 1), thinner: trace.NewThinner(rememberedHashes), append: (*os.File).Write}, nil
}

// Add takes a record that is final, with the hash chain of its prompt, which is copied, and the client's name for its session.
func (r *Recorder) Add(rec *exchange.Record, prefix []uint64, session string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	b := &r.waiting
	if len(b.entries) >= mostWaiting || len(b.hashes)+len(prefix) > mostHashesWaiting {
		r.usage.Busy++
		r.mu.Unlock()
		return
	}
	from := len(b.hashes)
	b.hashes = append(b.hashes, prefix...)
	b.entries = append(b.entries, waiting{rec, session, from, len(b.hashes)})
	much := len(b.entries) == mostWaiting/2 || from < mostHashesWaiting/2 && len(b.hashes) >= mostHashesWaiting/2
	r.mu.Unlock()
	if much {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Usage returns what became of the exchanges so far.
func (r *Recorder) Usage() RecorderUsage {
	if r == nil {
		return RecorderUsage{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.usage
}

// Run writes until ctx ends, and then what is left. It is called once. If the disk hangs then, it gives up after a while, and
// leaves a goroutine that ends when the disk answers.
func (r *Recorder) Run(ctx context.Context) {
	if r == nil {
		return
	}
	done := make(chan struct{})
	go func() { // ends with ctx, and what is left written
		defer close(done)
		r.run(ctx)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	patience := time.NewTimer(recorderPatience)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
		r.o.Logger.Warn("the disk does not take the end of the trace", "path", r.o.Path)
	}
}

func (r *Recorder) run(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	if err := r.ready(); err != nil {
		r.failed(err) // at once, and not only when there is something to write
	}
	for {
		select {
		case <-ctx.Done():
			r.flush()
			r.close()
			return
		case <-tick.C:
		case <-r.wake:
		}
		r.flush()
	}
}

// flush writes what waits.
func (r *Recorder) flush() {
	r.mu.Lock()
	b := r.waiting
	r.waiting = r.spare
	r.mu.Unlock()
	for rest := b.entries; len(rest) > 0; {
		if err := r.begin(); err != nil {
			r.drop(len(rest))
			r.failed(err)
			break
		}
		n := 0
		for n < len(rest) && len(r.lines) < writeAtOnce {
			r.put(&b, &rest[n])
			n++
		}
		r.write(n)
		rest = rest[n:]
	}
	clear(b.entries)
	r.mu.Lock()
	r.spare = batch{b.entries[:0], b.hashes[:0]}
	r.mu.Unlock()
}

// put adds the line of an exchange to lines.
func (r *Recorder) put(b *batch, w *waiting) {
	e := &r.entry
	r.thinner.Thin(b.hashes[w.from:w.to], &e.Prefix)
	for i, h := range e.Prefix.Hashes {
		e.Prefix.Hashes[i] = r.o.Key.block(h)
	}
	e.From(w.record)
	e.Session = r.o.Key.session(e.Tenant, w.session)
	r.lines = trace.Append(r.lines, e)
}

// begin makes lines empty, but for a header where one is needed, and the file ready to take them.
func (r *Recorder) begin() error {
	r.lines = r.lines[:0]
	if err := r.ready(); err != nil {
		return err
	}
	if r.headed {
		return nil
	}
	if r.torn {
		r.lines = append(r.lines, '\n')
	}
	r.lines = trace.AppendHeader(r.lines, &trace.Header{Version: trace.Version, Program: r.o.Program, Key: r.o.Key.Name(), BlockBytes: r.o.Blocks})
	r.thinner.Reset()
	return nil
}

// ready opens the file if it is not, or is not at its path any more, and begins a new one if it is full.
func (r *Recorder) ready() error {
	if r.file != nil && !isAt(r.file, r.o.Path) {
		r.close()
	}
	if r.file == nil {
		if err := r.open(); err != nil {
			return err
		}
	}
	info, err := r.file.Stat()
	if err != nil || info.Size() < r.o.Limit {
		return err
	}
	full := r.file
	r.file, r.headed = nil, false
	if err := retire(full, r.o.Path, r.o.Path+".1"); err != nil {
		return err
	}
	return r.open()
}

// isAt reports whether an open file is the one at a path.
func isAt(f *os.File, path string) bool {
	there, err := os.Stat(path)
	own, ownErr := f.Stat()
	return err == nil && ownErr == nil && os.SameFile(there, own)
}

func (r *Recorder) open() error {
	if info, err := os.Stat(r.o.Path); err == nil && !info.Mode().IsRegular() { // a pipe could hang
		return fmt.Errorf("%s is not a regular file", r.o.Path)
	}
	f, err := os.OpenFile(r.o.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	last := []byte{'\n'}
	if size := info.Size(); size > 0 {
		if _, err := f.ReadAt(last, size-1); err != nil {
			_ = f.Close()
			return err
		}
	}
	r.file, r.headed, r.torn = f, false, last[0] != '\n'
	return nil
}

func (r *Recorder) close() {
	if r.file == nil {
		return
	}
	if err := r.file.Close(); err != nil {
		r.failed(err)
	}
	r.file, r.headed = nil, false
}

// write writes lines, which tell of n exchanges. What could not be written is lost: to try it again would only lose others.
func (r *Recorder) write(n int) {
	done, err := r.append(r.file, r.lines)
	written := n
	if err != nil { // the last ones are missing
		written = max(n-bytes.Count(r.lines[done:], []byte{'\n'}), 0)
		r.drop(n - written)
		r.failed(err)
	}
	r.headed, r.torn = err == nil, err != nil
	r.mu.Lock()
	r.usage.Written += uint64(written)
	r.mu.Unlock()
	if err == nil && r.failing {
		r.o.Logger.Info("the trace is written again", "path", r.o.Path, "lost", r.lost)
		r.failing, r.lost = false, 0
	}
}

// drop counts exchanges that are lost since the file cannot be written.
func (r *Recorder) drop(n int) {
	r.lost += uint64(n)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usage.Failed += uint64(n)
}

// failed says that the trace cannot be written: at once, and now and then while that lasts.
func (r *Recorder) failed(err error) {
	now := time.Now()
	if r.failing && now.Before(r.nextTold) {
		return
	}
	r.failing, r.nextTold = true, now.Add(tellAgain)
	r.o.Logger.Warn("the trace cannot be written; requests are served, and not recorded", "path", r.o.Path, "error", err, "lost", r.lost)
}
