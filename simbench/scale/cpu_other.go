//go:build !unix

package main

import "time"

// processorTime is the clock on the wall: this system does not tell what a process has spent.
func processorTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
