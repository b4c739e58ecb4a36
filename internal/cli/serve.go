package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"evenkeel/internal/app"
	"evenkeel/internal/config"
)

type serveFlags struct {
	config      []string
	listen      string
	admin       string
	metrics     string
	noAuth      bool
	noWatch     bool
	upstreamKey string
	strategy    string
	logLevel    string
	logFormat   string

	given func(flag string) bool // an empty value that was given is not the default
}

func newServe() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve [flags] URL... | --config FILE...",
		Short: "Balance requests over model endpoints",
		Long: `Serve listens for OpenAI- and Anthropic-style requests and balances them over model endpoints.

With URLs, no configuration is needed: each is asked which engine it is and which models it has. One that is
not up yet joins when it is. With --config, everything can be said; several files are merged.

Configuration files that change are read again, and at SIGHUP: all of it takes effect, or nothing and the log says why.
SIGUSR2 starts the program anew, for a new version or for settings that need a restart: once the new process serves,
it gets all new connections, and this one ends when its own have. If that fails, this one goes on and the log says why.
SIGTERM drains: /readyz fails, and new requests are still accepted until the last running one has ended or
drain_timeout is over; what runs then ends with an error. A second SIGTERM does not wait for that, and a third
one ends the process as it stands.`,
		Example: `  evenkeel serve http://gpu-1:8000 http://gpu-2:8000
  evenkeel serve dns+http://vllm-headless:8000                          # each address of the name
  evenkeel serve --listen 127.0.0.1:9000 --strategy round_robin http://127.0.0.1:8001 http://127.0.0.1:8002
  UPSTREAM_KEY=sk-... evenkeel serve --upstream-key '${UPSTREAM_KEY}' http://gpu-1:8000
  evenkeel serve --config endpoints.yaml --config policy.yaml`,
		RunE: func(cmd *cobra.Command, urls []string) error { return runServe(cmd, f, urls) },
	}
	f.register(cmd)
	return cmd
}

// register adds the flags to a command.
func (f *serveFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.given = flags.Changed
	flags.StringArrayVarP(&f.config, "config", "c", nil, "configuration `file` (YAML); may be given several times")
	flags.StringVar(&f.listen, "listen", "", "`address` for clients (default 127.0.0.1:8080)")
	flags.StringVar(&f.admin, "admin", "", "`address` for explain, metrics and state; '' turns it off (default 127.0.0.1:8081)")
	flags.StringVar(&f.metrics, "metrics", "", "one more `address` for /metrics alone (default none)")
	flags.BoolVar(&f.noAuth, "no-auth", false, "serve everybody who can connect, also beyond loopback")
	flags.BoolVar(&f.noWatch, "no-watch", false, "take changed configuration files at SIGHUP only")
	flags.StringVar(&f.upstreamKey, "upstream-key", "", "`key` for the URLs given: ${VARIABLE}, file:PATH or the key itself")
	flags.StringVar(&f.strategy, "strategy", "", "`name` of the strategy (default predicted_wait)")
	flags.StringVar(&f.logLevel, "log-level", "", "`level` of detail: debug, info, warn or error (default info)")
	flags.StringVar(&f.logFormat, "log-format", "", "`form` of the lines: text or json (default text)")
}

// load reads the configuration that the flags and URLs describe, and validates it.
func (f *serveFlags) load(urls []string) (*config.Config, []config.Warning, error) {
	files, err := f.read(urls)
	if err != nil {
		return nil, nil, err
	}
	return f.build(urls, files)
}

// read checks what is given and reads the config files, if it is those.
func (f *serveFlags) read(urls []string) ([]config.File, error) {
	for _, arg := range urls {
		if isConfigFile(arg) {
			return nil, usageError{fmt.Errorf("%s is a configuration file, not a URL: evenkeel serve --config %s", arg, arg)}
		}
	}
	switch {
	case len(urls) > 0 && len(f.config) > 0:
		return nil, usageError{errors.New("give either URLs or --config, not both")}
	case len(urls) == 0 && len(f.config) == 0:
		return nil, usageError{errors.New("nothing to serve: give the URLs of your endpoints, or --config FILE; evenkeel demo needs neither")}
	case f.given("upstream-key") && f.upstreamKey == "":
		return nil, usageError{errors.New("--upstream-key is empty; write ${VARIABLE}, file:PATH or the key after it, or leave the flag out")}
	case strings.HasPrefix(f.upstreamKey, "-"): // not shown: it may be a key all the same
		return nil, usageError{errors.New("--upstream-key is followed by a flag instead of a key; write ${VARIABLE}, file:PATH or the key after it")}
	case len(f.config) > 0 && f.upstreamKey != "":
		return nil, usageError{errors.New("--upstream-key goes with URLs; in a configuration, write api_key at the endpoint")}
	}
	return config.ReadFiles(f.config...)
}

