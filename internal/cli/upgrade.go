package cli

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"evenkeel/internal/app"
)

// ownPath is the path of this program as it was started: what is there later may be a new version.
var ownPath = func() string {
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return os.Args[0]
	}
	if absolute, err := filepath.Abs(path); err == nil {
		return absolute
	}
	return path
}()

// handOverOn lets a new process take over at each signal, until that has come about. The returned function ends that and waits
// for it.
func handOverOn(ctx context.Context, upgrade <-chan os.Signal, a *app.App, logger *slog.Logger) func() {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-upgrade:
			}
			logger.Info("asked to hand over", "program", ownPath)
			if err := a.HandOver(ctx, ownPath, os.Args[1:]); err != nil {
				logger.Error("not handed over; this process goes on", "error", err)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
