//go:build !linux && !darwin

package app

// openFiles is how many files the process may have open, 0 if that is not bounded.
func openFiles() int64 { return 0 }

// mayCreate returns why this process could not make a file in a directory, nil if it could or that cannot be told.
func mayCreate(string) error { return nil }
