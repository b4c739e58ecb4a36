package cli

import (
	"bytes"
	"log/slog"
	"math"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"
)

// files makes a file system of names and contents.
func files(pairs ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		fsys[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return fsys
}

func TestCgroupLimit(t *testing.T) {
	f := func(want int64, pairs ...string) {
		t.Helper()
		if got := cgroupLimit(files(pairs...)); got != want {
			t.Errorf("%q: %d, want %d", pairs, got, want)
		}
	}
	const self, v2, v1 = "proc/self/cgroup", "sys/fs/cgroup/", "sys/fs/cgroup/memory/"
	f(0)
	f(0, self, "")
	f(0, self, "0::/\n")
	f(0, self, "0::/\n", v2+"memory.max", "max\n")
	f(1<<30, self, "0::/\n", v2+"memory.max", "1073741824\n")
	f(1<<30, self, "0::/app/main\n", v2+"app/main/memory.max", "1073741824\n", v2+"memory.max", "max\n")
	f(1<<20, self, "0::/app/main\n", v2+"app/main/memory.max", "1073741824\n", v2+"app/memory.max", "1048576\n")
	f(1<<20, self, "0::/../other\n", v2+"memory.max", "1048576\n") // seen from another namespace
	f(0, self, "0::/\n", v2+"memory.max", "many\n")
	f(0, self, "0::/\n", v2+"memory.max", "-5\n")
	f(0, self, "4:cpu,cpuacct:/\n", v1+"memory.limit_in_bytes", "1048576\n")
	f(1<<20, self, "9:memory:/docker/0123\n4:cpu:/\n0::/\n", v1+"memory.limit_in_bytes", "1048576\n")
	f(1<<20, self, "9:cpu,memory:/a\n", v1+"a/memory.limit_in_bytes", "1048576\n", v1+"memory.limit_in_bytes", "9223372036854771712\n")
	f(0, self, "9:memory:/\n", v1+"memory.limit_in_bytes", "9223372036854771712\n")
	f(0, self, "9:memory:/\n", v1+"memory.limit_in_bytes", "99999999999999999999999\n")
	f(0, self, "no colons\n0:\n")
}

func TestTuneMemory(t *testing.T) {
	oldPercent, oldLimit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	defer func() { debug.SetGCPercent(oldPercent); debug.SetMemoryLimit(oldLimit) }()
	f := func(gogc, memlimit, max string, percent int, limit int64, logged string) {
		t.Helper()
		debug.SetGCPercent(100) // what Go itself would have set
		debug.SetMemoryLimit(math.MaxInt64)
		env := map[string]string{"GOGC": gogc, "GOMEMLIMIT": memlimit}
		var log bytes.Buffer
		root := files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", max)
		tuneMemory(func(name string) string { return env[name] }, root, slog.New(slog.NewTextHandler(&log, nil)))
		if got := debug.SetGCPercent(100); got != percent {
			t.Errorf("GOGC %q: %d, want %d", gogc, got, percent)
		}
		if got := debug.SetMemoryLimit(-1); got != limit {
			t.Errorf("GOMEMLIMIT %q, group %q: %d, want %d", memlimit, max, got, limit)
		}
		if !strings.HasSuffix(log.String(), "msg=memory "+logged+"\n") {
			t.Errorf("logged %q, want %q", log.String(), logged)
		}
	}
	f("", "", "max", 400, math.MaxInt64, "gc_percent=400")
	f("", "", "1048576000", 400, 943718400, "gc_percent=400 limit_mib=900")
	f("150", "", "1048576000", 100, 943718400, "gc_percent=100 limit_mib=900")
	f("", "1GiB", "1048576000", 400, math.MaxInt64, "gc_percent=400")
	f("off", "off", "max", 100, math.MaxInt64, "gc_percent=100")
}
