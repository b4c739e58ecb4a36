//go:build linux || darwin

package ledger

import (
	"errors"
	"os"
	"syscall"
)

// retire closes a file, and moves it away if it still is at its path. Of several processes that have it open, one moves it: else the
// second one would put the file that the first has just begun in its place.
func retire(f *os.File, path, to string) error {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_EX) // not all file systems can; then it is unlikely
	var err error
	if isAt(f, path) {
		err = os.Rename(path, to)
	}
	return errors.Join(err, f.Close()) // and with it goes the lock
}
