package cli

import (
	"io/fs"
	"log/slog"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// gcPercent is what GOGC is unless the environment says otherwise. Little of the heap lives long, so that collecting
	// at Go's 100 would happen often and free much the same; docs/performance.md has the measurements.
	gcPercent = 400
	// limitShare of what the control group allows is the heap's soft limit; the rest is for stacks, code and the kernel.
	limitShare = 0.9
)

// tuneMemory sets how the garbage collector trades memory for time, where the environment variables of Go (GOGC,
// GOMEMLIMIT) do not, and logs what holds.
func tuneMemory(env func(string) string, root fs.FS, logger *slog.Logger) {
	if env("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if env("GOMEMLIMIT") == "" {
		if limit := cgroupLimit(root); limit > 0 {
			debug.SetMemoryLimit(int64(limitShare * float64(limit)))
		}
	}
	percent := debug.SetGCPercent(-1) // the only way to ask
	debug.SetGCPercent(percent)
	fields := []any{"gc_percent", percent}
	if limit := debug.SetMemoryLimit(-1); limit < unlimited {
		fields = append(fields, "limit_mib", limit>>20)
	}
	logger.Info("memory", fields...)
}

// unlimited is from where on a number of bytes is no limit: version 1 of control groups has no word for none, but a number
// near the largest.
const unlimited = 1 << 60

// cgroupLimit returns how much memory the control groups of this process allow, 0 where they do not bound it or there are
// none. Both versions are read at their usual mount points; the least of all levels counts. In a container the path that
// the process is told may be that of the host, of which only the root is visible.
func cgroupLimit(root fs.FS) int64 {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	least := int64(0)
	for line := range strings.Lines(string(groups)) { // hierarchy:controllers:path
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) < 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		switch {
		case part[0] == "0" && part[1] == "": // version 2
		case strings.Contains(","+part[1]+",", ",memory,"):
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group := path.Clean("/" + part[2]); ; group = path.Dir(group) {
			if text, err := fs.ReadFile(root, path.Join(mount, group, file)); err == nil {
				limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
				if err == nil && limit > 0 && limit < unlimited && (least == 0 || limit < least) {
					least = limit
				}
			}
			if group == "/" {
				break
			}
		}
	}
	return least
}

// machine is the file system of this machine.
func machine() fs.FS { return os.DirFS("/") }
