//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyUpgrade returns the signals that ask for a hand-over.
func notifyUpgrade() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR2)
	return c
}
