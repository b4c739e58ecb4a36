package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	// inheritance is the environment variable by which a process tells the next one what it leaves to it.
	inheritance = "EVENKEEL_HANDOVER"
	// handOverPatience is how long the next process may take to become ready.
	handOverPatience = 60 * time.Second
	// handOverLook is how often it is looked whether somebody is ready, or connected.
	handOverLook = 20 * time.Millisecond
	// toldReady is what the next process says when it serves. Anything else is why it cannot.
	toldReady = "ready"
	// longestReason bounds that, in bytes.
	longestReason = 64 << 10
)

// will is the content of the variable: file descriptors.
type will struct {
	Sockets map[string]inherited `json:"sockets"` // by setting
	Ready   uintptr              `json:"ready"`   // a pipe to tell by
}

type inherited struct {
	FD      uintptr `json:"fd"`
	Address string  `json:"address"` // as configured
}

// Heir is what a process has from the one before it, whose place it takes. A nil Heir has nothing.
type Heir struct {
	sockets map[string]inherited
	ready   *os.File
}

// Inherit returns what the process before has left to this one; nil if there was none. It is to be called once.
func Inherit() (*Heir, error) {
	text := os.Getenv(inheritance)
	if text == "" {
		return nil, nil
	}
	if err := os.Unsetenv(inheritance); err != nil { // it is not for those that this process starts
		return nil, err
	}
	var w will
	if err := json.Unmarshal([]byte(text), &w); err != nil || w.Ready < 3 {
		return nil, fmt.Errorf("the environment variable %s is not what a process leaves to its successor; remove it", inheritance)
	}
	return &Heir{sockets: w.Sockets, ready: os.NewFile(w.Ready, "handover")}, nil
}

// Tell says that this process serves, if err is nil, or else why it cannot. Only the first call counts.
func (h *Heir) Tell(err error) {
	if h == nil || h.ready == nil {
		return
	}
	text := toldReady
	if err != nil {
		text = err.Error()
	}
	_, _ = io.WriteString(h.ready, text) // nobody reads it if the process before is gone
	_ = h.ready.Close()
	h.ready = nil
}

// take returns the socket of a listener, if it was left and is where the configuration wants it.
func (h *Heir) take(setting, address string) (net.Listener, error) {
	if h == nil {
		return nil, nil
	}
	left, ok := h.sockets[setting]
	if !ok {
		return nil, nil
	}
	delete(h.sockets, setting)
	f := os.NewFile(left.FD, setting)
	defer f.Close() // a listener has a descriptor of its own
	if left.Address != address {
		return nil, nil
	}
	return net.FileListener(f)
}

// drop closes the sockets that nobody took.
func (h *Heir) drop() {
	if h == nil {
		return
	}
	for setting, left := range h.sockets {
		_ = os.NewFile(left.FD, setting).Close() // else clients would connect, and wait for ever
	}
	h.sockets = nil
}

// HandOver starts the program anew, lets it have the listening sockets, and returns once it serves: from then on it gets
// all new connections, and Run ends when those that are open here have. If the new process does not come to that within a
// minute, or before ctx ends, it is ended, and this one goes on as if nothing had been. One call at a time.
func (a *App) HandOver(ctx context.Context, program string, args []string) error {
	switch {
	case a.isHandedOver():
		return errors.New("another process has taken over already")
	case os.Getpid() == 1:
		return errors.New("this is process 1 of its container, whose end would end the container; start another container instead")
	}
	cmd, tells, err := a.successor(program, args)
	if err != nil {
		return err
	}
	defer tells.Close()
	told := make(chan string, 1)
	go func() { // ends with the process, or with tells
		text, _ := io.ReadAll(io.LimitReader(tells, longestReason)) // what came is what counts
		told <- string(text)
	}()
	patience := time.NewTimer(handOverPatience)
	defer patience.Stop()
	var why error
	select {
	case text := <-told:
		if text == toldReady {
			return a.handedOver(cmd)
		}
		why = errors.New(text)
	case <-patience.C:
		why = fmt.Errorf("it did not become ready within %v", handOverPatience)
	case <-ctx.Done():
		why = ctx.Err()
	}
	_ = cmd.Process.Kill() // it may have ended
	if err := cmd.Wait(); why.Error() == "" {
		why = fmt.Errorf("it ended (%w); its own lines in the log say why", err)
	}
	return fmt.Errorf("the new process cannot take over: %w", why)
}

// successor starts the program with the listening sockets and a pipe to tell by, whose other end it returns.
func (a *App) successor(program string, args []string) (*exec.Cmd, *os.File, error) {
	w := will{Sockets: map[string]inherited{}}
	cmd := exec.Command(program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	defer func() {
		for _, f := range cmd.ExtraFiles { // the new process has its own
			_ = f.Close()
		}
	}()
	number := func(f *os.File) uintptr {
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		return uintptr(2 + len(cmd.ExtraFiles)) // as exec.Cmd numbers them
	}
	c := a.Config()
	a.mu.Lock()
	sockets := a.sockets
	a.mu.Unlock()
	for _, s := range sockets.all(c) {
		f, err := leave(*s.socket)
		if err != nil {
			return nil, nil, fmt.Errorf("the socket of %s: %w", s.setting, err)
		}
		w.Sockets[s.setting] = inherited{number(f), s.address}
	}
	tells, ready, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	w.Ready = number(ready)
	text, err := json.Marshal(w)
	if err != nil {
		panic("BUG: app: a will that cannot be written: " + err.Error())
	}
	cmd.Env = append(os.Environ(), inheritance+"="+string(text))
	if err := cmd.Start(); err != nil {
		_ = tells.Close()
		return nil, nil, fmt.Errorf("the new process cannot be started: %w", err)
	}
	return cmd, tells, nil
}

// handedOver notes that another process serves.
func (a *App) handedOver(cmd *exec.Cmd) error {
	pid := cmd.Process.Pid
	a.logger.Info("handed over; what runs here finishes", "to", pid, "running", a.proxy.Running())
	tellSystemd(fmt.Sprintf("MAINPID=%d", pid))
	_ = cmd.Process.Release() // it outlives this one
	close(a.handed)
	return nil
}

func (a *App) isHandedOver() bool {
	select {
	case <-a.handed:
		return true
	default:
		return false
	}
}

// HandedOver is closed once another process has taken over.
func (a *App) HandedOver() <-chan struct{} { return a.handed }

// awaitReady waits until requests can be served, or ctx ends.
func (a *App) awaitReady(ctx context.Context) {
	look := time.NewTicker(handOverLook)
	defer look.Stop()
	for a.Ready() != nil {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// tellSystemd tells the service manager about the process, where one has asked for it (sd_notify).
func tellSystemd(state string) {
	address := os.Getenv("NOTIFY_SOCKET")
	if !strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "@") {
		return
	}
	c, err := net.Dial("unixgram", address)
	if err != nil {
		return // it is told what it wants to know, and does not want to
	}
	defer c.Close()
	_, _ = io.WriteString(c, state)
}
