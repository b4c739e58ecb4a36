//go:build linux || darwin

package app

import (
	"fmt"
	"syscall"
)

// openFiles is how many files the process may have open, 0 if that is not bounded. Go raises its limit to the highest
// that the system allows before anything of ours runs.
func openFiles() int64 {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil || r.Cur >= 1<<40 {
		return 0
	}
	return int64(r.Cur)
}

// mayCreate returns why this process could not make a file in a directory, nil if it could.
func mayCreate(dir string) error {
	const write, search = 2, 1 // W_OK, X_OK
	if err := syscall.Access(dir, write|search); err != nil {
		return fmt.Errorf("no file can be made in %s: %w", dir, err)
	}
	return nil
}
