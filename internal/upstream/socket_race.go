//go:build race && (darwin || linux || openbsd)

package upstream

import "syscall"

// tellRaceDetector makes the race detector know that whoever reads what is written next reads it after all that was done
// before. It knows that of syscall.Write, but not of unix.Writev.
func tellRaceDetector(fd int) { _, _ = syscall.Write(fd, nil) }
