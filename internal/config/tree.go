package config

import "go.yaml.in/yaml/v4"

// MaxFile is the most that a config file may have, in bytes.
const MaxFile = maxFile

// Tree is a value of a YAML file that has another schema than ours, with aliases followed and merge keys applied. It is a
// null, the text of a scalar, a list or a map. The zero value is the null of an empty file.
type Tree struct {
	Line, Column int // where the value stands, both from 1
	Kind         TreeKind
	Text         string
	Items        []Tree
	// Entries are in the order of the file. A key that is written twice is there twice.
	Entries []TreeEntry
}

// TreeEntry is a key of a map with its value.
type TreeEntry struct {
	Key          string
	Line, Column int // of the key
	Value        Tree
}

// TreeKind says what a Tree is.
type TreeKind uint8

// The kinds of a Tree.
const (
	TreeNull TreeKind = iota
	TreeText
	TreeList
	TreeMap
)

// String names the kind for messages.
func (k TreeKind) String() string { return [...]string{"empty", "text", "a list", "a map"}[k] }

// ReadTree reads a file that has another schema, within the bounds that hold for ours. The error is of type Problems.
func ReadTree(f File) (Tree, error) {
	d := newDecoder(sources{})
	d.file = place{file: f.Name}
	d.budget = nodeBudget(len(f.Data))
	root := d.parse(f.Data)
	if root == nil {
		return Tree{}, d.err()
	}
	t := d.outline(root, 0)
	return t, d.err()
}

// outline is tree with the place of every value.
func (d *decoder) outline(n *yaml.Node, depth int) Tree {
	t := Tree{Line: n.Line, Column: n.Column}
	n, ok := d.enter(n, nil, depth)
	if !ok {
		return t
	}
	switch {
	case n.Kind == yaml.MappingNode:
		t.Kind = TreeMap
		for _, e := range d.entries(n, nil, depth) {
			if d.full {
				break
			}
			t.Entries = append(t.Entries, TreeEntry{e.name, e.key.Line, e.key.Column, d.outline(e.value, depth+1)})
		}
	case n.Kind == yaml.SequenceNode:
		t.Kind = TreeList
		for _, item := range n.Content {
			if d.full {
				break
			}
			t.Items = append(t.Items, d.outline(item, depth+1))
		}
	case n.ShortTag() != "!!null":
		t.Kind, t.Text = TreeText, n.Value
	}
	return t
}

// Show quotes text of a file for a message: what looks like a credential is hidden, and a long text is cut.
func Show(text string) string { return show(text) }

// BaseURL returns the form in which an endpoint's url is kept. Its errors say what is wrong, and never hold the address.
func BaseURL(text string) (string, error) { return canonicalURL(text) }
