package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Bounds of one config file. Within them the work is in proportion to the size of the file, whatever it holds.
const (
	maxFile    = 4 << 20 // bytes
	maxAliases = 10_000
)

// File is a config file that was read.
type File struct {
	// Name is what messages call it; relative file: references start at its directory.
	Name string
	Data []byte
}

// Load decodes the files over the defaults, merged by key, and checks everything that flags of the command line cannot
// change. env looks up environment variables for ${NAME}; file: references and EndpointsFile are read from disk. The error is of type
// Problems. Call Validate on the result once flags are applied, also if there is an error: the result is then what could
// be decoded, not to be used for anything else, and Validate lists those problems and its own.
func Load(files []File, env func(string) (string, bool)) (*Config, []Warning, error) {
	return load(files, sources{env: env, read: readSecret, pem: readPEM, file: readFile})
}

// LoadFiles reads the files at paths and the environment of the process, and then does what Load does. If a file cannot be
// read, there is no configuration to validate: it is nil.
func LoadFiles(paths ...string) (*Config, []Warning, error) {
	files, err := ReadFiles(paths...)
	if err != nil {
		return nil, nil, err
	}
	return Load(files, os.LookupEnv)
}

// ReadFiles reads config files for Load. The error is of type Problems and names all that cannot be read.
func ReadFiles(paths ...string) ([]File, error) {
	files := make([]File, 0, len(paths))
	var r report
	for i, name := range paths {
		data, err := readFile(name)
		if err != nil {
			r.problem(place{file: name, order: i}, nil, "%s", reason(err))
			continue
		}
		files = append(files, File{name, data})
	}
	return files, r.err()
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

// nodeBudget is what a file of size bytes may visit: all its nodes, since one takes two bytes or more, and some by alias.
func nodeBudget(size int) int { return 100_000 + size/2 }

func newDecoder(s sources) *decoder {
	return &decoder{sources: s, budget: nodeBudget(0), places: map[string]place{}, schema: map[reflect.Type][]field{}}
}

func load(files []File, s sources) (*Config, []Warning, error) {
	read := map[string]Sum{}
	d := newDecoder(s.noting(read))
	doc := document{Config: Default()}
	names := make([]string, len(files))
	for i, f := range files {
		names[i], read[f.Name] = f.Name, sum(f.Data)
		d.file = place{file: f.Name, order: i}
		d.budget, d.full = nodeBudget(len(f.Data)), false
		if root := d.parse(f.Data); root != nil {
			d.structureRoot(root, &doc)
		}
	}
	c := &doc.Config
	d.endpoints(c, len(files))
	c.reads, c.places = &reads{read}, d.places
	c.places[""] = place{file: strings.Join(names, ", ")}
	c.complete()
	d.laterWarnings(&doc)

	c.decoded = report{problems: d.problems, dropped: d.dropped}
	v := newValidator(c)
	v.warnings = d.warnings
	if s.pem != nil {
		v.files(s.pem, time.Now())
		c.decoded = report{problems: slices.Clone(v.problems), dropped: v.dropped}
	}
	v.content()
	v.warnings = slices.DeleteFunc(v.warnings, func(w Warning) bool { return w.at != nil && !v.sound(w.at) })
	sortProblems(v.warnings, func(w Warning) Problem { return w.Problem })
	return c, v.warnings, v.err()
}

// parse returns the root node of a file; nil if it is empty or, with a problem reported, not YAML.
func (d *decoder) parse(data []byte) *yaml.Node {
	refuse := func(line, col int, text string) *yaml.Node {
		p := d.file
		p.line, p.col = line, col
		d.problem(p, nil, "%s", text)
		return nil
	}
	if len(data) > maxFile {
		return refuse(0, 0, fmt.Sprintf("is larger than %d MiB, the most that a config file may have", maxFile>>20))
	}
	if countAliases(data) > maxAliases {
		return refuse(0, 0, fmt.Sprintf("holds more than %d aliases (*name); write fewer of them", maxAliases))
	}
	loader, err := yaml.NewLoader(bytes.NewReader(hideReferences(data)))
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
		showReferences(root.Content[0])
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

// syntaxHints say what usually is behind a message of the parser.
var syntaxHints = []struct{ message, hint string }{
	{"mapping values are not allowed", "is the line indented as its neighbours, and is there a space after each colon?"},
	{"could not find expected ':'", "is there a space after each colon?"},
	{"did not find expected key", "is the line indented as its neighbours?"},
	{"did not find expected '-'", "is the line indented as its neighbours?"},
	{"did not find expected ','", "is a bracket left open?"},
	{"did not find expected node", "is a bracket left open?"},
	{"unexpected end of stream", "is a quote left open?"},
	{"found unknown escape character", `in double quotes a backslash begins an escape; write the text in single quotes, as in 'm\d'`},
	{"did not find expected hexadecimal number", `in double quotes a backslash begins an escape; write the text in single quotes, as in 'm\d'`},
	{"cannot start any token", "quote a text that starts with @, %, ` or another special character"},
}

// syntaxText words what the parser found. The source line is not repeated: it may hold a secret.
func syntaxText(e *yaml.LoadError, data []byte) string {
	lines := bytes.Split(data, []byte("\n"))
	switch {
	case e.Stage == "reader":
		return "a byte that is not UTF-8 text, or a control character; save the file as UTF-8"
	case strings.HasPrefix(e.Message, "unknown anchor"):
		return "an alias (*name) without its anchor (&name); quote a text that starts with *"
	case e.Mark.Line > 0 && e.Mark.Line <= len(lines) && bytes.HasPrefix(bytes.TrimLeft(lines[e.Mark.Line-1], " "), []byte("\t")):
		return "a tab indents this line; YAML is indented with spaces"
	}
	text := "not YAML: " + e.Message
	if e.ContextMsg != "" {
		text += fmt.Sprintf(" (%s from line %d)", e.ContextMsg, e.ContextMark.Line)
	}
	for _, h := range syntaxHints {
		if strings.Contains(e.Message, h.message) {
			return text + "; " + h.hint
		}
	}
	return text
}

// In { } and [ ] YAML takes the braces of a bare ${NAME} for its own. So the parser sees two private characters in their
// stead, which are as wide: all places stay right.
const openMark, closeMark = "\uE000", "\uE001"

var (
	shownReference  = regexp.MustCompile(`\$\{(` + namePattern + `)\}`)
	hiddenReference = regexp.MustCompile(`\$` + openMark + `(` + namePattern + `)` + closeMark)
)

func hideReferences(data []byte) []byte {
	return shownReference.ReplaceAll(data, []byte("$$"+openMark+"${1}"+closeMark))
}

func showReferences(n *yaml.Node) {
	if strings.Contains(n.Value, openMark) {
		n.Value = hiddenReference.ReplaceAllString(n.Value, "$${${1}}")
	}
	for _, child := range n.Content {
		showReferences(child)
	}
}

// countAliases counts what looks like an alias, which is cheaper than to parse a file that has too many.
func countAliases(data []byte) (n int) {
	for i := 1; i+1 < len(data); i++ {
		if data[i] == '*' && bytes.IndexByte([]byte(" \t\n[{,"), data[i-1]) >= 0 && data[i+1] > ' ' && data[i+1] != '*' {
			n++
		}
	}
	return n
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
	c.HealthChecks.complete(func(keys ...string) bool {
		_, written := c.places[(*path)(nil).key("health_checks").keys(keys...).String()]
		return written
	})
	for i := range c.VirtualKeys {
		c.VirtualKeys[i].SHA256 = strings.ToLower(c.VirtualKeys[i].SHA256)
	}
}

// laterWarnings says which of the written settings this version does not act on: a line for each section, and one for
// each kind of setting in providers.
func (d *decoder) laterWarnings(doc *document) {
	root := (*path)(nil)
	for _, name := range laterSections {
		if p, written := d.places[name]; written {
			d.warning(p, nil, "accepted, not acted on by this version: %s", name)
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
	for _, m := range doc.Models {
		for i := range m.Providers {
			at := root.keys("models", m.Name, "providers").index(i)
			note(at, "context_window", "supports")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(first)) {
		text := fmt.Sprintf("accepted, not acted on by this version: %s (%d places)", name, count[name])
		if count[name] == 1 {
			text = "accepted, not acted on by this version: " + name
		}
		d.warning(first[name], nil, "%s", text)
	}
}