// build makes the configuration of files that were read, or of URLs, and validates it.
func (f *serveFlags) build(urls []string, files []config.File) (*config.Config, []config.Warning, error) {
	var c *config.Config
	var warnings []config.Warning
	var err error
	if len(files) > 0 {
		c, warnings, err = config.Load(files, os.LookupEnv)
	} else {
		key, told, keyErr := config.ResolveSecret("--upstream-key", f.upstreamKey)
		if keyErr != nil {
			return nil, nil, usageError{keyErr}
		}
		warnings = told
		c, err = config.FromURLs(urls, key)
	}
	if c == nil {
		return nil, warnings, err
	}
	f.override(c)
	return c, append(warnings, app.Warnings(c)...), c.Validate(app.CheckStrategy)
}

// isConfigFile reports whether an argument that should be a URL names a file.
func isConfigFile(arg string) bool {
	if strings.Contains(arg, "://") {
		return false
	}
	if strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml") {
		return true
	}
	info, err := os.Stat(arg)
	return err == nil && info.Mode().IsRegular()
}

func (f *serveFlags) override(c *config.Config) {
	for _, s := range []struct {
		flag, value string
		into        *string
	}{
		{"listen", f.listen, &c.Listen}, {"admin", f.admin, &c.Admin}, {"metrics", f.metrics, &c.Metrics},
		{"log-level", f.logLevel, &c.Log.Level}, {"log-format", f.logFormat, &c.Log.Format},
	} {
		if f.given(s.flag) {
			*s.into = s.value
		}
	}
	if f.given("strategy") {
		c.Strategy = config.Strategy{Name: f.strategy}
	}
	if f.noAuth {
		c.Auth = config.AuthNone
	}
	if f.noWatch {
		c.Watch = false
	}
}

func runServe(cmd *cobra.Command, f serveFlags, urls []string) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // until the process ends: one that comes early or late must not end it
	upgrade := notifyUpgrade()            // likewise
	heir, err := app.Inherit()
	if err != nil {
		return err
	}
	err = serveAfter(cmd, f, urls, heir, hangup, upgrade)
	heir.Tell(err) // if it did not come so far as to serve
	return err
}

// serveAfter serves in the place of the process before, if there was one.
func serveAfter(cmd *cobra.Command, f serveFlags, urls []string, heir *app.Heir, hangup, upgrade <-chan os.Signal) error {
	files, err := f.read(urls)
	if err != nil {
		return err
	}
	c, warnings, err := f.build(urls, files)
	if err != nil {
		return err
	}
	logger, lines := newLogger(cmd.ErrOrStderr(), c.Log)
	defer lines.Close()
	for _, w := range warnings {
		logger.Warn("configuration", "warning", w.String())
	}
	tuneMemory(os.Getenv, machine(), logger) // first, since what is built depends on it
	a, err := app.New(c, app.Options{Logger: logger, Lines: app.Lines{Out: lines, JSON: c.Log.Format == "json"}, Version: Version(), Heir: heir})
	if err != nil {
		return err
	}
	listeners, err := a.Listen()
	if err != nil {
		return err
	}
	r := &reloader{app: a, flags: f, urls: urls, logger: logger, files: files}
	r.seen.Tried(c, true)
	defer r.start(cmd.Context(), hangup)()
	defer handOverOn(cmd.Context(), upgrade, a, logger)()
	logger.Info("evenkeel starts", "version", Version(), "pid", os.Getpid(), "serving", a.Summary(), "strategy", c.Strategy.Name, limits(a))
	drain, stop := cutWhenAskedAgain(cmd.Context(), a, logger)
	defer stop()
	if err := a.Run(drain, listeners); err != nil {
		return err
	}
	logger.Info("evenkeel ends")
	return nil
}

// limits are the bounds in effect, for a line of the log.
func limits(a *app.App) slog.Attr {
	connections, bodies := a.Limits()
	return slog.GroupAttrs("", slog.Int64("connections_max", connections), slog.Int64("body_memory_mib", bodies>>20)) // inlined
}

// cutWhenAskedAgain returns a context that ends with ctx: then the drain begins. From there on one more signal to
// stop ends the drain, and another one the process. The returned function ends that and waits for it.
func cutWhenAskedAgain(ctx context.Context, a *app.App, logger *slog.Logger) (context.Context, func()) {
	signals := make(chan os.Signal, 1)
	drain, begin := context.WithCancel(context.WithoutCancel(ctx))
	over, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with over
		defer close(done)
		select {
		case <-ctx.Done():
		case <-over:
			return
		}
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM) // before the drain, so that it can always be ended
		begin()
		for n := 0; ; n++ {
			select {
			case <-over:
				return
			case s := <-signals:
				if n > 0 {
					os.Exit(exitFailure)
				}
				logger.Warn("asked to stop again: the drain ends here", "signal", s)
				a.Cut()
			}
		}
	}()
	return drain, func() {
		signal.Stop(signals)
		close(over)
		<-done
		begin()
	}
}
