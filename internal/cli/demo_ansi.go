//go:build !windows

package cli

import "os"

// enableANSI makes a terminal understand ANSI sequences, and reports whether it does.
func enableANSI(*os.File) bool { return true }
