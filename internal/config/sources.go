package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"evenkeel/internal/secret"
)

// sources is where values outside of the files come from.
type sources struct {
	env  func(name string) (string, bool)
	read func(dir, name string) (string, error) // a secret's file, relative to the directory of the config file
	pem  reader                                 // a file of certificates or keys; nil checks none
	file func(name string) ([]byte, error)      // that of endpoints; nil reads none
}

const (
	filePrefix = "file:"
	bearer     = "Bearer "
	// maxSecret bounds a secret's file, in bytes.
	maxSecret = 64 << 10
)

// namePattern matches the name of an environment variable.
const namePattern = `[A-Za-z_][A-Za-z0-9_]*`

var (
	reference = regexp.MustCompile(`\$\{([^{}]*)\}`)
	envName   = regexp.MustCompile(`^` + namePattern + `$`)
	bareName  = regexp.MustCompile(`^\$` + namePattern + `$`)
)

// expand replaces each ${NAME} of text. It reports a problem and false for a variable that is unset or empty.
func (d *decoder) expand(n *yaml.Node, at *path, text string) (string, bool) {
	good := true
	out := reference.ReplaceAllStringFunc(text, func(ref string) string {
		name := ref[2 : len(ref)-1]
		if !envName.MatchString(name) {
			d.fail(n, at, "a reference must be ${NAME} with letters, digits and _ only")
			good = false
			return ""
		}
		value, set := d.sources.env(name)
		if value == "" {
			state := "is not set"
			if set {
				state = "is empty"
			}
			d.fail(n, at, "environment variable %s %s; set it before starting", name, state)
			good = false
		}
		return value
	})
	if good && strings.Contains(reference.ReplaceAllString(text, ""), "${") {
		d.fail(n, at, "a reference to the environment is not closed; write ${NAME}")
		return "", false
	}
	return out, good
}

// secret resolves ${NAME} and file:PATH. It never puts the text into a message.
func (d *decoder) secret(n *yaml.Node, into *secret.String, at *path) {
	if n.Kind != yaml.ScalarNode {
		d.fail(n, at, "must be ${NAME} or file:PATH, is %s", describe(n))
		return
	}
	text := n.Value
	var ok bool
	switch name, isFile := strings.CutPrefix(text, filePrefix); {
	case isFile:
		var err error
		if text, err = d.sources.read(filepath.Dir(d.file.file), name); err != nil {
			d.fail(n, at, "%s", err)
			return
		}
	case bareName.MatchString(text):
		d.fail(n, at, "a reference to the environment needs braces: ${NAME}")
		return
	case strings.Contains(text, "${"):
		if text, ok = d.expand(n, at, text); !ok {
			return
		}
	default:
		d.warn(n, at, "is a secret in plain text; write ${NAME} for an environment variable, or file:PATH")
	}
	switch {
	case text == "":
		d.fail(n, at, "is empty; write ${NAME} or file:PATH, or remove the key")
	case len(text) >= len(bearer) && strings.EqualFold(text[:len(bearer)], bearer):
		d.fail(n, at, "begins with the word Bearer, which is added where it belongs; write the key alone")
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
		d.fail(n, at, "the secret holds a line break or another control character, which no header can carry")
	default:
		*into = secret.New(text)
	}
}

// url expands and checks an endpoint's address; messages show what is written, not what it expands to.
func (d *decoder) url(n *yaml.Node, v reflect.Value, at *path) {
	text, ok := d.expand(n, at, n.Value)
	if !ok {
		return
	}
	canonical, err := canonicalURL(text)
	if err != nil {
		d.fail(n, at, "%s %s", showURL(n.Value), err)
		return
	}
	v.SetString(canonical)
}

// proxy checks the address of an egress proxy.
func (d *decoder) proxy(n *yaml.Node, v reflect.Value, at *path) {
	canonical, err := canonicalProxy(n.Value)
	if err != nil {
		d.fail(n, at, "%s %s", showURL(n.Value), err)
		return
	}
	v.SetString(canonical)
}

// filePath resolves the path of a file: a relative one starts at the directory of the config file.
func (d *decoder) filePath(n *yaml.Node, v reflect.Value, at *path) {
	name := n.Value
	switch {
	case name == "":
		d.fail(n, at, "is empty; write the path of a file, or remove the key")
	case strings.HasPrefix(name, filePrefix):
		d.fail(n, at, "takes the path alone, without %s in front", filePrefix)
	case strings.Contains(name, "-----BEGIN"):
		d.fail(n, at, "takes the path of a file, not its content")
	case filepath.IsAbs(name):
		v.SetString(name)
	default:
		v.SetString(filepath.Join(filepath.Dir(d.file.file), name))
	}
}

// readSecret reads the file of a secret, without the line break at its end. A relative name belongs to dir and cannot
// leave it, neither with .. nor through a symbolic link; an absolute one is taken as it is.
func readSecret(dir, name string) (string, error) {
	return readSecretOf("the directory of its config file", dir, name)
}

// readSecretOf is readSecret, with what messages call dir.
func readSecretOf(called, dir, name string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", fmt.Errorf("secret file %s: %s", show(name), why)
	}
	var file *os.File
	var err error
	switch {
	case name == "":
		return "", errors.New("file: needs a path, as in file:openai.key")
	case filepath.IsAbs(name):
		if info, statErr := os.Stat(name); statErr == nil && !info.Mode().IsRegular() {
			return refuse("is not a regular file") // opening a pipe would wait for its writer
		}
		file, err = os.Open(name)
	case !filepath.IsLocal(name):
		return refuse("a relative path cannot leave " + called + "; write an absolute path")
	default:
		file, err = openBelow(dir, name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse("does not exist; a relative path starts at " + called)
	case errors.Is(err, fs.ErrPermission):
		return refuse("permission denied")
	case err != nil:
		return refuse(reason(err))
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	text := strings.TrimRight(string(data), "\r\n")
	switch {
	case err != nil:
		return refuse(reason(err))
	case len(data) > maxSecret:
		return refuse(fmt.Sprintf("is larger than %d KiB", maxSecret>>10))
	case text == "":
		return refuse("is empty")
	}
	return text, nil
}

func openBelow(dir, name string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	return root.Open(name)
}

// reason is the bare cause of a file error, without the path that the caller names.
func reason(err error) string {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err.Error()
	}
	return err.Error()
}
