//go:build !linux && !darwin

package app

// openFiles is how many files the process may have open, 0 if that is not bounded.
func openFiles() int64 { return 0 }
