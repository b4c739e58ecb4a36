package cli

import (
	"errors"
	"fmt"

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
column, and exits 1 if there is anything. Nothing is connected.`,
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
			return err
		},
	}
	cmd.Flags().StringArrayVarP(&files, "config", "c", nil, "configuration `file`; may be given several times")
	return cmd
}
