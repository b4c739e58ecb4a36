package config

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"evenkeel/internal/secret"
)

// maxDepth bounds the nesting of maps and lists.
const maxDepth = 64

// decoder writes YAML nodes over Go values that hold the defaults. It collects every problem and remembers where each
// setting came from, so that a setting written twice, in one file or in two, is found.
type decoder struct {
	file    place // of the file being read; no line
	budget  int   // nodes that may still be visited, so that aliases of aliases end instead of expanding for ever
	full    bool  // the budget was used up, and that is reported
	sources sources
	schema  map[reflect.Type][]field

	places map[string]place
	report
}

func (d *decoder) at(n *yaml.Node) place {
	p := d.file
	p.line, p.col = n.Line, n.Column
	return p
}

func (d *decoder) fail(n *yaml.Node, at *path, format string, args ...any) {
	d.problem(d.at(n), at, format, args...)
}

func (d *decoder) warn(n *yaml.Node, at *path, format string, args ...any) {
	d.warning(d.at(n), at, format, args...)
}

// enter follows aliases, keeps the bounds, and reports whether n may be decoded.
func (d *decoder) enter(n *yaml.Node, at *path, depth int) (*yaml.Node, bool) {
	for n.Kind == yaml.AliasNode && d.budget > 0 {
		d.budget--
		n = n.Alias
	}
	d.budget--
	switch {
	case d.full:
		return nil, false
	case d.budget <= 0:
		d.full = true
		d.fail(n, nil, "too many values after following aliases (*name); write fewer of them")
		return nil, false
	case depth > maxDepth:
		d.fail(n, nil, "nested deeper than %d levels; is an alias (*name) inside of its own anchor (&name)?", maxDepth)
		return nil, false
	case n.Style&yaml.TaggedStyle != 0:
		d.fail(n, at, "a YAML tag (!...) is not supported; remove it")
		return nil, false
	}
	return n, true
}

// claim notes that the setting at was written at n, its key. It reports a problem and false if it was written before, unless
// both are maps of different files, which are merged.
func (d *decoder) claim(n *yaml.Node, at *path, isMap bool) bool {
	here, name := d.at(n), at.String()
	before, again := d.places[name]
	if !again {
		d.places[name] = here
		return true
	}
	if isMap && before.order != here.order {
		d.places[name] = here // a second time in this file is found too
		return true
	}
	if before.line == 0 {
		d.fail(n, at, "is set twice, in two spellings; remove one")
	} else {
		d.fail(n, at, "is set twice; the first is at %s", before)
	}
	return false
}

var (
	typeSecret   = reflect.TypeFor[secret.String]()
	typeDuration = reflect.TypeFor[time.Duration]()
	typeSize     = reflect.TypeFor[Size]()
	typeStrategy = reflect.TypeFor[Strategy]()
)

// value decodes n over v. BUG panics name a type that the schema must not use.
func (d *decoder) value(n *yaml.Node, v reflect.Value, f field, at *path, depth int) {
	n, ok := d.enter(n, at, depth)
	if !ok {
		return
	}
	isMap := mergeable(v.Type(), f)
	key := n
	if f.key != nil {
		key = f.key
	}
	if !d.claim(key, at, isMap) {
		return
	}
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		if !isMap && v.Kind() != reflect.Slice { // an opened but empty section changes nothing
			d.fail(n, at, "has no value; write one or remove the key")
		}
	case v.Type() == typeStrategy:
		d.strategy(n, v.Addr().Interface().(*Strategy), at, depth)
	case v.Type() == reflect.PointerTo(typeStrategy):
		p := reflect.New(v.Type().Elem())
		d.strategy(n, p.Interface().(*Strategy), at, depth)
		v.Set(p)
	case v.Kind() == reflect.Pointer:
		element := newElement(v.Type().Elem())
		d.section(n, element, at, depth)
		v.Set(element.Addr())
	case v.Kind() == reflect.Interface:
		if got := d.tree(n, at, depth); got != nil {
			v.Set(reflect.ValueOf(got))
		}
	case isMap && v.Kind() == reflect.Struct:
		d.section(n, v, at, depth)
	case isMap:
		d.named(n, v, at, depth)
	case v.Kind() == reflect.Slice:
		d.list(n, v, at, depth)
	default:
		d.scalar(n, v, f, at)
	}
}

