package config

import (
	"os"

	"go.yaml.in/yaml/v4"

	"evenkeel/internal/secret"
)

// ResolveSecret reads a secret given outside of any file, as a flag: ${NAME}, file:PATH (relative to the working
// directory) or the secret itself. Empty text is no secret. The error never holds the secret.
func ResolveSecret(text string) (secret.String, error) {
	var s secret.String
	if text == "" {
		return s, nil
	}
	d := newDecoder(sources{env: os.LookupEnv, read: readSecret})
	d.file = place{file: "flag"} // its directory, ".", is where relative paths start
	d.secret(&yaml.Node{Kind: yaml.ScalarNode, Value: text}, &s, nil)
	for i := range d.problems {
		d.problems[i].File = ""
	}
	return s, d.err()
}
