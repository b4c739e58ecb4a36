//go:build !unix

package app

import (
	"errors"
	"net"
	"os"
)

// leave is for systems where a process can leave its sockets to another one.
func leave(net.Listener) (*os.File, error) {
	return nil, errors.New("sockets cannot be left to another process on this system")
}
