//go:build !unix

package upstream

import "syscall"

// prober cannot look into a socket without waiting on this system.
type prober struct{}

func newProber(syscall.Conn) prober { return prober{} }

// alive takes an idle connection as it is; one that the server has closed shows when the answer is read.
func (prober) alive() bool { return true }
