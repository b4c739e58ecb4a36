package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestRecorderMovesAFullFile(t *testing.T) {
	d := newDesk(t, 1<<20)
	const all = 9000
	for i := range all {
		d.Add(record(fmt.Sprint("ek-", i), 1, 2), chain(40, uint64(i%50)), "")
		if i%1000 == 999 {
			d.flush()
		}
	}
	d.close()
	if u := d.Usage(); u.Written != all {
		t.Fatalf("%+v", u)
	}
	now, before := d.read(d.path), d.read(d.path+".1")
	if len(now.entries) == 0 || len(before.entries) == 0 || now.entries[len(now.entries)-1].ID != fmt.Sprint("ek-", all-1) {
		t.Errorf("%d and %d entries", len(now.entries), len(before.entries))
	}
	for _, path := range []string{d.path, d.path + ".1"} {
		info, err := os.Stat(path)
		if err != nil || info.Size() > 1<<20+writeAtOnce+4096 {
			t.Errorf("%s has %d bytes, %v", path, info.Size(), err)
		}
	}
	files, err := os.ReadDir(filepath.Dir(d.path))
	if err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
	if now.entries[0].Prefix.Known != 0 { // it must not rest on a file that will be gone
		t.Errorf("the first line knows %d blocks", now.entries[0].Prefix.Known)
	}
	if n := len(before.entries); before.entries[n-1].Prefix.Known != 40 {
		t.Errorf("the last line of a full file knows %d blocks of 40", before.entries[n-1].Prefix.Known)
	}
}

// In a hand-over two processes write; when one moves the full file away, the other one follows.
func TestTwoRecordersOfOneFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 64<<10)
		next := d.recorder(64<<10, d.o.Key)
		// The key's state is not for two goroutines, and a process reads its own.
		next.o.Key = traceKey(d.o.Key.secret)
		stop, stopNext := running(d.Recorder), running(next)
		got := map[string]int{}
		n := 0
		gather := func(path string) {
			for _, e := range d.read(path).entries {
				got[e.ID]++
			}
		}
		for d.moved() == 0 {
			for range 10 {
				d.Add(record(fmt.Sprint("old-", n), 1, 2), chain(30, uint64(n)), "")
				next.Add(record(fmt.Sprint("new-", n), 1, 2), chain(30, uint64(n)), "")
				n++
			}
			time.Sleep(flushEvery)
			synctest.Wait()
		}
		for range 5 { // each into the new file, whoever moved the old one
			d.Add(record(fmt.Sprint("old-", n), 1, 2), nil, "")
			next.Add(record(fmt.Sprint("new-", n), 1, 2), nil, "")
			n++
			time.Sleep(flushEvery)
			synctest.Wait()
		}
		stop()
		stopNext()
		gather(d.path)
		if got[fmt.Sprint("old-", n-5)] != 1 || got[fmt.Sprint("new-", n-5)] != 1 {
			t.Error("after the file was moved not both write the new one")
		}
		gather(d.path + ".1")
		if len(got) != 2*n {
			t.Errorf("%d of %d exchanges are in the two files", len(got), 2*n)
		}
	})
}

// Who finds the file full after another process has begun a new one must not put that in the place of the full one.
func TestOneMovesAFullFile(t *testing.T) {
	d := newDesk(t, 1<<20)
	if err := os.WriteFile(d.path, []byte("full"), 0o600); err != nil {
		t.Fatal(err)
	}
	var both [2]*os.File
	for i := range both {
		f, err := os.Open(d.path)
		if err != nil {
			t.Fatal(err)
		}
		both[i] = f
	}
	for i, f := range both {
		if err := retire(f, d.path, d.path+".1"); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := os.WriteFile(d.path, []byte("new"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.Stat(); err == nil {
			t.Error("the file is still open")
		}
	}
	for path, want := range map[string]string{d.path: "new", d.path + ".1": "full"} {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s holds %q, %v, want %q", filepath.Base(path), text, err, want)
		}
	}
}

// moved returns the size of the file that was moved away, 0 if there is none.
func (d *desk) moved() int64 {
	info, err := os.Stat(d.path + ".1")
	if err != nil {
		return 0
	}
	return info.Size()
}

// What stands there stays: a new process goes on, behind a line that the one before could not end.
func TestRecorderGoesOnWithAFile(t *testing.T) {
	d := newDesk(t, 1<<20)
	write := func(r *Recorder, id string) {
		stop := running(r)
		r.Add(record(id, 1, 1), chain(20, 1), "")
		stop()
	}
	write(d.Recorder, "ek-1")
	text, err := os.ReadFile(d.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.path, text[:len(text)-40], 0o600); err != nil { // it crashed
		t.Fatal(err)
	}
	write(d.recorder(1<<20, traceKey(d.o.Key.secret)), "ek-2")
	write(d.recorder(1<<20, traceKey(d.o.Key.secret)), "ek-3")
	p := d.read(d.path)
	if len(p.entries) != 2 || p.entries[0].ID != "ek-2" || p.entries[1].ID != "ek-3" || p.entries[1].Prefix.Known != 0 {
		t.Fatalf("%+v", p.entries)
	}
	if p.chains[0][19] != p.chains[1][19] {
		t.Error("the same prompt has another chain after a restart")
	}
}

func TestRecorderFollowsAMovedFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 1<<20)
		stop := running(d.Recorder)
		add := func(id string) {
			d.Add(record(id, 1, 1), chain(20, 1), "")
			time.Sleep(flushEvery)
			synctest.Wait()
		}
		add("ek-1")
		if err := os.Rename(d.path, d.path+".away"); err != nil {
			t.Fatal(err)
		}
		add("ek-2")
		if err := os.Remove(d.path); err != nil {
			t.Fatal(err)
		}
		add("ek-3")
		stop()
		if p := d.read(d.path); len(p.entries) != 1 || p.entries[0].ID != "ek-3" {
			t.Errorf("%+v", p.entries)
		}
		if p := d.read(d.path + ".away"); len(p.entries) != 1 || p.entries[0].ID != "ek-1" {
			t.Errorf("%+v", p.entries)
		}
	})
}
