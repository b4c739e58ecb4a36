package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxFile bounds one config file, in bytes. It is room for some five thousand endpoints, and a file of that size is
// read or refused within a tenth of a second, whatever it holds.
const maxFile = 512 << 10

// File is a config file that was read.
type File struct {
	// Name is what messages call it; relative file: references start at its directory.
	Name string
	Data []byte
}

// Load decodes the files over the defaults, merged by key, and checks everything that flags of the command line cannot
// change. env looks up environment variables for ${NAME}; file: references are read from disk. The error is of type
// Problems and lists all that is wrong. Call Validate on the result once flags are applied.
func Load(files []File, env func(string) (string, bool)) (*Config, []Warning, error) {
	return load(files, sources{env: env, read: readSecret})
}

// LoadFiles reads the files at paths and the environment of the process, and then does what Load does.
func LoadFiles(paths ...string) (*Config, []Warning, error) {
	files := make([]File, 0, len(paths))
	var problems Problems
	for _, name := range paths {
		data, err := readFile(name)
		if err != nil {
			problems = append(problems, Problem{File: name, Text: reason(err)})
			continue
		}
		files = append(files, File{name, data})
	}
	if err := problems.err(); err != nil {
		return nil, nil, err
	}
	return Load(files, os.LookupEnv)
}

// readFile reads at most one byte more than a config file may have; Load refuses it then.
func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFile+1))
}

func newDecoder(s sources) *decoder {
	return &decoder{sources: s, places: map[string]place{}, schema: map[reflect.Type][]field{}}
}

func load(files []File, s sources) (*Config, []Warning, error) {
	d := newDecoder(s)
	doc := document{Config: Default()}
	for i, f := range files {
		d.file = place{file: f.Name, order: i}
		if root := d.parse(f.Data); root != nil {
			d.structureRoot(root, &doc)
		}
	}
	c := &doc.Config
	c.places = d.places
	c.complete()
	d.laterWarnings(&doc)

	v := &validator{config: c, problems: d.problems, warnings: d.warnings}
	v.content()
	if err := v.problems.err(); err != nil {
		return nil, nil, err
	}
	warnings := make([]Problem, len(v.warnings))
	for i, w := range v.warnings {
		warnings[i] = w.Problem
	}
	sortProblems(warnings)
	for i, p := range warnings {
		v.warnings[i] = Warning{p}
	}
	return c, v.warnings, nil
}

// parse returns the root node of a file; nil if it is empty or, with a problem reported, not YAML.
func (d *decoder) parse(data []byte) *yaml.Node {
	refuse := func(line, col int, text string) *yaml.Node {
		p := d.file
		p.line, p.col = line, col
		d.problems = append(d.problems, p.problem(nil, text))
		return nil
	}
	if len(data) > maxFile {
		return refuse(0, 0, fmt.Sprintf("is larger than %d KiB, the most that a config file may have", maxFile>>10))
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return refuse(0, 0, err.Error())
	}
	var root, second yaml.Node
	err = loader.Load(&root)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil && !errors.Is(loader.Load(&second), io.EOF) {
		return refuse(second.Line, second.Column, "holds a second document (---); write it as a file of its own")
	}
	var syntax *yaml.LoadError
	switch {
	case err == nil:
		return root.Content[0]
	case errors.As(err, &syntax):
		line, col := syntax.Mark.Line, syntax.Mark.Column
		if line == 0 {
			line, col = badByte(data)
		}
		return refuse(line, col, syntaxText(syntax, data))
	default:
		return refuse(0, 0, "is not YAML")
	}
}

// syntaxText words what the parser found. The source line is not repeated: it may hold a secret.
func syntaxText(e *yaml.LoadError, data []byte) string {
	text, hint := e.Message, ""
	switch lines := bytes.Split(data, []byte("\n")); {
	case e.Stage == "reader":
		return "a byte that is not UTF-8 text, or a control character; save the file as UTF-8"
	case strings.HasPrefix(text, "unknown anchor"):
		return "an alias (*name) without its anchor (&name); quote a text that starts with *"
	case e.Mark.Line > 0 && e.Mark.Line <= len(lines) && bytes.HasPrefix(bytes.TrimLeft(lines[e.Mark.Line-1], " "), []byte("\t")):
		return "a tab indents this line; YAML is indented with spaces"
	case strings.Contains(text, "mapping values are not allowed"):
		hint = "; is the line indented as its neighbours, and is there a space after each colon?"
	case strings.Contains(text, "cannot start any token"):
		hint = "; quote a text that starts with @, %, ` or another special character"
	}
	if e.ContextMsg != "" {
		text = fmt.Sprintf("%s (%s from line %d)", text, e.ContextMsg, e.ContextMark.Line)
	}
	return "not YAML: " + text + hint
}

// badByte finds the first byte that the parser's reader refuses, which gives no place itself.
func badByte(data []byte) (line, col int) {
	line, col = 1, 1
	for _, r := range string(data) {
		switch {
		case r == '\n':
			line, col = line+1, 0
		case r == '\uFFFD', r < ' ' && r != '\t' && r != '\r', r == 0x7f:
			return line, col
		}
		col++
	}
	return 0, 0
}

func (d *decoder) structureRoot(root *yaml.Node, doc *document) {
	if root, ok := d.enter(root, nil, 0); ok && root.ShortTag() != "!!null" {
		d.structure(root, reflect.ValueOf(doc).Elem(), nil, 0)
	}
}

// complete fills in what follows from other settings.
func (c *Config) complete() {
	for i := range c.Endpoints {
		if e := &c.Endpoints[i]; e.URL == "" {
			if _, written := c.places[(*path)(nil).keys("endpoints", e.Name, "url").String()]; !written {
				e.URL = kindURLs[e.Kind]
			}
		}
	}
	for i := range c.Models {
		for j := range c.Models[i].Providers {
			if p := &c.Models[i].Providers[j]; p.Model == "" {
				p.Model = c.Models[i].Name
			}
		}
	}
	for i := range c.VirtualKeys {
		c.VirtualKeys[i].SHA256 = strings.ToLower(c.VirtualKeys[i].SHA256)
	}
}

// laterWarnings says which of the written settings this version does not act on: a line for each section, and one for
// each kind of setting in limits and providers.
func (d *decoder) laterWarnings(doc *document) {
	root := (*path)(nil)
	for _, name := range laterSections {
		if p, written := d.places[name]; written {
			d.warnings = append(d.warnings, Warning{p.problem(root, "accepted, not acted on by this version: "+name)})
		}
	}
	first, count := map[string]place{}, map[string]int{}
	note := func(at *path, names ...string) {
		for _, name := range names {
			if p, written := d.places[at.key(name).String()]; written {
				if count[name]++; count[name] == 1 {
					first[name] = p
				}
			}
		}
	}
	for _, e := range doc.Endpoints {
		note(root.keys("endpoints", e.Name, "limits"), "rpm", "tpm")
	}
	for _, m := range doc.Models {
		for i := range m.Providers {
			at := root.keys("models", m.Name, "providers").index(i)
			note(at, "region", "context_window", "supports", "price")
			note(at.key("limits"), "rpm", "tpm")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(first)) {
		verb := "acted on"
		if name == "rpm" || name == "tpm" {
			verb = "enforced"
		}
		text := fmt.Sprintf("accepted, not %s by this version: %s (%d places)", verb, name, count[name])
		if count[name] == 1 {
			text = fmt.Sprintf("accepted, not %s by this version: %s", verb, name)
		}
		d.warnings = append(d.warnings, Warning{first[name].problem(nil, text)})
	}
}
