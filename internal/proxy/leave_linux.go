package proxy

import (
	"os"
	"sync"
	"syscall"
	"time"
)

const canWatch = true

// leaves tells calls that their clients have left: closed their side of the connection, or broke it. One goroutine
// waits for all of them. A client that sent more than its request before it left is noticed too. The zero value is
// ready; safe for concurrent use.
type leaves struct {
	mu      sync.Mutex
	epoll   *os.File        // nil before the first add, and after one that failed
	raw     syscall.RawConn // its own
	done    chan struct{}
	last    uint64
	waiting map[uint64]watched // by token
}

// watched is a request, the one of that number of a call.
type watched struct {
	call   *call
	epoch  uint64
	client *clientConn
}

// leaveEvents are for the half of a connection that the client writes to, and for both; once for each add.
const leaveEvents = syscall.EPOLLRDHUP | syscall.EPOLLHUP | syscall.EPOLLERR | syscall.EPOLLONESHOT

// start begins to wait, if nothing does, and reports whether something does. It can fail for want of files, and is tried
// again then. Callers hold mu.
func (l *leaves) start() bool {
	if l.epoll != nil {
		return true
	}
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // so that the runtime's own poller can wait for it
		_ = syscall.Close(fd) // was never used
		return false
	}
	epoll := os.NewFile(uintptr(fd), "epoll")
	raw, err := epoll.SyscallConn()
	if err != nil {
		_ = epoll.Close() // was never used
		return false
	}
	l.epoll, l.raw = epoll, raw
	l.waiting, l.done = map[uint64]watched{}, make(chan struct{})
	go l.run() // ends with close
	return true
}

// add watches the client of a call until remove. The call is told by left, with its present epoch. The token is for
// remove; 0 = it cannot be watched.
func (l *leaves) add(client *clientConn, c *call, epoch uint64) (token uint64) {
	l.mu.Lock()
	if !l.start() {
		l.mu.Unlock()
		return 0
	}
	l.last++
	token = l.last
	l.waiting[token] = watched{c, epoch, client}
	l.mu.Unlock()
	if !l.control(client, syscall.EPOLL_CTL_ADD, token) {
		l.forget(token)
		return 0
	}
	return token
}

// remove ends the watch. A left that is on its way may still come.
func (l *leaves) remove(client *clientConn, token uint64) {
	l.forget(token)
	l.control(client, syscall.EPOLL_CTL_DEL, token)
}

func (l *leaves) forget(token uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, token)
}

func (l *leaves) control(client *clientConn, op int, token uint64) (ok bool) {
	socket, err := client.SyscallConn()
	if err != nil {
		return false
	}
	err = socket.Control(func(fd uintptr) { // not run once the connection is closed, when fd may be another's
		e := syscall.EpollEvent{Events: leaveEvents, Fd: int32(uint32(token)), Pad: int32(uint32(token >> 32))}
		errEpoll := l.raw.Control(func(epoll uintptr) { err = syscall.EpollCtl(int(epoll), op, int(fd), &e) })
		ok = err == nil && errEpoll == nil
	})
	return ok && err == nil
}

func (l *leaves) run() {
	defer close(l.done)
	events := make([]syscall.EpollEvent, 64)
	for {
		n := 0
		err := l.raw.Read(func(epoll uintptr) bool {
			var err error
			if n, err = syscall.EpollWait(int(epoll), events, 0); err == syscall.EINTR {
				n, err = 0, nil
			}
			return n != 0 || err != nil
		})
		if err != nil || n < 0 {
			return // closed
		}
		for _, e := range events[:n] {
			l.tell(uint64(uint32(e.Pad))<<32 | uint64(uint32(e.Fd)))
		}
	}
}

func (l *leaves) tell(token uint64) {
	l.mu.Lock()
	w := l.waiting[token]
	delete(l.waiting, token)
	l.mu.Unlock()
	if w.call != nil {
		_ = w.client.SetWriteDeadline(time.Unix(1, 0)) // ends a write that waits for who has left
		go w.call.left(w.epoch)                        // ends as soon as the call can take it; one may be writing to a slow client
	}
}

// close ends the watch over all; add must not be called any more.
func (l *leaves) close() {
	l.mu.Lock()
	epoll, done := l.epoll, l.done
	l.mu.Unlock()
	if epoll != nil {
		_ = epoll.Close() // run sees it
		<-done
	}
}
