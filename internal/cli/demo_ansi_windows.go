package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// enableANSI makes a terminal understand ANSI sequences, and reports whether it does.
func enableANSI(f *os.File) bool {
	var mode uint32
	console := windows.Handle(f.Fd())
	return windows.GetConsoleMode(console, &mode) == nil &&
		windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
