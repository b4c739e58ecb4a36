package secret

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

const canary = "sk-CANARY-0123456789"

// leaks reports whether out holds the canary as text, as hexadecimal, or as a list of bytes.
func leaks(out string) bool {
	for _, form := range []string{
		canary,
		fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary), fmt.Sprintf("% x", canary), fmt.Sprintf("%#x", canary),
		strings.Trim(fmt.Sprintf("%v", []byte(canary)), "[]"),
	} {
		if strings.Contains(out, form) {
			return true
		}
	}
	return false
}

type public struct {
	Name string
	Key  String
}

type private struct {
	name string
	key  String
	ptr  *String
	list []String
	any  any
}

// holders are values with the secret at every kind of place that fmt and the encoders reach by different ways.
func holders() map[string]any {
	key := New(canary)
	return map[string]any{
		"value":           key,
		"pointer":         &key,
		"struct":          public{"a", key},
		"struct pointer":  &public{"a", key},
		"unexported":      private{"a", key, &key, []String{key}, key},
		"unexported deep": &struct{ p private }{private{"a", key, &key, []String{key}, &key}},
		"slice":           []String{key},
		"array":           [1]String{key},
		"map value":       map[string]String{"a": key},
		"map key":         map[String]int{key: 1},
		"interface":       []any{key, &key},
		"error":           fmt.Errorf("dial with %v, %s, %q: %w", key, key, key, errors.New("refused")),
		"embedded":        struct{ String }{key},
	}
}

func TestNoVerbPrintsTheSecret(t *testing.T) {
	verbs := "vTtbcoOqxXUeEfFgGspdw"
	flags := []string{"", "+", "#", "-", " ", "0", "# ", "+#", "40", ".3", "-60.60"}
	for name, value := range holders() {
		for _, verb := range verbs {
			for _, flag := range flags {
				format := "%" + flag + string(verb)
				if out := fmt.Sprintf(format, value); leaks(out) {
					t.Errorf("%s of %s prints %s", format, name, out)
				}
			}
		}
		for _, out := range []string{fmt.Sprint(value), fmt.Sprintln(value)} {
			if leaks(out) {
				t.Errorf("Print of %s gives %s", name, out)
			}
		}
	}
}

func TestVerbsPrintRedacted(t *testing.T) {
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%40s", "%.3s"} {
		if got := fmt.Sprintf(format, New(canary)); got != Redacted {
			t.Errorf("%s prints %q, want %q", format, got, Redacted)
		}
	}
	if got, want := fmt.Sprintf("%+v", public{"a", New(canary)}), "{Name:a Key:[redacted]}"; got != want {
		t.Errorf("in a struct it prints %q, want %q", got, want)
	}
}

func TestEncodersRedact(t *testing.T) {
	for name, value := range holders() {
		if out, err := json.Marshal(value); leaks(string(out)) || err != nil && leaks(err.Error()) {
			t.Errorf("JSON of %s: %s %v", name, out, err)
		}
		for _, handler := range []func(*bytes.Buffer) slog.Handler{
			func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
			func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var buffer bytes.Buffer
			slog.New(handler(&buffer)).Info("message", "key", value, slog.Group("group", "key", value))
			if buffer.Len() == 0 || leaks(buffer.String()) {
				t.Errorf("slog of %s: %s", name, buffer.String())
			}
		}
	}
	out, err := json.Marshal(public{"a", New(canary)})
	if want := `{"Name":"a","Key":"[redacted]"}`; err != nil || string(out) != want {
		t.Errorf("JSON is %s, %v, want %s", out, err, want)
	}
	out, err = yaml.Dump(public{"a", New(canary)})
	if want := "name: a\nkey: '[redacted]'\n"; err != nil || string(out) != want {
		t.Errorf("YAML is %q, %v, want %q", out, err, want)
	}
}

func TestPanicPrintsRedacted(t *testing.T) {
	defer func() {
		// The run-time prints a recovered value through its String method, as this does.
		if out := recover().(fmt.Stringer).String(); out != Redacted {
			t.Errorf("a panic prints %q", out)
		}
	}()
	panic(New(canary))
}

func TestRevealZeroEqual(t *testing.T) {
	if got := New(canary).Reveal(); got != canary {
		t.Errorf("Reveal is %q", got)
	}
	var zero String
	if !zero.IsZero() || zero.Reveal() != "" || !New("").IsZero() || New(canary).IsZero() {
		t.Error("IsZero or Reveal of the zero value is wrong")
	}
	if !New("a").Equal(New("a")) || New("a").Equal(New("b")) || New("a").Equal(zero) || !zero.Equal(New("")) {
		t.Error("Equal is wrong")
	}
}
