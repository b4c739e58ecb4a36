package main

import (
	"syscall"
	"time"
)

// threadTime is the time that this thread has spent on processors: on a busy machine the clock on the wall says how much of one it
// got. The goroutine must be locked to its thread.
func threadTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &u); err != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
