//go:build linux || darwin

package app

import "syscall"

// openFiles is how many files the process may have open, 0 if that is not bounded. Go raises its limit to the highest
// that the system allows before anything of ours runs.
func openFiles() int64 {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil || r.Cur >= 1<<40 {
		return 0
	}
	return int64(r.Cur)
}
