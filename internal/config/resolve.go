package config

import (
	"os"

	"go.yaml.in/yaml/v4"

	"evenkeel/internal/secret"
)

// ResolveSecret reads the secret in a flag, as in --upstream-key: ${NAME}, file:PATH (relative to the working directory)
// or, with a warning, the secret itself. Empty text is no secret. Warnings and the error begin with the flag, and never
// hold the secret.
func ResolveSecret(flag, text string) (secret.String, []Warning, error) {
	var s secret.String
	if text == "" {
		return s, nil, nil
	}
	d := newDecoder(sources{env: os.LookupEnv, read: func(dir, name string) (string, error) {
		return readSecretOf("the working directory", dir, name)
	}})
	// Without a file, the directory where relative paths start is "."
	d.secret(&yaml.Node{Kind: yaml.ScalarNode, Value: text}, &s, (*path)(nil).key(flag))
	return s, d.warnings, d.err()
}
