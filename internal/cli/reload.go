package cli

import (
	"context"
	"log/slog"
	"os"
	"time"

	"evenkeel/internal/app"
	"evenkeel/internal/config"
)

// lookAtFiles is how often the configuration's files are looked at. A change holds after the second look that sees it.
const lookAtFiles = 500 * time.Millisecond

// reloader reads the configuration again. It belongs to one goroutine.
type reloader struct {
	app    *app.App
	flags  serveFlags
	urls   []string
	logger *slog.Logger
	files  []config.File // of the configuration that holds
	seen   app.Files
}

// start reloads at each signal, and when files change. The returned function ends that and waits for it.
func (r *reloader) start(ctx context.Context, hangup <-chan os.Signal) func() {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		r.run(ctx, hangup)
	}()
	return func() {
		cancel()
		<-done
	}
}

func (r *reloader) run(ctx context.Context, hangup <-chan os.Signal) {
	look := time.NewTicker(lookAtFiles)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.app.HandedOver():
			return
		case <-hangup:
			if len(r.flags.config) == 0 {
				r.logger.Info("nothing to reload: there is no configuration file")
				continue
			}
			r.reload()
		case <-look.C:
			switch r.seen.Look(r.app.Config()) {
			case app.ConfigFiles:
				r.reload()
			case app.EndpointsFile:
				r.reloadEndpoints()
			}
		}
	}
}

// reload reads all files.
func (r *reloader) reload() {
	files, err := r.flags.read(r.urls)
	var c *config.Config
	var warnings []config.Warning
	if err == nil {
		c, warnings, err = r.flags.build(r.urls, files)
	}
	err = r.adopt(c, warnings, err)
	r.seen.Tried(c, err == nil)
	if err == nil {
		r.files = files
	}
}

// reloadEndpoints reads the file of endpoints alone: what is in the others may be unfinished.
func (r *reloader) reloadEndpoints() {
	c, warnings, err := r.flags.build(r.urls, r.files)
	_ = r.adopt(c, warnings, err) // it is in the log
	r.seen.TriedEndpoints(c)
}

// adopt makes c the configuration, unless err says why that cannot be. It returns why it is not.
func (r *reloader) adopt(c *config.Config, warnings []config.Warning, err error) error {
	if err == nil {
		err = r.app.Reload(c)
	} else {
		r.app.ReloadFailed()
	}
	if err != nil {
		r.logger.Error("the configuration was not reloaded; the last good one stays", "error", err)
		return err
	}
	for _, w := range warnings {
		r.logger.Warn("configuration", "warning", w.String())
	}
	r.logger.Info("configuration reloaded", "serving", r.app.Summary(), limits(r.app))
	return nil
}
