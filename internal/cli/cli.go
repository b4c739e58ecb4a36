// Package cli is the command line: one file per command.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"evenkeel/internal/config"
)

// version is set by the linker; see the Makefile.
var version = ""

// Version returns what this binary calls itself.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// usageError is a mistake in how a command was called.
type usageError struct{ error }

// quietError ends a command with a failure that it has already reported.
type quietError struct{ error }

// Main runs the command line and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the signal after the first one has its usual effect, unless the command listens to it
	root := newRoot()
	root.SetArgs(args)
	out := &watched{Writer: stdout}
	root.SetOut(out)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if lost := out.lost.Load(); lost != nil && !errors.Is(err, *lost) {
		fmt.Fprintf(stderr, "evenkeel: what it had to say is not whole: %v\n", *lost)
		err = cmp.Or(err, error(quietError{*lost}))
	}
	var usage usageError
	var quiet quietError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &quiet):
		return exitFailure
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "evenkeel: %v\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "evenkeel: %v\n", err)
	return exitFailure
}

// watched is standard output. What a command prints is its result: if some of it is lost, that is a failure, whether the command looks
// or not.
type watched struct {
	io.Writer
	lost atomic.Pointer[error] // the first error
}

// Write implements io.Writer.
func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		w.lost.CompareAndSwap(nil, &err)
	}
	return n, err
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "evenkeel",
		Short: "The load balancer for LLM inference",
		Long: `Evenkeel stands between applications and model endpoints. For every request it decides which endpoint serves
it, forwards the bytes untouched, streams without buffering, fails over where that is safe, and can explain
every decision afterwards.`,
		Example: `  evenkeel demo                                        see it work, no keys or engines needed
  evenkeel serve http://gpu-1:8000 http://gpu-2:8000   balance two engines
  evenkeel serve --config evenkeel.yaml                serve a configuration
  evenkeel explain last                                why did the last request go where it went?`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{unknownCommand(cmd, args[0])}
			}
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(flagError)
	root.Version = Version()
	root.SetVersionTemplate(versionLine())
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newDemo(), newServe(), newCheck(), newImport(), newExplain(), newSimulate(), newDrill(), newMock(), newVersion())
	return root
}

// flagForms says what flags take, by the type that they have for pflag.
var flagForms = map[string]string{
	"int":          "a whole number such as 200",
	"uint64":       "a whole number such as 200",
	"float64":      "a number such as 0.5",
	"float64Slice": "numbers such as 2.5,1.25,10",
	"duration":     "a duration with its unit such as 15s or 800ms",
	"bool":         "true or false",
}

// flagError words what is wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		flag := bad.GetFlag()
		if form := flagForms[flag.Value.Type()]; errors.Is(err, strconv.ErrRange) {
			err = fmt.Errorf("--%s: %q is too large", flag.Name, bad.GetValue())
		} else if form != "" {
			err = fmt.Errorf("--%s must be %s, is %q", flag.Name, form, bad.GetValue())
		}
	}
	return usageError{fmt.Errorf("%w; %s --help shows the flags", err, cmd.CommandPath())}
}

func unknownCommand(parent *cobra.Command, name string) error {
	var names []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return fmt.Errorf("there is no command %q%s (%s --help says what each does)", name, config.DidYouMean(name, names), parent.CommandPath())
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Example: "  evenkeel version", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}

func versionLine() string {
	return fmt.Sprintf("evenkeel %s %s %s/%s\n", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// counted writes a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args)}
	}
	return nil
}
