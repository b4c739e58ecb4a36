package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"go.yaml.in/yaml/v4"
)

// Sum tells contents of files apart, but for line breaks at their end. The zero value is that of no file: one that is not
// there, cannot be read, or is not a regular file, such as a pipe.
type Sum [sha256.Size]byte

func sum(data []byte) Sum { return sha256.Sum256(bytes.TrimRight(data, "\r\n")) }

// Files returns the files that a configuration was read from, with what they held: the config files, secrets, and
// EndpointsFile; not those of certificates. The map is the caller's. Empty if there is none.
func (c *Config) Files() map[string]Sum {
	if c.reads == nil {
		return map[string]Sum{}
	}
	return maps.Clone(c.reads.files)
}

// reads is behind a pointer, which prints as an address: sums of secrets are nobody's business.
type reads struct{ files map[string]Sum }

// Look is one look at a file. It is a value.
type Look struct {
	Sum  Sum
	info fs.FileInfo // nil = none
}

// LookAt looks at a file. Its content is not read again if it is as at the last look; the zero value is none.
func LookAt(name string, last Look) Look {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return Look{}
	}
	if last.info != nil && os.SameFile(last.info, info) && last.info.ModTime().Equal(info.ModTime()) && last.info.Size() == info.Size() {
		return last
	}
	data, err := readFile(name)
	if err != nil {
		return Look{}
	}
	now := Look{Sum: sum(data), info: info}
	if time.Since(info.ModTime()) < clockGrain {
		now.info = nil // it may change once more within the same tick of the file system's clock
	}
	return now
}

// clockGrain is what two changes of a file may be apart and have one modification time.
const clockGrain = 100 * time.Millisecond

// noting returns s with reads that note what was read.
func (s sources) noting(reads map[string]Sum) sources {
	if read := s.read; read != nil {
		s.read = func(dir, name string) (string, error) {
			text, err := read(dir, name)
			at := name
			if !filepath.IsAbs(name) {
				at = filepath.Join(dir, name)
			}
			reads[at] = Sum{}
			if err == nil {
				reads[at] = sum([]byte(text))
			}
			return text, err
		}
	}
	if file := s.file; file != nil {
		s.file = func(name string) ([]byte, error) {
			data, err := file(name)
			reads[name] = Sum{}
			if err == nil {
				reads[name] = sum(data)
			}
			return data, err
		}
	}
	return s
}

// endpointsFile is all that an EndpointsFile may hold.
type endpointsFile struct {
	Endpoints []Endpoint `yaml:"endpoints,named"`
}

// endpoints decodes the file that the configuration names for them, which is the last of all.
func (d *decoder) endpoints(c *Config, order int) {
	if c.EndpointsFile == "" || d.sources.file == nil {
		return
	}
	data, err := d.sources.file(c.EndpointsFile)
	setting := (*path)(nil).key("endpoints_file")
	if err != nil {
		text := reason(err)
		if errors.Is(err, fs.ErrNotExist) {
			text = "does not exist; a relative path starts at the directory of the config file"
		}
		d.problem(d.places[setting.String()], setting, "%s %s", show(c.EndpointsFile), text)
		return
	}
	d.file = place{file: c.EndpointsFile, order: order}
	d.budget, d.full = nodeBudget(len(data)), false
	before := len(d.problems)
	root := d.parse(data)
	if root == nil {
		if len(d.problems) == before {
			d.problem(d.file, nil, "is empty; write endpoints: {} if it holds none for now")
		}
		return
	}
	if root, ok := d.enter(root, nil, 0); ok {
		if root.Kind == yaml.MappingNode && !holds(root, "endpoints") {
			d.fail(root, nil, "has no endpoints; write endpoints: {} if it holds none for now")
			return
		}
		f := endpointsFile{c.Endpoints}
		d.structure(root, reflect.ValueOf(&f).Elem(), nil, 0)
		c.Endpoints = f.Endpoints
	}
}

// holds reports whether a map has a value at key.
func holds(n *yaml.Node, key string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1].ShortTag() != "!!null"
		}
	}
	return false
}
