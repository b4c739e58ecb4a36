package app

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"evenkeel/internal/config"
	"evenkeel/internal/llm"
)

// prefixKey returns the key that prompts are hashed with where they are not recorded. It is made of what endpoints there are and of
// their credentials, so that balancers which have the same come to the same order of deployments for a conversation without telling each
// other, and so that nobody else has it who does not know them all.
func prefixKey(c *config.Config) *llm.PrefixKey {
	var parts [][3]string
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		parts = append(parts, [3]string{e.Name, e.URL, e.APIKey.Reveal()})
	}
	slices.SortFunc(parts, func(a, b [3]string) int { return strings.Compare(a[0], b[0]) })
	text, _ := json.Marshal(parts) // cannot fail; keeps names apart
	return llm.NewPrefixKey(sha256.Sum256(append([]byte("evenkeel prefixes"), text...)))
}
