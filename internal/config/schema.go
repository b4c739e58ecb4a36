package config

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// field is a struct field as the schema sees it.
type field struct {
	names []string // the canonical one first
	index []int
	named bool // a slice of structs that is written as a map by name
	url   bool // the address of an endpoint
	proxy bool // the address of a proxy
	file  bool // the path of a file

	// Where it is decoded: the one of names that the file has, and its node (nil in lists).
	written string
	key     *yaml.Node
}

// find returns the field that is written as name.
func find(fields []field, name string) (field, bool) {
	for _, f := range fields {
		if slices.Contains(f.names, name) {
			f.written = name
			return f, true
		}
	}
	return field{}, false
}

// fieldsOf reads the yaml tags of a struct: `yaml:"key"`, `yaml:"key,named"`, `yaml:"key,url"`,
// `yaml:"key,proxy"`, `yaml:"key,file"`, `yaml:"key,also=other"`, `yaml:",inline"`, `yaml:"-"`. Without a tag the key is the name in snake_case. Durations are
// also known as key_seconds and key_ms.
func fieldsOf(t reflect.Type) []field {
	var all []field
	for _, sf := range reflect.VisibleFields(t) {
		if !sf.IsExported() || sf.Anonymous {
			continue
		}
		key, options, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		switch key {
		case "-":
			continue
		case "":
			key = snake(sf.Name)
		}
		f := field{names: []string{key}, index: sf.Index}
		for option := range strings.SplitSeq(options, ",") {
			switch name, value, _ := strings.Cut(option, "="); name {
			case "named":
				f.named = true
			case "url":
				f.url = true
			case "proxy":
				f.proxy = true
			case "file":
				f.file = true
			case "also":
				f.names = append(f.names, value)
			}
		}
		if sf.Type == typeDuration {
			f.names = append(f.names, key+"_seconds", key+"_ms")
		}
		all = append(all, f)
	}
	return all
}

func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func keyNames(fields []field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.names[0]
	}
	return names
}
