package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"evenkeel/internal/drill"
)

type drillFlags struct {
	rows    []string
	all     bool
	jobs    int
	json    bool
	list    bool
	config  []string
	program string
}

func newDrill() *cobra.Command {
	var f drillFlags
	cmd := &cobra.Command{
		Use:   "drill [flags]",
		Short: "Break things around it, and see what holds",
		Long: `Drill starts this program with mock engines behind it on free ports of the loopback interface, breaks one thing
after the other (engines that refuse, reset, stall, lie, slow down or die, clients that leave, networks that
lose packets, reloads, shutdowns, overload) and checks what is promised for each. It needs no keys and no
engines, and takes about two minutes; --all adds the rows that take long.

With --config the rows that apply run against your own configuration, with mock engines in place of its
endpoints: its keys, certificates and addresses are not used.

The exit code is 0 if every row passed. A row that cannot be run here has not passed.`,
		Example: `  evenkeel drill
  evenkeel drill --row R7,R12
  evenkeel drill --config evenkeel.yaml
  evenkeel drill --json > drill.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDrill(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.rows, "row", nil, "`IDs` of the rows to run, such as R7,R12 (default all that are fast)")
	flags.BoolVar(&f.all, "all", false, "run the long rows too, and the long form of others: about an hour")
	flags.IntVar(&f.jobs, "jobs", 3, "`number` of rows that run at one time; those that measure time closely run alone")
	flags.BoolVar(&f.json, "json", false, "write the results as JSON; progress goes to stderr")
	flags.BoolVar(&f.list, "list", false, "list the rows, and run none")
	flags.StringArrayVarP(&f.config, "config", "c", nil, "configuration `file` to run the rows against; may be given several times")
	flags.StringVar(&f.program, "program", "", "`path` of the evenkeel to test (default this one)")
	return cmd
}

// errDrillFailed is the verdict of a drill whose results have been printed.
var errDrillFailed = quietError{errors.New("a row did not pass")}

func runDrill(cmd *cobra.Command, f drillFlags) error {
	out, progress := cmd.OutOrStdout(), cmd.OutOrStdout()
	if f.json {
		progress = cmd.ErrOrStderr()
	}
	if f.jobs < 1 {
		return usageError{fmt.Errorf("--jobs must be at least 1, is %d", f.jobs)}
	}
	o := drill.Options{Program: f.program, Rows: f.rows, Long: f.all, Jobs: f.jobs, Config: f.config}
	rows, err := drill.Select(o)
	if err != nil {
		return usageError{err}
	}
	if f.list {
		for _, r := range rows {
			fmt.Fprintf(out, "%-4s %s: %s\n", r.ID, r.Fault, r.Promise)
		}
		return nil
	}
	if o.Program == "" {
		if o.Program, err = os.Executable(); err != nil {
			return err
		}
	}
	o.Done = func(r drill.Result) { writeResult(progress, r) }
	results, err := drill.Run(cmd.Context(), o)
	if err != nil {
		return err
	}
	return judgeDrill(cmd.Context(), out, progress, results, f.json)
}

// writeResult writes the line of a row, and below it why it did not pass.
func writeResult(w io.Writer, r drill.Result) {
	verdict := "pass"
	if !r.Passed {
		verdict = "FAIL"
	}
	fmt.Fprintf(w, "%-4s %s %6.1f s  %s\n", r.ID, verdict, r.Seconds, r.Fault)
	if r.Promise != "" {
		fmt.Fprintf(w, "                    promised: %s\n", r.Promise)
	}
	if r.Measured != "" {
		fmt.Fprintf(w, "                    measured: %s\n", r.Measured)
	}
	if !r.Passed {
		fmt.Fprintf(w, "                    %s\n", strings.ReplaceAll(r.Problem, "\n", "\n                    "))
	}
}

func judgeDrill(ctx context.Context, out, progress io.Writer, results []drill.Result, asJSON bool) error {
	var failed []string
	for _, r := range results {
		if !r.Passed {
			failed = append(failed, r.ID)
		}
	}
	if asJSON {
		text, err := json.MarshalIndent(results, "", "  ")
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s\n", text); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(progress, "\nInterrupted.")
		return errDrillFailed
	case len(results) == 0:
		return errors.New("no row applies to this configuration: its models need more deployments")
	case len(failed) > 0:
		fmt.Fprintf(progress, "\n%d of %s did not pass: %s\n", len(failed), counted(len(results), "row"), strings.Join(failed, ", "))
		return errDrillFailed
	}
	fmt.Fprintf(progress, "\n%s passed.\n", counted(len(results), "row"))
	return nil
}
