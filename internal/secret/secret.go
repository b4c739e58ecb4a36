// Package secret holds text that must never be printed: upstream keys and tokens.
package secret

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

// Redacted is what every String prints as, whatever the verb or encoding.
const Redacted = "[redacted]"

// String is a secret that prints as Redacted with every verb of fmt, in JSON, YAML, text encodings and slog.
// The zero value is the empty secret. It is immutable and safe for concurrent use. Compare with Equal: the
// operator == compares identities.
type String struct {
	// A pointer, since fmt cannot call the methods of a value in an unexported field of another struct: there it prints
	// this struct by reflection, and of a pointer at that depth it prints the address only.
	text *string
}

// New returns text as a secret.
func New(text string) String {
	if text == "" {
		return String{}
	}
	return String{text: &text}
}

// Reveal returns the text itself. Call it only where the secret goes on the wire.
func (s String) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether the secret is empty.
func (s String) IsZero() bool { return s.text == nil }

// Equal reports whether both hold the same text, in time that depends on the length only.
func (s String) Equal(other String) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// String implements fmt.Stringer; it is also what a panic with a secret prints.
func (String) String() string { return Redacted }

// Format implements fmt.Formatter for all verbs and flags.
func (String) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, Redacted) }

// MarshalText implements encoding.TextMarshaler, and with it JSON values and map keys.
func (String) MarshalText() ([]byte, error) { return []byte(Redacted), nil }

// MarshalYAML implements the marshaler of the YAML libraries.
func (String) MarshalYAML() (any, error) { return Redacted, nil }

// LogValue implements slog.LogValuer.
func (String) LogValue() slog.Value { return slog.StringValue(Redacted) }
