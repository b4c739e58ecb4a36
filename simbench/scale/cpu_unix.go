//go:build unix

package main

import (
	"syscall"
	"time"
)

// processorTime is the time that this process has spent on processors: on a busy machine the clock on the wall says how much
// of one it got.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("BUG: getrusage: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
