package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"evenkeel/internal/app"
	"evenkeel/internal/config"
)

func newCheck() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "check [--config] FILE...",
		Short: "Check a configuration without serving it",
		Long: `Check reads configuration files as serve would, reports everything that is wrong with its file, line and
column, and exits 1 if there is anything. Nothing is connected.
Where health_checks has a probe_prompt, it says what the probes cost in a day at most.`,
		Example: `  evenkeel check evenkeel.yaml
  evenkeel check --config endpoints.yaml --config policy.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			files = append(files, args...)
			if len(files) == 0 {
				return usageError{errors.New("name the configuration file to check: evenkeel check evenkeel.yaml")}
			}
			c, warnings, err := config.LoadFiles(files...)
			if c != nil {
				warnings = append(warnings, app.Warnings(c)...)
			}
			for _, w := range warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
			}
			if c != nil {
				err = c.Validate(app.CheckStrategy)
			}
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), err)
				return quietError{err}
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: %s, %s, strategy %s, %s\n",
				counted(len(c.Endpoints), "endpoint"), counted(len(c.Models), "model"), c.Strategy.Name, counted(len(warnings), "warning"))
			if err == nil {
				err = printProbeCosts(cmd.OutOrStdout(), c)
			}
			return err
		},
	}
	cmd.Flags().StringArrayVarP(&files, "config", "c", nil, "configuration `file`; may be given several times")
	return cmd
}

// mostCosts bounds the lines about what probes cost.
const mostCosts = 20

// printProbeCosts says what probes cost in a day, and how that comes about.
func printProbeCosts(w io.Writer, c *config.Config) error {
	costs := app.ProbeCosts(c)
	if len(costs) == 0 {
		return nil
	}
	var text strings.Builder
	dollars, tokens := 0.0, 0
	for _, p := range costs {
		d, priced := p.Dollars()
		if dollars += d; !priced {
			tokens += p.Tokens()
		}
	}
	var sums []string
	if dollars > 0 {
		sums = append(sums, fmt.Sprintf("%.2f $", dollars))
	}
	if tokens > 0 || dollars == 0 {
		sums = append(sums, counted(tokens, "token"))
	}
	fmt.Fprintf(&text, "probes cost at most %s a day: probes × tokens of the prompt and of the answer\n", strings.Join(sums, " and "))
	for i, p := range costs {
		if i == mostCosts {
			fmt.Fprintf(&text, "  and %d more\n", len(costs)-mostCosts)
			break
		}
		fmt.Fprintf(&text, "  %s\n", p)
	}
	_, err := io.WriteString(w, text.String())
	return err
}
