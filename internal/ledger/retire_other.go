//go:build !linux && !darwin

package ledger

import "os"

// retire closes a file, and moves it away if it still is at its path. There is no hand-over here: one process has it open.
func retire(f *os.File, path, to string) error {
	at := isAt(f, path)
	if err := f.Close(); err != nil || !at {
		return err
	}
	return os.Rename(path, to)
}
