package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newExplain() *cobra.Command {
	var admin string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [--admin-url URL] ID|last",
		Short: "Tell why a recent request went where it went",
		Long: `Explain asks a running balancer for the record of one recent request and prints its story: who could have
served it, who was cut and why, what was chosen by which numbers, and what came of each attempt.

The ID is in the response header x-evenkeel-id of every request for a model, and in the log.
"last" is the request that ended last.`,
		Example: `  evenkeel explain last
  evenkeel explain ek-3f2a9c0d5b7e1a64c8d0f2b1
  evenkeel explain --json --admin-url 127.0.0.1:9081 last`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("explain takes one ID, or the word last; got %d arguments", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := fetchExplain(cmd.Context(), admin, args[0], asJSON)
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().StringVar(&admin, "admin-url", "http://127.0.0.1:8081", "`URL` of the balancer's admin listener")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the whole record as JSON")
	return cmd
}

// fetchExplain gets one record from the admin listener.
func fetchExplain(ctx context.Context, admin, id string, asJSON bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	given := admin
	if !strings.Contains(admin, "://") {
		admin = "http://" + admin
	}
	target := strings.TrimSuffix(admin, "/") + "/explain/" + url.PathEscape(id)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return "", usageError{fmt.Errorf("--admin-url %q: %w", given, err)}
	}
	req.Header.Set("Accept", "text/plain")
	if asJSON {
		req.Header.Set("Accept", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("no balancer answers at %s: %w; is `evenkeel serve` running, and is this its --admin address?", admin, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return "", fmt.Errorf("reading the answer of %s: %w", target, err)
	}
	if res.StatusCode != http.StatusOK {
		return "", refusal(admin, res, body)
	}
	return string(body), nil
}

// refusal words an answer that is not the record.
func refusal(admin string, res *http.Response, body []byte) error {
	var told struct{ Error string }
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case kind == "text/plain":
		return errors.New(strings.TrimSpace(string(body)))
	case json.Unmarshal(body, &told) == nil && told.Error != "":
		return errors.New(told.Error)
	}
	return fmt.Errorf("%s answers %s, but not as a balancer's admin listener does; is it the address given as --admin?", admin, res.Status)
}
