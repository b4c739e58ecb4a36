package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

func newExplain() *cobra.Command {
	var admin adminClient
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [--admin-url URL] ID|last",
		Short: "Tell why a recent request went where it went",
		Long: `Explain asks a running balancer for the record of one recent request and prints its story: who could have
served it, who was cut and why, what was chosen by which numbers, and what came of each attempt.

The ID is in the response header x-evenkeel-id of every request for a model, and in the log.
"last" is the request that ended last.

Where the admin listener speaks TLS (admin_tls), the URL begins with https://. --cacert names the authority that signed
its certificate, unless the system knows it; --cert and --key are your own certificate, if it asks for one.`,
		Example: `  evenkeel explain last
  evenkeel explain ek-3f2a9c0d5b7e1a64c8d0f2b1
  evenkeel explain --json --admin-url 127.0.0.1:9081 last
  evenkeel explain --admin-url https://lb:8081 --cacert ca.pem --cert me.pem --key me.key last`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("explain takes one ID, or the word last; got %d arguments", len(args))}
			}
			if strings.TrimSpace(args[0]) == "" {
				return usageError{errors.New("the ID is empty; write the one in the response header x-evenkeel-id or in the log, or the word last for the request that ended last")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := admin.explain(cmd.Context(), args[0], asJSON)
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&admin.url, "admin-url", "127.0.0.1:8081", "`URL` of the balancer's admin listener; without http:// or https:// the flags below decide")
	flags.StringVar(&admin.files.CA, "cacert", "", "`file` of the authorities that may sign its certificate (PEM; default the system's)")
	flags.StringVar(&admin.files.Cert, "cert", "", "`file` of your own certificate (PEM)")
	flags.StringVar(&admin.files.Key, "key", "", "`file` of its private key (PEM)")
	flags.BoolVar(&asJSON, "json", false, "print the whole record as JSON")
	return cmd
}
