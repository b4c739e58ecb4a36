//go:build unix

package drill

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// usualBacklog is Go's own where the system says nothing else.
const usualBacklog = 4096

// vanish makes the link a black hole, as a host that is gone or a firewall that drops: what is open falls silent, and no
// SYN is answered. For that the backlog is cut to nothing and filled, so that the system drops what comes.
func (k *link) vanish() error {
	k.change(linkFault{silent: true, deaf: true})
	if err := k.knock(); err != nil { // so that the accepting goroutine sees it
		return err
	}
	if err := k.backlog(0); err != nil {
		return err
	}
	unheard := 0 // in a row: the accepting goroutine may take one out of the backlog between two
	for range 16 {
		err := k.knock()
		e, ok := errors.AsType[net.Error](err)
		switch {
		case err == nil:
			unheard = 0
		case !ok || !e.Timeout():
			return err
		default:
			if unheard++; unheard == 2 {
				return nil
			}
		}
	}
	return errors.New("the link still takes connections")
}

// appear ends vanish. What was open is reset.
func (k *link) appear() error {
	if err := k.backlog(usualBacklog); err != nil {
		return err
	}
	k.unfill()
	k.cut()
	k.change(linkFault{})
	return nil
}

// knock makes a connection to the link and keeps it.
func (k *link) knock() error {
	nc, err := net.DialTimeout("tcp", k.l.Addr().String(), 200*time.Millisecond)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.fill = append(k.fill, nc)
	k.mu.Unlock()
	return nil
}

func (k *link) backlog(n int) error {
	raw, err := k.l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	var listening error
	if err := raw.Control(func(fd uintptr) { listening = syscall.Listen(int(fd), n) }); err != nil {
		return err
	}
	return listening
}