// mergeable says whether a setting is a map whose keys may be spread over several files.
func mergeable(t reflect.Type, f field) bool {
	return f.named || t.Kind() == reflect.Struct && t != typeSecret && t != typeStrategy
}

// former is a map that people write as text. form says how it is written, with what the text may have meant.
type former interface{ form(text string) string }

// section is structure for what people may write as text.
func (d *decoder) section(n *yaml.Node, v reflect.Value, at *path, depth int) {
	if f, ok := v.Interface().(former); ok && n.Kind == yaml.ScalarNode {
		d.fail(n, at, "must be a map such as %s, is %s", f.form(n.Value), describe(n))
		return
	}
	d.structure(n, v, at, depth)
}

// structure decodes a map over the fields of a struct.
func (d *decoder) structure(n *yaml.Node, v reflect.Value, at *path, depth int) {
	fields := d.fieldsOf(v.Type())
	for _, e := range d.entries(n, at, depth) {
		f, ok := find(fields, e.name)
		if !ok {
			d.fail(e.key, at, "unknown key %s%s", show(e.name), d.keyHint(e, at, v.Type()))
			continue
		}
		f.key = e.key
		d.value(e.value, v.FieldByIndex(f.index), f, at.key(f.names[0]), depth+1)
	}
}

// keyHint says what an unknown key may have been meant for.
func (d *decoder) keyHint(e entry, at *path, t reflect.Type) string {
	if strings.Contains(e.name, ":") {
		return "; is a space missing after the colon?"
	}
	if at == nil && e.value.Kind == yaml.MappingNode {
		for i := 0; i < len(e.value.Content); i += 2 {
			switch e.value.Content[i].Value {
			case "url", "api_key":
				return "; is it an endpoint? then indent it below endpoints:"
			case "providers", "fallback_chain":
				return "; is it a model? then indent it below models:"
			}
		}
	}
	if at == nil {
		if below := d.below(e.name, t); len(below) > 0 {
			return `; did you mean "` + strings.Join(below, `" or "`) + `"?`
		}
	}
	return DidYouMean(e.name, keyNames(d.fieldsOf(t)))
}

// meant says where settings are that are called otherwise elsewhere: by other programs, or as flags.
var meant = map[string][]string{
	"timeout":    {"deadlines.deadline", "deadlines.response"},
	"log_level":  {"log.level"},
	"log_format": {"log.format"},
}

// below lists the settings that name may have been meant for: as in meant, and those of this name in the sections of t.
func (d *decoder) below(name string, t reflect.Type) []string {
	all := slices.Clone(meant[name])
	for _, f := range d.fieldsOf(t) {
		section, way := t.FieldByIndex(f.index).Type, f.names[0]+"."
		if f.named {
			section, way = section.Elem(), way+"NAME."
		}
		if section.Kind() != reflect.Struct || section == typeStrategy || slices.Contains(laterSections, f.names[0]) {
			continue
		}
		if inner, ok := find(d.fieldsOf(section), name); ok {
			all = append(all, way+inner.written)
		}
	}
	return all
}

