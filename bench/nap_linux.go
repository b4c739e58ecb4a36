package main

import (
	"syscall"
	"time"
)

// nap blocks the thread for about that long, or until a signal comes.
func nap(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil) // fails only when a signal interrupts it
}
