package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"evenkeel/internal/config"
	"evenkeel/internal/litellm"
)

func newImport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Turn another gateway's configuration into one of ours",
		Long: `Import reads the configuration of another gateway and writes one for evenkeel serve. What does not carry over,
and what means something else here, is listed.`,
		Example: "  evenkeel import litellm config.yaml",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{unknownCommand(cmd, args[0])}
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newImportLiteLLM())
	return cmd
}

// importFlags are the flags of evenkeel import.
type importFlags struct {
	output        string
	force, strict bool
}

func newImportLiteLLM() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "litellm FILE",
		Short: "Turn the configuration of a LiteLLM proxy into one of ours",
		Long: `Reads the config.yaml of a LiteLLM proxy and writes a configuration for evenkeel serve to standard output, or to a
file. Models, endpoints, keys, weights, limits, prices, fallbacks, retries, timeouts and cooldowns carry over.

The report on standard error has four parts, each line with its place in the file: what did not carry over, and why;
what is in the output and means something else here; what is to be done before it serves; and what needs no counterpart.

The output holds no secret: os.environ/NAME becomes ${NAME}, and a key in plain text becomes the name of a variable for
you to set, which the report names. Nothing is connected, and the same file gives the same output every time.

Exits 0 if a configuration was written, 1 with --strict if anything did not carry over, and 2 if FILE cannot be read
as one of LiteLLM or the output is there already. docs/import-litellm.md has the table of all settings.`,
		Example: `  evenkeel import litellm config.yaml                    look at both
  evenkeel import litellm config.yaml -o evenkeel.yaml   write it; then: evenkeel check evenkeel.yaml
  evenkeel import litellm --strict config.yaml           for scripts: fail if anything was left out`,
		Args: func(_ *cobra.Command, args []string) error {
			switch len(args) {
			case 1:
				return nil
			case 0:
				return usageError{errors.New("name the file to read: evenkeel import litellm config.yaml")}
			default:
				return usageError{errors.New("one file at a time; put the files that include names together first")}
			}
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.litellm(cmd, args[0]) },
	}
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "`file` to write, instead of standard output")
	cmd.Flags().BoolVar(&f.force, "force", false, "write over the output if it is there")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "exit 1 if anything did not carry over")
	return cmd
}

func (f importFlags) litellm(cmd *cobra.Command, input string) error {
	if f.force && f.output == "" {
		return usageError{errors.New("--force goes with -o FILE")}
	}
	files, err := config.ReadFiles(input)
	if err != nil {
		return usageError{err}
	}
	tree, err := config.ReadTree(files[0])
	if err != nil {
		return usageError{err}
	}
	result, err := litellm.Convert(tree)
	if err != nil {
		return usageError{fmt.Errorf("%s %w", input, err)}
	}
	if f.output == "" {
		_, err = cmd.OutOrStdout().Write(result.Config)
	} else {
		err = f.write(input, result.Config)
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(cmd.ErrOrStderr(), result.Report.Text(input)); err != nil {
		return err
	}
	if f.strict && len(result.Report.Left) > 0 {
		return quietError{errors.New("not everything carried over")}
	}
	return nil
}

// write writes the output file: a new one, or with --force over any but the input.
func (f importFlags) write(input string, text []byte) error {
	how := os.O_CREATE | os.O_WRONLY | os.O_EXCL
	if f.force {
		if there, err := os.Stat(f.output); err == nil {
			if from, err := os.Stat(input); err == nil && os.SameFile(there, from) {
				return usageError{fmt.Errorf("-o %s is the file that is read; choose another name", f.output)}
			}
		}
		how = os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	}
	file, err := os.OpenFile(f.output, how, 0o644)
	if errors.Is(err, os.ErrExist) {
		return usageError{fmt.Errorf("%s is there already; choose another name, or write over it with --force", f.output)}
	}
	if err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}