// named decodes a map of structs over a slice of them, which keeps the order of the file.
func (d *decoder) named(n *yaml.Node, v reflect.Value, at *path, depth int) {
	if v.IsNil() && n.Kind == yaml.MappingNode { // {} is written, and not nothing
		v.Set(reflect.MakeSlice(v.Type(), 0, len(n.Content)/2))
	}
	byName := make(map[string]int, v.Len())
	for i := range v.Len() {
		byName[v.Index(i).FieldByName("Name").String()] = i
	}
	for _, e := range d.entries(n, at, depth) {
		i, known := byName[e.name]
		if !known {
			i = v.Len()
			byName[e.name] = i
			v.Set(reflect.Append(v, newElement(v.Type().Elem())))
			v.Index(i).FieldByName("Name").SetString(e.name)
		}
		d.value(e.value, v.Index(i), field{key: e.key}, at.key(e.name), depth+1)
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, at *path, depth int) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, at, "must be a list such as [a, b], is %s", describe(n))
		return
	}
	list := reflect.MakeSlice(v.Type(), 0, min(len(n.Content), d.budget))
	for i, item := range n.Content {
		element := newElement(v.Type().Elem())
		d.value(item, element, field{}, at.index(i), depth+1)
		if d.full {
			return
		}
		list = reflect.Append(list, element)
	}
	v.Set(list)
}

// newElement returns a settable value with the defaults of its type.
func newElement(t reflect.Type) reflect.Value {
	p := reflect.New(t)
	if s, ok := p.Interface().(interface{ setDefaults() }); ok {
		s.setDefaults()
	}
	return p.Elem()
}

// tree decodes n without a schema: maps, lists, and scalars by their YAML type.
func (d *decoder) tree(n *yaml.Node, at *path, depth int) any {
	n, ok := d.enter(n, at, depth)
	if !ok {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for _, e := range d.entries(n, at, depth) {
			if _, again := m[e.name]; again {
				d.fail(e.key, at.key(e.name), "is set twice; remove one")
			}
			m[e.name] = d.tree(e.value, at.key(e.name), depth+1)
		}
		return m
	case yaml.SequenceNode:
		list := []any{}
		for i, item := range n.Content {
			if d.full {
				break
			}
			list = append(list, d.tree(item, at.index(i), depth+1))
		}
		return list
	default:
		return plain(n)
	}
}

type entry struct {
	name       string
	key, value *yaml.Node
}

// entries lists the keys of a map in order, then those of the maps that a merge key (<<) names; the map's own keys win.
func (d *decoder) entries(n *yaml.Node, at *path, depth int) []entry {
	if n.Kind != yaml.MappingNode {
		d.fail(n, at, "must be a map (key: value), is %s", describe(n))
		return nil
	}
	d.budget -= len(n.Content) / 2
	var own, merged []entry
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Kind != yaml.ScalarNode || key.Value == "":
			d.fail(key, at, "a key must be text, is %s", describe(key))
		case key.ShortTag() == "!!merge":
			merged = append(merged, d.merged(value, at, depth)...)
		default:
			own = append(own, entry{key.Value, key, value})
		}
	}
	if len(merged) == 0 {
		return own
	}
	known := make(map[string]bool, len(own))
	for _, e := range own {
		known[e.name] = true
	}
	for _, e := range merged {
		if !known[e.name] {
			known[e.name] = true
			own = append(own, e)
		}
	}
	return own
}

// merged lists the entries of the value of a merge key: one map or a list of them, the first wins.
func (d *decoder) merged(n *yaml.Node, at *path, depth int) []entry {
	n, ok := d.enter(n, at, depth)
	if !ok {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return d.entries(n, at, depth+1)
	}
	var all []entry
	for _, item := range n.Content {
		if item, ok := d.enter(item, at, depth+1); ok {
			all = append(all, d.entries(item, at, depth+2)...)
		}
	}
	return all
}

// describe says what a node is without repeating its text, which may be a secret.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.ScalarNode && n.Value == "":
		return "empty"
	case n.Kind == yaml.ScalarNode && strings.Contains(n.Value, ":"):
		return "text (is a space missing after a colon?)"
	default:
		return "text"
	}
}

// fieldsOf is the package's fieldsOf, remembered.
func (d *decoder) fieldsOf(t reflect.Type) []field {
	if _, known := d.schema[t]; !known {
		d.schema[t] = fieldsOf(t)
	}
	return d.schema[t]
}
