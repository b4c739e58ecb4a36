//go:build !unix

package cli

import "os"

// notifyUpgrade returns no signals: sockets cannot be left to another process here.
func notifyUpgrade() <-chan os.Signal { return nil }
